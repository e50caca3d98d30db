"""Writes docs/internals/modules.md: every module of OneTool with the first sentence of its docstring.

`make docs` runs it. The page isn't committed.
"""

import ast
import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from tokenize import COMMENT, NL, STRING, generate_tokens

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "onetool"
PAGE = ROOT / "docs" / "internals" / "modules.md"
HEAD = "# Modules\n\nEvery module with the first sentence of its docstring. `docs/modules.py` writes this page.\n"


def page() -> str:
    parts = [HEAD]
    for folder in folders():
        rows = [f"| `{file.name}` | {sentence(file)} |" for file in files_of(folder)]
        parts.append(f"## `{folder.relative_to(SOURCE.parent)}/`\n\n| | |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def folders() -> list[Path]:
    return [SOURCE, *sorted(path for path in SOURCE.rglob("*") if (path / "__init__.py").exists())]


def files_of(folder: Path) -> Iterator[Path]:
    yield folder / "__init__.py"
    yield from sorted(file for file in folder.glob("*.py") if file.name != "__init__.py")


def sentence(file: Path) -> str:
    text = docstring(file)
    first = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s(?=[A-Z`])", first)[0].replace("|", "\\|")


def docstring(file: Path) -> str:
    """The text that a file begins with, behind comments; the rest of it is not parsed."""
    with file.open(encoding="utf-8") as lines:
        for token in generate_tokens(lines.readline):
            if token.type == STRING:
                return cleandoc(ast.literal_eval(token.string))
            if token.type not in (COMMENT, NL):
                break
    return ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
