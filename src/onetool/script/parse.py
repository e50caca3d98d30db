"""Extracts code from the text that was sent, parses it, and lists the names that it uses and defines.

Code fences, line ends and indentation are removed; nothing inside the code is changed. The syntax tree is walked
once, for use by the later steps. Findings are reported with their place in the text that was sent, or without a place
if there is none, as in the code of a snippet.
"""

import ast
import re
import warnings
from collections import Counter
from functools import cached_property
from threading import Lock
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from onetool.core.errors import OneToolError, cut
from onetool.script.awaits import awaited_calls

Span = tuple[int, int]


class NodePositions:
    """The positions of nodes in some code. Lines are measured on first use."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._starts: list[int] = []

    def of(self, node: ast.expr | ast.stmt) -> Span:
        if not self._starts:
            self._starts = [0]
            for line in self._code.encode().split(b"\n"):
                self._starts.append(self._starts[-1] + len(line) + 1)
        end_line = node.end_lineno or node.lineno
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[end_line - 1] + (node.end_col_offset or 0)


class Edit(NamedTuple):
    """A replacement of the text from start to end."""

    start: int
    end: int
    text: str


def edited(code: str, edits: list[Edit]) -> str:
    data, parts, at = code.encode(), list[bytes](), 0
    for edit in sorted(edits):
        parts += (data[at : edit.start], edit.text.encode())
        at = edit.end
    return b"".join((*parts, data[at:])).decode()


# From a text to its code: remove fences, normalize line ends and indentation

MAX_BYTES = 1024 * 1024
# Limits on what this Python parses while other tasks wait: a few tenths of a second. Larger code is data, or an attack;
# only the sandbox parses it.
MAX_TOKENS = 50_000
MAX_IN_F_STRINGS = 500_000_000  # braces times characters: before Python 3.12 each brace costs a walk over its string
MAX_TRIED = 200_000  # characters parsed in total to find the last one of many fences

# No part can match in two ways: a line of a million tildes is scanned once.
FENCE = re.compile(r"^[ \t]*+(?P<fence>`{3,}+|~{3,}+)[^\n`]*+\n", re.MULTILINE)
TOKEN = re.compile(r"\w++|[^\w\s]")
F_STRING = re.compile(r"""\b(?:[fF][rR]?|[rR][fF])["']""")
_PARSING = Lock()  # turning warnings off and on is not thread-safe


class ScriptError(OneToolError):
    """The code can't be run, and nothing has run. The message is for its author."""


def read(text: str) -> str:
    """Return the code in the text. Raise ScriptError if it is too long or can't be code."""
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        raise ScriptError(f"the code is longer than {MAX_BYTES // 1024**2} MiB; pass data through tools or files")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ScriptError(f"line {line}: the code has a null character; write \\0 inside of a string")
    code = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    opening = FENCE.search(code)
    # With words before the fence, the text may be code already, with the fence in one of its strings.
    if opening is not None and (not code[: opening.start()].strip() or parse(code) is None):
        code = _fenced(code, opening)
    return _dedented(code) if code.lstrip("\n")[:1] in (" ", "\t") else code


def parse(code: str) -> ast.Module | None:
    """Return the tree of the code; None if this Python can't parse it. The sandbox has its own parser."""
    if _is_too_much(code):
        return None
    try:
        try:
            return _parsed(code)
        except SystemError:  # raised by CPython 3.11 if a nested parse happened, for example in a finalizer
            return _parsed(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return None


def syntax_error(code: str) -> SyntaxError | None:
    """Return the SyntaxError of this Python's parser, if it has parsed the code."""
    if _is_too_much(code):
        return None
    try:
        _parsed(code)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError, SystemError):
        pass
    return None


def why_not(code: str) -> str:
    """Return this Python's message about code that it can't parse."""
    error = syntax_error(code)
    return "it is too long, or nested too deep" if error is None else f"line {error.lineno}: {error.msg}"


def _parsed(code: str) -> ast.Module:
    if "\\" not in code:  # no warnings possible
        return ast.parse(code)
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning about `"\d"` is up to the sandbox
        return ast.parse(code)


def _is_too_much(code: str) -> bool:
    if len(code) > MAX_TOKENS and sum(1 for _ in TOKEN.finditer(code)) > MAX_TOKENS:
        return True
    return code.count("{") * len(code) > MAX_IN_F_STRINGS and F_STRING.search(code) is not None


