"""Records the line where an error was first raised, in cases where the sandbox loses it.

An error that code catches loses its traceback in the sandbox, and code that raises it again (`finally`, `with`,
`raise`, an `except` that does not match) gives it the traceback of another line. So each statement whose errors may be
affected is put into a `try`,

    try:
     x = y / 0
    except BaseException as __onetool_error: <record the error and this line, unless already recorded>; raise

which costs nothing until an error is raised. Added lines end with a carriage return, which ends a line for every Python
parser, but does not count in the line numbers of the sandbox.
"""

import ast
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from zlib import crc32

import msgspec

from onetool.sandbox import CodeError
from onetool.script.parse import CodeScan, Edit, Span, edited, string_lines

ERROR = "__onetool_error"
LONG_STRING = re.compile(r"'{3}|\"{3}|\\\n")  # only these continue a string on the next line
MAX_NOTE = 1000  # characters of an error's text to compare
MAX_NOTED_CODE = 50_000  # characters of code
MAX_ADDED = 500_000  # characters of added code: many short statements grow fortyfold
MAX_TRY_DEPTH = 20  # nested blocks: each `try` adds a level, and the sandbox has a limit
_LOSING = (ast.Try, ast.With)  # statements in which an error loses its line
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_HARMLESS = (ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Nonlocal)


class TracedCode(msgspec.Struct, frozen=True, kw_only=True):
    """Code that records the lines of its errors, and the expression that reads them."""

    code: str
    futures: frozenset[Span]
    note: str  # the variable with the recorded error and its line
    lines: tuple[Span, ...]  # first and last lines of the watched statements

    @property
    def question(self) -> str:
        """An expression for the recorded line and the beginning of the error's text. Uses no name that code can
        rebind.
        """
        return f'[{self.note}[1], f"{{{self.note}[0]}}"[:{MAX_NOTE}]]'

    def may_be_wrong(self, error: CodeError, feed: str) -> bool:
        """Return whether the line reported by the sandbox may be wrong."""
        own = [frame.line for frame in error.trace if frame.filename == feed]
        return bool(own) and any(first <= own[-1] <= last for first, last in self.lines)

    def line(self, answer: object, error: CodeError) -> int | None:
        """Return the line if the recorded error is this one."""
        message = error.message
        match answer:
            # The text of a KeyError is the repr of its key.
            case [int(line), str(text)] if line and text in (message[:MAX_NOTE], repr(message)[:MAX_NOTE]):
                return line
            case _:
                return None


def traced_code(scan: CodeScan) -> TracedCode | None:
    """Return the watched code of a scan; None if no error in it loses its line, or the code is too long.

    The sandbox may still refuse the result, because functions can become too large. In that case, the original code is
    fed.
    """
    if scan.tree is None or not scan.loses_lines or len(scan.code) > MAX_NOTED_CODE or "__future__" in scan.code:
        return None
    note = f"__onetool_{crc32(scan.code.encode()):08x}"  # differs for each piece of code of a session
    in_strings = string_lines(scan.tree) if LONG_STRING.search(scan.code) else set[int]()
    watch = _Watch(scan.code, in_strings, note)
    watch.block(scan.tree.body, 0, 1, watching=False)
    if watch.too_deep:
        return None
    edits = sorted(watch.edits())
    if sum(len(edit.text) for edit in edits) > MAX_ADDED:
        return None
    places = [edit.start for edit in edits]
    added = [0, *accumulate(len(edit.text.encode()) for edit in edits)]
    futures = frozenset(
        (start + added[bisect_right(places, start)], end + added[bisect_left(places, end)])
        for start, end in scan.futures
    )
    return TracedCode(code=edited(scan.code, edits), futures=futures, note=note, lines=tuple(watch.lines))


def line_of(code: str, row: int) -> int:
    """Return the line number, counting line feeds only, of a row that was counted with carriage returns as line
    ends.
    """
    return "".join(re.split(r"(?<=[\r\n])", code)[: row - 1]).count("\n") + 1


