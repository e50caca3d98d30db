"""Arguments of a call, for a person who decides by them.

Every line of a value begins with something of ours, and none is longer than the terminal is wide: so none can pass for
a line of ours, not even by being wrapped. Of what is very long the beginning and the end are shown, and how much that
leaves out. What can't be seen is written as what it is (`\\u202e`), and words that mix alphabets are pointed out.
"""

import json
from collections.abc import Iterator, Mapping
from io import StringIO
from itertools import islice
from typing import Any, NamedTuple
from unicodedata import east_asian_width

from onetool.core.lookalike import mixed, visible
from onetool.interfaces.cli.output import counted

BAR = "    | "
NARROWEST = 20  # columns; below that a terminal may wrap as it likes
MOST_LINES = 20  # of one value; of a longer one …
HEAD, TAIL = 12, 6  # … these
MOST_IN_ALL = 60
MOST_MIXED = 5  # words of one argument that are pointed out
MARK = "  ! "


class Shown(NamedTuple):
    lines: list[str]
    is_whole: bool


def arguments(args: Mapping[str, Any], columns: int, *, whole: bool = False) -> Shown:
    """As lines for a terminal of so many columns; with `whole` all of them, however many that are."""
    width = max(NARROWEST, columns - 1)  # in the last column some terminals wrap already
    lines: list[str] = []
    is_whole = True
    for place, (name, value) in enumerate(args.items()):
        if len(lines) >= MOST_IN_ALL and not whole:
            lines.append(f"  … and {counted(len(args) - place, 'further argument')}, not shown here")
            return Shown(lines, False)
        one = _argument(name, value, width, whole)
        lines += one.lines
        is_whole = is_whole and one.is_whole
    return Shown(lines or ["  (no arguments)"], is_whole)


def _argument(name: str, value: Any, width: int, whole: bool) -> Shown:
    title = visible(name).replace("\n", " ")
    has_lines = isinstance(value, str) and "\n" in value
    said = value if has_lines else json.dumps(value, ensure_ascii=False, default=str)
    text, marks = visible(said), marked(f"{name} {said}", width)
    if len(text) <= width and not has_lines and _cells(line := f"  {title}: {text}") <= width:
        return Shown([line, *marks], True)
    if _cells(title) > width // 2:
        title, text = "(one with a long name)", f"{title}: {text}"
    lines, is_whole = _value(text, width - len(BAR), whole)
    return Shown([f"  {title}:", *lines, *marks], is_whole)


def marked(text: str, width: int) -> list[str]:
    """A line for each word that may pass for another one: letters that look the same, of several alphabets."""
    words = islice(dict.fromkeys(islice(mixed(text), 100)), MOST_MIXED)
    return [_fitting(f"{MARK}letters of several alphabets in {word}", width) for word in words]


def _value(text: str, width: int, whole: bool) -> Shown:
    pieces = list(_pieces(text, width) if whole else islice(_pieces(text, width), MOST_LINES + 1))
    if whole or len(pieces) <= MOST_LINES:
        return Shown([BAR + piece for _, piece in pieces], True)
    start = max(pieces[HEAD][0], len(text) - TAIL * width)
    end = list(_pieces(text[start:], width))[-TAIL:]
    left_out = f"    … {counted(start + end[0][0] - pieces[HEAD][0], 'character')} of {len(text):,} are not shown here"
    return Shown([*(BAR + piece for _, piece in pieces[:HEAD]), left_out, *(BAR + piece for _, piece in end)], False)


def _pieces(text: str, width: int) -> Iterator[tuple[int, str]]:
    """Where in the text each begins, and what a terminal may show of it in a line."""
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
    """How many columns it takes, at the most: what is wide on some terminals counts as wide."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(sign) in "WFA" else 1 for sign in text)