def _fenced(text: str, opening: re.Match[str]) -> str:
    """Return the text up to the last line that closes the fence and leaves something that parses, else the first."""
    fence = opening["fence"]
    closing = re.compile(rf"^[ \t]*+{re.escape(fence[0])}{{{len(fence)},}}+[ \t]*+$", re.MULTILINE)
    ends = [match.start() for match in closing.finditer(text, opening.end())] or [len(text)]
    tries = max(2, MAX_TRIED // len(text))
    for end in ends[: -tries - 1 : -1]:
        body = text[opening.end() : end]
        if parse(_dedented(body)) is not None:
            return _only(body, text[end:])
    return _only(text[opening.end() : ends[0]], text[ends[0] :])


def _only(body: str, rest: str) -> str:
    """Return the only block of a text. Raise ScriptError for two blocks, because running the first would be a guess."""
    if FENCE.search(rest.partition("\n")[2]):
        raise ScriptError("there are several fenced blocks; send the code as one")
    return body


def _dedented(code: str) -> str:
    """Dedent code that is indented as a whole. Lines inside strings are unchanged."""
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
    """Return the lines that begin inside a string."""
    strings = {
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
    }
    return {line for first, last in strings for line in range(first + 1, last + 1)}


# Scanning code

# With these, code can create names that its tree does not show.
MAKING_NAMES = frozenset({"exec", "eval", "globals", "setattr", "__import__"})
_NAME_OF = {
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
    ast.arg: "arg",
    ast.ExceptHandler: "name",
    ast.MatchAs: "name",
    ast.MatchStar: "name",
    ast.MatchMapping: "rest",
}


class CodeScan:
    """The tree of some code and facts about it. `tree` is None if only the sandbox can parse the code."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.places = NodePositions(code)
        self.tree = parse(code)
        self.calls: list[ast.Call] = []
        self.assignments: list[ast.Assign] = []
        self.attributes: list[ast.Attribute] = []
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.used: set[str] = set()
        self.bound: Counter[str] = Counter()  # in any scope, and how often; imports are separate
        self.awaits: list[ast.Await] = []
        self.coroutines: set[str] = set()  # names of async functions
        self._nodes = nodes = [] if self.tree is None else list[ast.AST]((self.tree,))
        for node in nodes:  # which grows during the loop
            self._note(node)
            for field in node._fields:
                value = getattr(node, field, None)
                if type(value) is list:
                    nodes += [child for child in value if isinstance(child, ast.AST)]
                elif isinstance(value, ast.arguments) or (isinstance(value, ast.AST) and value._attributes):
                    nodes.append(value)  # nodes without a position are operators and contexts like Add and Load

    def _note(self, node: ast.AST) -> None:
        kind = type(node)
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                self.used.add(node.id)
            else:
                self.bound[node.id] += 1
        elif isinstance(node, ast.Call):
            self.calls.append(node)
        elif isinstance(node, ast.Attribute):
            self.attributes.append(node)
        elif isinstance(node, ast.Assign):
            self.assignments.append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self.imports.append(node)
        elif kind in _NAME_OF:
            if name := getattr(node, _NAME_OF[kind]):
                self.bound[name] += 1
            if isinstance(node, ast.AsyncFunctionDef):
                self.coroutines.add(node.name)
        elif isinstance(node, ast.Await):
            self.awaits.append(node)

    @cached_property
    def imported(self) -> dict[str, str]:
        """The names that imports bind and their targets: `np` is `numpy`, `mean` is `statistics.mean`."""
        targets: dict[str, str] = {}
        for node in self.imports:
            for alias in node.names:
                if isinstance(node, ast.ImportFrom):
                    targets[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                else:
                    targets[alias.asname or alias.name.partition(".")[0]] = alias.name
        return targets

    @property
    def modules(self) -> set[str]:
        """The imported modules, up to their first dot."""
        return {name.partition(".")[0] for name in self.imported.values()}

    @cached_property
    def makes_names(self) -> bool:
        """Whether there may be names that the tree does not show."""
        return "*" in self.imported or not MAKING_NAMES.isdisjoint(self.used)

    @cached_property
    def futures(self) -> set[Span]:
        """The positions of calls that are answered with a future."""
        if not (self.awaits or "asyncio" in self.modules):
            return set()
        awaited = awaited_calls(self._nodes, self.imported)
        return {self.places.of(call) for call in self.calls if id(call) in awaited}


# Names that code uses


class UsedNames(NamedTuple):
    """The names that code uses and does not define."""

    names: set[str]  # including names in string literals
    packs: set[str]  # names before a dot, in code and in the tool names of `ot.call`


def names_used_in(code: str) -> UsedNames | None:
    """Return the names that code uses but does not define; None if it can't be parsed."""
    try:
        scan = CodeScan(read(code))
    except ScriptError:
        return None
    if scan.tree is None:
        return None
    texts = [
        node.value for node in ast.walk(scan.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    modules = scan.modules - {"__future__"}
    free = modules | (scan.used - scan.bound.keys() - scan.imported.keys())
    packs = {node.value.id for node in scan.attributes if isinstance(node.value, ast.Name)} & free
    for call in scan.calls:
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="ot"), attr="call"), args=[ast.Constant(value=str(name)), *_]
            ):
                packs.add(name.partition(".")[0])
            case _:
                pass
    return UsedNames(free | {text.partition(".")[0] for text in texts}, packs | modules)


