"""The file of prompts: texts for models that replace or add to ours.

    instructions: …            # what a client is told of this server as a whole
    run: …                     # the description of the tool `run`; the names of packs follow it
    packs: {excel: …}          # how a pack is best used: shown by ot.packs(info="full") and ot.help("excel")

They are read by models, again and again, so each has a budget.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import msgspec

from onetool.config.node import Findings
from onetool.core.errors import Mistake
from onetool.core.tokens import tokens

BESIDE = "prompts.yaml"  # taken without being named, if it is there
MOST_TOKENS = {"instructions": 300, "run": 260, "packs": 1_000}


class Of(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one pack. In the file a text alone will do."""

    shorthand: ClassVar[str] = "instructions"

    instructions: str


class Texts(msgspec.Struct, frozen=True, kw_only=True):
    """What the file may say."""

    instructions: str | None = None
    run: str | None = None
    packs: dict[str, Of] = {}

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        given = [("instructions", "instructions", self.instructions), ("run", "run", self.run)]
        given += [("packs", f"packs.{name}", of.instructions) for name, of in self.packs.items()]
        for field, key, text in given:
            if text is not None and not text.strip():
                yield field, f"{key} is empty", "write a text, or remove the key"
            elif text is not None and tokens(text) > MOST_TOKENS[field]:
                most = MOST_TOKENS[field]
                told = f"{key} has about {tokens(text):,} tokens; at most {most:,}, that is {4 * most:,} letters"
                yield field, told, "shorten it: models read it again and again"


def read_texts(path: Path | None, beside: Path, findings: Findings) -> tuple[Path | None, Texts]:
    """The texts of the file that the config names, or of the one beside it; and which file that is."""
    if not isinstance(path, Path | None):  # what stands there can't be read as one, which has been told
        return None, Texts()
    named, path = path is not None, path or beside / BESIDE
    if not path.exists():
        if named:  # it may come later
            told = f"the file {path} does not exist"
            findings.add([Mistake(message=told, file=str(beside), key="prompts", severity="warning")])
        return path if named else None, Texts()
    from onetool.config.shape import read
    from onetool.config.source import Refused
    from onetool.config.yaml_nodes import read_yaml

    try:
        root = read_yaml(path)
    except Refused as refused:
        findings.add([Mistake(message=refused.message, file=str(path), line=refused.line, hint=refused.hint)])
        return path, Texts()
    texts = read(root, Texts, findings)
    return path, texts if isinstance(texts, Texts) else Texts()
