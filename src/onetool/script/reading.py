"""From the text that was sent to the code that is meant: fences, line ends and indentation are taken off.

Nothing inside of the code is touched, strings least of all: a triple-quoted text keeps its lines as they are.
"""

import ast
import re
import warnings
from threading import Lock

from onetool.core.errors import OneToolError

MOST_BYTES = 1024 * 1024
FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*[\w.+-]*[^\n`]*\n")
_PARSING = Lock()  # switching warnings off and on again is for one thread at a time


class ScriptError(OneToolError):
    """The code can't be run as it is; nothing has run. The text is for whoever wrote it."""


def read(text: str) -> str:
    """The code in a text. ScriptError when it is too long or can't be code at all."""
    if len(text) > MOST_BYTES or len(text.encode(errors="replace")) > MOST_BYTES:
        raise ScriptError(f"the code is longer than {MOST_BYTES // 1024**2} MiB; pass data through tools or files")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ScriptError(f"line {line}: the code has a null character; write \\0 inside of a string")
    code = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    code = _without_fence(code)
    return _dedented(code) if code.lstrip("\n")[:1] in (" ", "\t") else code


def parse(code: str) -> ast.Module | None:
    """The tree of the code, or None where this Python's parser does not take it: the sandbox has its own."""
    try:
        if "\\" not in code:  # nothing to warn of
            return ast.parse(code)
        with _PARSING, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `"\d"` is odd, and it is the sandbox's business
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _without_fence(text: str) -> str:
    """What is between the fences, where the text is a fenced block, alone or with words around it."""
    start = 0
    while opening := FENCE.search(text, start):
        if opening.start() and text[opening.start() - 1] != "\n":
            start = opening.end()
            continue
        if text[: opening.start()].strip() and parse(text) is not None:
            return text  # it is code already, and the fence stands in one of its strings
        return _inside(text, opening)
    return text


def _inside(text: str, opening: re.Match[str]) -> str:
    """Up to the last line that closes the fence and leaves something that parses, else up to the first one."""
    fence = opening["fence"]
    closing = re.compile(rf"^[ \t]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$", re.MULTILINE)
    ends = [match.start() for match in closing.finditer(text, opening.end())]
    bodies = [text[opening.end() : end] for end in ends] or [text[opening.end() :]]
    return next((body for body in reversed(bodies) if parse(_dedented(body)) is not None), bodies[0])


def _dedented(code: str) -> str:
    """Code that is indented as a whole moves to the left; lines inside of strings stay."""
    lines = code.split("\n")
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    indent = first[: len(first) - len(first.lstrip())]
    if not indent:
        return code
    tree = parse(f"if 1:\n{code}")
    inside = _string_lines(tree) if tree is not None else set()
    return "\n".join(
        line if number in inside else line.removeprefix(indent) for number, line in enumerate(lines, start=2)
    )


def _string_lines(tree: ast.AST) -> set[int]:
    """The lines that begin inside of a string."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
        for line in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
    }
