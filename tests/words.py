"""The sentences of the source: docstrings, comments and texts, printed by package, and checked for odd patterns.

python -m tests.words                    print all of them
python -m tests.words core cli           those of some packages
python -m tests.words --draw 200 SEED    some docstrings and some texts, drawn by a seed such as a commit's hash
python -m tests.words --check            fail where a pattern of `ODD` is found; `make lint` runs this
"""

import ast
import io
import random
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "onetool"
PAGE = ROOT / "web" / "src"
PAGE_TEXTS = ("*.ts", "*.svelte")

ODD = {
    "is no": re.compile(r"(?<!\bthere )\bis no(?! (?:longer|more|reason|different)\b)(?= )", re.IGNORECASE),
    "none": re.compile(
        r"\b(?:that|which|it|this|they|these|those|and|one) (?:is|are) none\b|(?<!there )\bis none of\b"
    ),
}
PRIVATE_NAMES = re.compile(r"_?(?:MOST|LONGEST|LARGEST|DEEPEST|OLDEST)_")
NOT_VERBS = re.compile(
    "a|all|also|an|are|as|at|but|by|every|for|from|here|how|if|in|is|it|its|many|more|most|no|not|nothing|of|on|one|only"
    "|or|other|our|same|some|such|that|the|their|there|these|they|this|those|to|what|when|where|whether|which|who|whom"
    "|whose|with|without"
)
EXCEPTIONS: frozenset[str] = frozenset()  # as `--check` prints them: file and words


class Sentence(NamedTuple):
    kind: str  # docstring, comment, text
    file: Path
    line: int
    text: str
    of_function: bool = False  # a docstring that has to begin with a verb

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: {' '.join(self.text.split())}"


def sentences(folder: Path = SOURCE) -> Iterator[Sentence]:
    for file in sorted(folder.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
        docstrings = {id(node): sentence for node, sentence in _docstrings(file, tree)}
        yield from docstrings.values()
        for node in ast.walk(tree):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
            if is_text and " " in node.value.strip():  # single words are names and keys
                yield Sentence("text", file, node.lineno, node.value)
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and not re.match(r"# (?:noqa|type|pyright|pragma)", token.string):
                yield Sentence("comment", file, token.start[0], token.string)


def _docstrings(file: Path, tree: ast.Module) -> Iterator[tuple[ast.expr, Sentence]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if (text := ast.get_docstring(node)) is None:
            continue
        value = node.body[0].value  # pyright: ignore[reportAttributeAccessIssue] - the expression of the docstring
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any(
            getattr(one, "id", getattr(one, "attr", "")) in ("property", "cached_property", "setter", "part")
            for one in node.decorator_list
        )
        yield value, Sentence("docstring", file, value.lineno, text, is_function)


def mistakes() -> Iterator[str]:
    for one in sentences():
        for name, pattern in ODD.items():
            if found := pattern.search(one.text):
                start = max(found.start() - 30, 0)
                yield f"{one.file.relative_to(ROOT)}:{one.line}: {name!r} in {one.text[start : found.end() + 30]!r}"
        first = re.split(r"\W+", one.text.strip("`* "), maxsplit=1)[0].lower()
        if one.of_function and NOT_VERBS.fullmatch(first):
            yield f"{one.file.relative_to(ROOT)}:{one.line}: a function's docstring begins with {first!r}, not a verb"
    for file in sorted(SOURCE.rglob("*.py")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if found := PRIVATE_NAMES.match(line):
                yield f"{file.relative_to(ROOT)}:{number}: {found[0]}… is called MAX_… here"
    for kind in PAGE_TEXTS:
        for file in sorted(PAGE.rglob(kind)):
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                for name, pattern in ODD.items():
                    if pattern.search(line):
                        yield f"{file.relative_to(ROOT)}:{number}: {name!r}"


def main(args: list[str]) -> int:
    if args == ["--check"]:
        found = [one for one in mistakes() if re.sub(r":\d+", "", one, count=1) not in EXCEPTIONS]
        print(*found, sep="\n")
        print(f"{len(found)} odd sentences" if found else "No odd sentences", file=sys.stderr)
        return bool(found)
    if args[:1] == ["--draw"]:
        number, seed = int(args[1]), args[2]
        every = list(sentences())
        for kind in ("docstring", "text"):
            some = [one for one in every if one.kind == kind]
            print(f"\n{kind}s\n", *random.Random(seed).sample(some, min(number, len(some))), sep="\n")
        return 0
    for folder in [SOURCE / one for one in args] or [SOURCE]:
        print(*sentences(folder), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
