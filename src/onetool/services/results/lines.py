"""The lines of a text, as an editor counts them, read piece by piece.

A piece ends where a line does, unless that line is longer than a piece: then it goes on in the next ones.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

PIECE = 64_000  # characters
LONG = 16 * PIECE  # a line of more characters is never searched as a whole


def lines_of(text: str) -> list[str]:
    """The lines of a text. The line break at its end begins no further line."""
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def count_of(text: str) -> int:
    """How many lines these are."""
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def pieces(text: str) -> Iterator[str]:
    """The text, cut after the last line break that a piece has room for."""
    start = 0
    while len(text) - start > PIECE:
        # Two characters further: where the piece ends, there must be neither "\n" nor "\r\n", for they begin no line.
        end = text.rfind("\n", start, start + PIECE + 2) + 1 or start + PIECE
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


class Position:
    """Where a piece begins: its line and the column in that line. Both count from 0."""

    def __init__(self) -> None:
        self.line = 0
        self.column = 0
        self.total = 0  # lines so far; one that is not at its end counts

    def go_past(self, piece: str) -> None:
        breaks = piece.count("\n")
        self.line += breaks
        self.column = len(piece) - piece.rfind("\n") - 1 if breaks else self.column + len(piece)
        self.total = self.line + (self.column > 0)


class Chunk(NamedTuple):
    """Some whole lines, or a part of one that is very long."""

    first: int
    text: str
    is_part: bool


class Lines:
    """The lines of a text, wherever it is: `load` gives a piece of it, `firsts` and `columns` are where each begins."""

    def __init__(self, firsts: Sequence[int], columns: Sequence[int], total: int, load: Callable[[int], str]) -> None:
        self.total = total
        self._firsts = firsts
        self._columns = columns
        self._load = load

    def since(self, line: int, column: int = 0, longest: int | None = None) -> Iterator[str]:
        """The lines from this one on, the first of them from that column on; both count from 0.

        Of a line with more than `longest` characters at least so many come, and what follows them is not read.
        """
        if line >= self.total:
            return
        places = range(len(self._firsts))
        number = bisect_right(places, (line, column), key=lambda at: (self._firsts[at], self._columns[at])) - 1
        skipped = line - self._firsts[number]
        before = column if skipped else column - self._columns[number]
        lines = islice(self._joined(number, None if longest is None else longest + before), skipped, None)
        yield next(lines)[before:]
        yield from lines

    def _joined(self, number: int, longest: int | None) -> Iterator[str]:
        """The lines from a piece on. The first may be the rest of a line."""
        parts: list[str] = []
        is_told = False  # the line was long enough, and the rest of it is skipped
        for later in range(number, len(self._firsts)):
            *ended, rest = self._load(later).split("\n")
            for text in ended:
                if not is_told:
                    yield "".join((*parts, text)).removesuffix("\r")
                parts, is_told = [], False
            if rest and not is_told:
                parts.append(rest)
                if longest is not None and sum(map(len, parts)) >= longest:
                    is_told = True
                    yield "".join(parts)
        if parts and not is_told:
            yield "".join(parts)

    def chunks(self) -> Iterator[Chunk]:
        """All of the text in whole lines; a line of more than LONG characters in parts that overlap by a piece."""
        held: list[str] = []
        is_part = False
        for number, first in enumerate(self._firsts):
            held.append(self._load(number))
            goes_on = number + 1 < len(self._firsts) and self._columns[number + 1] > 0
            if not goes_on:
                yield from _ended(first, "".join(held), is_part)
                held, is_part = [], False
            elif sum(map(len, held)) > LONG:
                yield Chunk(first, "".join(held), is_part=True)
                held, is_part = held[-1:], True


def _ended(first: int, text: str, is_part: bool) -> Iterator[Chunk]:
    """The end of a chunk. After the last part of a long line there may be other lines in the same piece."""
    if not is_part:
        yield Chunk(first, text, is_part=False)
        return
    part, _, others = text.partition("\n")
    yield Chunk(first, part.removesuffix("\r"), is_part=True)
    if others:
        yield Chunk(first + 1, others, is_part=False)


def in_memory(text: str) -> Lines:
    texts, firsts, columns, position = list(pieces(text)), list[int](), list[int](), Position()
    for piece in texts:
        firsts.append(position.line)
        columns.append(position.column)
        position.go_past(piece)
    return Lines(firsts, columns, position.total, texts.__getitem__)