# Places of errors, for editors

MAX_MESSAGE = 290  # characters of an error message


class CodePlace(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A range in the code. Lines and columns begin at 1; columns count characters, and the end is exclusive."""

    line: Annotated[int, Meta(description="In the text that was sent, from 1.")]
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


class CodeFault(CodePlace, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An error in code, with its place."""

    message: str

    @classmethod
    def at(cls, message: str, place: CodePlace | None, line: int) -> "CodeFault":
        message = cut(message, MAX_MESSAGE)
        return cls(message=message, **({"line": line} if place is None else msgspec.structs.asdict(place)))


class CodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about code before it runs: its errors, and the tools that it calls."""

    errors: Annotated[list[CodeFault], Meta(description="Errors found without running the code.")] = []
    calls: Annotated[list[str], Meta(description="The tools that the code calls, as far as known.")] = []


def place_of_lines(code: str, first: int, last: int) -> CodePlace:
    """Return the place of whole lines, without the indentation of the first one."""
    lines = code.split("\n")
    if not 0 < first <= last <= len(lines) or not (text := lines[first - 1].rstrip()):
        return CodePlace(line=first)
    column = len(text) - len(text.lstrip()) + 1
    return CodePlace(line=first, column=column, end_line=last, end_column=len(lines[last - 1].rstrip()) + 1)


def place_of_node(code: str, node: ast.expr | ast.stmt) -> CodePlace:
    lines, last = code.split("\n"), node.end_lineno or node.lineno
    return CodePlace(
        line=node.lineno,
        column=_column(lines[node.lineno - 1], node.col_offset),
        end_line=last,
        end_column=_column(lines[last - 1], node.end_col_offset or 0),
    )


def place_of_syntax_error(code: str, error: SyntaxError) -> CodePlace | None:
    if not error.lineno:
        return None
    if not error.offset or error.offset < 1:
        return place_of_lines(code, error.lineno, error.lineno)
    end_line, end_column = error.end_lineno or error.lineno, error.end_offset or 0
    if (end_line, end_column) <= (error.lineno, error.offset):  # the error has no end
        end_line, end_column = error.lineno, error.offset + 1
    return CodePlace(line=error.lineno, column=error.offset, end_line=end_line, end_column=end_column)


def in_sent_text(text: str, code: str, place: CodePlace) -> CodePlace | None:
    """Return the place in the text that was sent, given the place in the code taken from it."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if text == code:
        return place
    at = text.find(code)
    if at >= 0 and (at == 0 or text[at - 1] == "\n"):
        lines = text.count("\n", 0, at)
        end = None if place.end_line is None else place.end_line + lines
        return msgspec.structs.replace(place, line=place.line + lines, end_line=end)
    if text.count("\n") == code.count("\n"):  # indentation was removed
        return place_of_lines(text, place.line, place.line)
    return None


def _column(line: str, offset: int) -> int:
    """Return the column, from 1, for an offset in UTF-8 bytes, which Python's parser counts."""
    return len(line.encode()[:offset].decode(errors="ignore")) + 1