class _Watch:
    """The code to add: before lines, after lines, and before a statement on the line of its block's head."""

    def __init__(self, code: str, in_strings: set[int], note: str) -> None:
        self._texts = code.encode().split(b"\n")
        self._in_strings = in_strings
        self._note = note
        self._gathers = "gather" in code
        self._before: dict[int, str] = {}
        self._within: dict[int, tuple[int, str]] = {}
        self._after: dict[int, str] = {}
        self.lines: list[Span] = []
        self.too_deep = False

    def block(self, body: list[ast.stmt], depth: int, head: int, watching: bool) -> None:
        """Watch the statements of a block, or their parts.

        `depth` is the number of `try` statements added around it.
        """
        for unit in _units(body):
            first = unit[0]
            # A docstring must stay first; the parts of the other statements are watched, or can't fail.
            is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            is_safe = all(isinstance(statement, (*_HARMLESS, *_DEFINING, ast.Try)) for statement in unit)
            wrap = (watching or isinstance(first, ast.With)) and not (is_docstring or is_safe)
            if wrap:
                self._wrap(unit, depth, head)
            if isinstance(first, _LOSING):
                self.lines.append((first.lineno, first.end_lineno or first.lineno))
            self._blocks_of(first, depth + wrap, watching)

    def _blocks_of(self, node: ast.stmt, depth: int, watching: bool) -> None:
        self.too_deep = self.too_deep or depth > MAX_TRY_DEPTH
        if isinstance(node, ast.ClassDef):
            watching = False  # names in the body become attributes of the class
        elif isinstance(node, (*_LOSING, *_DEFINING)):
            watching = True
        blocks = list(_blocks(node))
        for body, head in blocks:  # which grows with each elif
            inner = body[0]
            text = self._texts[inner.lineno - 1][inner.col_offset :]
            if isinstance(node, ast.If) and isinstance(inner, ast.If) and text.startswith(b"elif"):
                blocks += _blocks(inner)
            else:
                self.block(body, depth, head, watching)

    def _wrap(self, unit: list[ast.stmt], depth: int, head: int) -> None:
        first, start, end = unit[0], unit[0].lineno, unit[-1].end_lineno or unit[-1].lineno
        self.lines.append((start, end))
        lead = self._texts[start - 1][: first.col_offset].decode()
        for line in {*range(start + 1, end + 1)} - self._in_strings:
            if self._texts[line - 1].strip():
                self._before[line] = " " * (depth + 1)
        if lead.strip():  # the statement is on the line of its block's head
            indent = self._indentation(head) + " " * (depth + 1)
            self._within[start] = first.col_offset, f"\r{indent}try:\r{indent} "
        else:
            indent = lead + " " * depth
            self._before[start] = f"{' ' * depth}try:\r{indent} "
        # The recording code calls nothing: it must work at the recursion limit, whatever names the code rebinds.
        note = self._note
        is_noted = f"{note}[0] is {ERROR}"
        if self._gathers and _gathers(unit):  # an error that leaves a task is a new object
            is_noted += f' or f"{{{note}[0]!r}}" == f"{{{ERROR}!r}}"'
        noting = f"{note}[0], {note}[1] = {ERROR}, {note}[1] if {is_noted} else {start}"
        clause = f"\r{indent}except BaseException as {ERROR}: {noting}; raise"
        self._after[end] = clause + self._after.get(end, "")  # inner statements come later, and end before this one

    def _indentation(self, line: int) -> str:
        text = self._texts[line - 1]
        return text[: len(text) - len(text.lstrip())].decode()

    def edits(self) -> list[Edit]:
        ends = list(accumulate(len(text) + 1 for text in self._texts))
        insertions = {0: f"{self._note} = [None, 0]\r"}
        for line, (text, end) in enumerate(zip(self._texts, ends, strict=True), start=1):
            start = end - len(text) - 1
            column, within = self._within.get(line, (0, ""))
            for place, added in (
                (start + len(self._indentation(line)), self._before.get(line)),  # after the indentation, maybe tabs
                (start + column, within),
                (end - 1, self._after.get(line)),
            ):
                if added:
                    insertions[place] = insertions.get(place, "") + added
        return [Edit(place, place, text) for place, text in insertions.items()]


def _units(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Yield the statements of a block. Statements that share a line are one unit."""
    unit: list[ast.stmt] = []
    for statement in body:
        if unit and statement.lineno > (unit[-1].end_lineno or 0):
            yield unit
            unit = []
        unit.append(statement)
    if unit:
        yield unit


def _blocks(node: ast.stmt) -> Iterator[tuple[list[ast.stmt], int]]:
    """Yield the blocks of a statement, each with the line where its head begins."""
    for name in ("body", "orelse", "finalbody"):
        if body := getattr(node, name, None):
            yield body, node.lineno
    for handler in getattr(node, "handlers", ()):
        yield handler.body, handler.lineno
    for case in getattr(node, "cases", ()):
        yield case.body, case.pattern.lineno


def _gathers(unit: list[ast.stmt]) -> bool:
    if hasattr(unit[0], "body"):
        return False
    nodes = [node for statement in unit for node in ast.walk(statement)]
    return any("gather" in (getattr(node, "attr", None), getattr(node, "id", None)) for node in nodes)
