"""The lines of a text, as they are counted here: what an editor shows, and a line that is too long as several."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

LONGEST_LINE = 2_000
PIECE = 32 * LONGEST_LINE  # characters


def lines_of(text: str) -> list[str]:
    """The lines of a text. One that is too long comes as several: it could not be had in parts otherwise."""
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    if max(map(len, lines), default=0) <= LONGEST_LINE:
        return lines
    return [line[start : start + LONGEST_LINE] for line in lines for start in range(0, max(len(line), 1), LONGEST_LINE)]


def count_of(text: str) -> int:
    """How many lines these are. Where none is too long they need not be made to be counted."""
    start = 0
    while len(text) - start > LONGEST_LINE:
        start = text.rfind("\n", start, start + LONGEST_LINE + 1) + 1
        if not start:
            return len(lines_of(text))
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def pieces(text: str) -> Iterator[str]:
    """The text, cut where lines begin: the lines of the pieces are the lines of the text."""
    start = 0
    while len(text) - start > PIECE:
        # Two characters further: where the piece ends, there must be neither "\n" nor "\r\n", for they begin no line.
        end = text.rfind("\n", start, start + PIECE + 2) + 1 or start + PIECE
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


class Lines:
    """The lines of a text, wherever it is: `load` gives a piece of it, `firsts` are the lines that they begin with."""

    def __init__(self, firsts: Sequence[int], total: int, load: Callable[[int], str]) -> None:
        self.total = total
        self._firsts = firsts
        self._load = load

    def since(self, line: int) -> Iterator[str]:
        """The lines from this one on; the first is 0."""
        if line >= self.total:
            return
        number = bisect_right(self._firsts, line) - 1
        yield from lines_of(self._load(number))[line - self._firsts[number] :]
        for later in range(number + 1, len(self._firsts)):
            yield from lines_of(self._load(later))

    def pieces(self) -> Iterator[tuple[int, str]]:
        """All of the text, each piece with the number of its first line."""
        for number, first in enumerate(self._firsts):
            yield first, self._load(number)


def in_memory(text: str) -> Lines:
    texts = list(pieces(text))
    firsts = [0]
    for piece in texts:
        firsts.append(firsts[-1] + count_of(piece))
    total = firsts.pop()
    return Lines(firsts, total, texts.__getitem__)
