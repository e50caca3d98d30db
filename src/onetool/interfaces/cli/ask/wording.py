"""Writes tool calls, their arguments and their outcomes as lines for a terminal.

The arguments that a user approves must not be able to imitate the prompt. Every line of a value starts with a bar,
and none is longer than the terminal is wide. For very long values, the beginning, the end and the number of omitted
characters are shown. Invisible characters are escaped (`\\u202e`), and words that mix alphabets are marked.
"""

import json
import re
from collections.abc import Iterator, Mapping
from io import StringIO
from itertools import islice
from typing import Any, NamedTuple
from unicodedata import east_asian_width

from onetool.core.call import ToolCall, ToolResult
from onetool.core.errors import cut
from onetool.core.text import escape_invisible, suspicious_words
from onetool.interfaces.cli.output import counted, printable
from onetool.services.journal.formatting import duration

BAR = "    | "
NARROWEST = 20  # columns; lines may wrap in a narrower terminal
MAX_LINES = 20  # of one value; of a longer value …
HEAD, TAIL = 12, 6  # … the first and last lines
MAX_TOTAL_LINES = 60
MAX_MARKED_WORDS = 5  # words of one argument that are pointed out
MARK = "  ! "


class ArgLines(NamedTuple):
    lines: list[str]
    is_whole: bool


def argument_lines(args: Mapping[str, Any], columns: int, *, whole: bool = False) -> ArgLines:
    """Return the arguments as lines for a terminal with `columns` columns; `whole` omits nothing."""
    width = max(NARROWEST, columns - 1)  # some terminals wrap in the last column
    lines: list[str] = []
    is_whole = True
    for place, (name, value) in enumerate(args.items()):
        if len(lines) >= MAX_TOTAL_LINES and not whole:
            lines.append(f"  … and {counted(len(args) - place, 'further argument')}, not shown here")
            return ArgLines(lines, False)
        one = _one_argument(name, value, width, whole)
        lines += one.lines
        is_whole = is_whole and one.is_whole
    return ArgLines(lines or ["  (no arguments)"], is_whole)


def _one_argument(name: str, value: Any, width: int, whole: bool) -> ArgLines:
    title = escape_invisible(name).replace("\n", " ")
    has_lines = isinstance(value, str) and "\n" in value
    written = value if has_lines else json.dumps(value, ensure_ascii=False, default=str)
    text, marks = escape_invisible(written), marked(f"{name} {written}", width)
    if len(text) <= width and not has_lines and _cells(line := f"  {title}: {text}") <= width:
        return ArgLines([line, *marks], True)
    if _cells(title) > width // 2:
        title, text = "(argument with a long name)", f"{title}: {text}"
    lines, is_whole = _value_lines(text, width - len(BAR), whole)
    return ArgLines([f"  {title}:", *lines, *marks], is_whole)


def marked(text: str, width: int) -> list[str]:
    """Return a line for each word that could be mistaken for another."""
    return [_fitting(f"{MARK}{remark}", width) for remark in suspicious_words(text, MAX_MARKED_WORDS)]


def _value_lines(text: str, width: int, whole: bool) -> ArgLines:
    pieces = list(_pieces(text, width) if whole else islice(_pieces(text, width), MAX_LINES + 1))
    if whole or len(pieces) <= MAX_LINES:
        return ArgLines([BAR + piece for _, piece in pieces], True)
    start = max(pieces[HEAD][0], len(text) - TAIL * width)
    end = list(_pieces(text[start:], width))[-TAIL:]
    left_out = f"    … {counted(start + end[0][0] - pieces[HEAD][0], 'character')} of {len(text):,} are not shown here"
    return ArgLines([*(BAR + piece for _, piece in pieces[:HEAD]), left_out, *(BAR + piece for _, piece in end)], False)


def _pieces(text: str, width: int) -> Iterator[tuple[int, str]]:
    """Yield pieces of the text that fit into a line, each after its position in the text."""
    begin = 0
    for line in StringIO(text):
        ended = line.removesuffix("\n")
        at = 0
        while at < len(ended) or at == 0:
            piece = _fitting(ended[at : at + width], width)
            yield begin + at, piece
            at += len(piece) or 1
        begin += len(line)


def _fitting(text: str, width: int) -> str:
    while _cells(text) > width:
        text = text[: -max(1, (_cells(text) - width) // 2)]
    return text


def _cells(text: str) -> int:
    """Return the display width in columns; ambiguous characters count as wide."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(sign) in "WFA" else 1 for sign in text)


# One-line summaries of calls and outcomes

MAX_ARGUMENTS_LENGTH = 60  # characters
MAX_NAME_LENGTH = 80  # a model may invent a name of any length
MAX_ERROR_LENGTH = 120

# Tabs, spaces of other widths, and joiners of letters and emoji are harmless, and needed by many languages.
_HARMFUL = re.compile("[^\t\u00a0\u00ad\u2000-\u200a\u200c\u200d\u202f\u205f\u3000]+")


def readable(text: str) -> str:
    """Return a model's text without characters that could harm a terminal."""
    return _HARMFUL.sub(lambda found: printable(found[0]), text.replace("\r", ""))


def call_line(call: ToolCall) -> str:
    """Return a call with shortened arguments: `fs.read_file(path="a.txt")`."""
    values = {name: json.dumps(value, ensure_ascii=False, default=str) for name, value in call.args.items()}
    given = ", ".join(f"{name}={value}" for name, value in values.items())
    return escape_invisible(f"{cut(call.name, MAX_NAME_LENGTH)}({cut(given, MAX_ARGUMENTS_LENGTH)})").replace("\n", " ")


def outcome_line(result: ToolResult, is_cached: bool) -> tuple[str, bool]:
    """Return the outcome as text, and whether the call succeeded."""
    if result.error is not None:
        first = result.error.message.strip().partition("\n")[0]
        return f"failed: {cut(printable(first), MAX_ERROR_LENGTH)}", False
    if is_cached:
        return "ok, as before", True
    return f"ok, {duration(result.meta.get('duration_ms', 0.0))}", True
