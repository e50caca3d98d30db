"""From the text that was sent to the code that is meant: fences, line ends and indentation are taken off.

Nothing inside of the code is touched, strings least of all: a triple-quoted text keeps its lines as they are.
"""

import ast
import re
import warnings
from threading import Lock

from onetool.core.errors import OneToolError

MOST_BYTES = 1024 * 1024
# What this Python may parse, in the middle of everything else that it does: a few tenths of a second. Code that has
# more in it is data, or an attack; the sandbox takes it as it is.
MOST_TOKENS = 50_000
MOST_IN_F_STRINGS = 500_000_000  # braces times characters: before Python 3.12 each brace costs a walk over its string
MOST_TRIED = 200_000  # characters that are parsed to find out which of many fences is the last one

# No part of it can be matched in two ways: a line of a million tildes is read once.
FENCE = re.compile(r"^[ \t]*+(?P<fence>`{3,}+|~{3,}+)[^\n`]*+\n", re.MULTILINE)
TOKEN = re.compile(r"\w++|[^\w\s]")
F_STRING = re.compile(r"""\b(?:[fF][rR]?|[rR][fF])["']""")
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
    if _is_too_much(code):
        return None
    try:
        try:
            return _parsed(code)
        except SystemError:  # what CPython 3.11 says when something else was parsed in between, such as by a finalizer
            return _parsed(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return None


def why_not(code: str) -> str:
    """What this Python's parser says of code that it does not take."""
    try:
        _parsed(code)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError, SystemError) as error:
        return str(error) or "it is nested too deep"
    return "it is too long, or nested too deep"


def _parsed(code: str) -> ast.Module:
    if "\\" not in code:  # nothing to warn of
        return ast.parse(code)
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `"\d"` is odd, and it is the sandbox's business
        return ast.parse(code)


def _is_too_much(code: str) -> bool:
    if len(code) > MOST_TOKENS and sum(1 for _ in TOKEN.finditer(code)) > MOST_TOKENS:
        return True
    return code.count("{") * len(code) > MOST_IN_F_STRINGS and F_STRING.search(code) is not None


def _without_fence(text: str) -> str:
    """What is between the fences, where the text is a fenced block, alone or with words around it."""
    opening = FENCE.search(text)
    if opening is None or (text[: opening.start()].strip() and parse(text) is not None):
        return text  # in the second case it is code already, and the fence stands in one of its strings
    return _inside(text, opening)


def _inside(text: str, opening: re.Match[str]) -> str:
    """Up to the last line that closes the fence and leaves something that parses, else up to the first one."""
    fence = opening["fence"]
    closing = re.compile(rf"^[ \t]*+{re.escape(fence[0])}{{{len(fence)},}}+[ \t]*+$", re.MULTILINE)
    ends = [match.start() for match in closing.finditer(text, opening.end())] or [len(text)]
    tries = max(2, MOST_TRIED // len(text))
    for end in ends[: -tries - 1 : -1]:
        body = text[opening.end() : end]
        if parse(_dedented(body)) is not None:
            return _only(body, text[end:])
    return _only(text[opening.end() : ends[0]], text[ends[0] :])


def _only(body: str, rest: str) -> str:
    """One block is what is meant. Of two nobody knows: to run the first in silence would be a guess."""
    if FENCE.search(rest.partition("\n")[2]):
        raise ScriptError("there are several fenced blocks; send the code as one")
    return body


def _dedented(code: str) -> str:
    """Code that is indented as a whole moves to the left; lines inside of strings stay."""
    lines = code.split("\n")
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    indent = first[: len(first) - len(first.lstrip())]
    if not indent:
        return code
    tree = parse(f"if 1:\n{code}")
    inside = string_lines(tree) if tree is not None else set()
    return "\n".join(
        line if number in inside else line.removeprefix(indent) for number, line in enumerate(lines, start=2)
    )


def string_lines(tree: ast.AST) -> set[int]:
    """The lines that begin inside of a string."""
    strings = {
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
    }
    return {line for first, last in strings for line in range(first + 1, last + 1)}
