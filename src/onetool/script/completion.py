"""What may come next in a line of code: packs, the tools of one, the arguments of a tool, names of the session."""

import re
from collections.abc import Iterable

from onetool.core.spelling import spelled
from onetool.script.names import BUILTINS, Names

DOTTED = re.compile(r"([\w.]*)$")
CALL = re.compile(r"([\w.]+)\(([^()]*)$")


def completions(line: str, names: Names, known: Iterable[str] = ()) -> list[str]:
    """Every word that the end of the line could become, whole and in order."""
    found = DOTTED.search(line)
    word = found[1] if found else ""
    if "." in word:
        return [one for one in _tools(word, names) if one.startswith(word)]
    words = [*_arguments(line[: len(line) - len(word)], names), *sorted({*names.words(), *known})]
    matching = [one for one in words if one.startswith(word)]
    return matching if matching or not word else sorted(one for one in BUILTINS if one.startswith(word))


def _tools(word: str, names: Names) -> list[str]:
    pack = names.pack(word.partition(".")[0])
    return [f"{pack.word}.{tool}(" for tool in sorted(pack.tools)] if pack else []


def _arguments(before: str, names: Names) -> list[str]:
    """Those that the call around the cursor does not have yet."""
    call = CALL.search(before)
    if call is None or (spec := names.tool(call[1])) is None or not re.search(r"[(,]\s*$", before):
        return []
    return [f"{name}=" for name in map(spelled, spec.order) if not re.search(rf"\b{re.escape(name)}\s*=", call[2])]
