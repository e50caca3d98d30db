"""A stored text as a file: the text in UTF-8 and, where it is large, an index: no page needs the rest of the text.

The index is all numbers of 8 bytes: of each piece of the text the line that it begins in, then of each the column in
that line, then of each the byte where it starts, then how many bytes, lines and pieces there are. Last comes the file's
seal, which its name is made of. Nobody could know it who made the text: so a text that ends like an index is still a
text. What has no seal, a small result or one of an older version, is read as a whole.
"""

from array import array
from os import SEEK_END
from typing import BinaryIO

from onetool.services.results.lines import Lines, Position, in_memory, pieces

SMALL = 1024 * 1024  # bytes that are read as a whole in no time
SEAL = 16
_ENDING = 3 * 8 + SEAL


def bytes_of(text: str) -> int:
    """Its size in UTF-8, without a second copy of it."""
    return len(text) if text.isascii() else sum(len(_encoded(piece)) for piece in pieces(text))


def write(stream: BinaryIO, text: str, seal: bytes) -> tuple[int, int]:
    """Write it piece by piece. Returns the size of the file, and the text's lines."""
    firsts, columns, starts, size, position = array("Q"), array("Q"), array("Q"), 0, Position()
    for piece in pieces(text):
        data = _encoded(piece)
        stream.write(data)
        firsts.append(position.line)
        columns.append(position.column)
        starts.append(size)
        position.go_past(piece)
        size += len(data)
    if size <= SMALL:
        return size, position.total
    facts = array("Q", [size, position.total, len(starts)])
    index = b"".join(numbers.tobytes() for numbers in (firsts, columns, starts, facts)) + seal
    stream.write(index)
    return size + len(index), position.total


class StoredText:
    """One that is open for reading. OSError and UnicodeDecodeError, where the file is not as it was written."""

    def __init__(self, stream: BinaryIO, seal: bytes) -> None:
        self._stream = stream
        self.size = stream.seek(0, SEEK_END)
        self._lines = self._indexed(seal)

    def read(self) -> str:
        """All of it."""
        return self._decoded(0, self.size)

    def lines(self) -> Lines:
        return self._lines or in_memory(self.read())

    def _indexed(self, seal: bytes) -> Lines | None:
        """The lines by way of the index, where there is one; then `size` is the text's, no longer the file's."""
        end = self.size - _ENDING
        if self.size <= SMALL or (ending := self._bytes(end, self.size))[-SEAL:] != seal:
            return None
        self.size, total, count = array("Q", ending[:-SEAL])
        if self.size + 3 * count * 8 != end:
            raise OSError("its index is broken")
        numbers = array("Q", self._bytes(self.size, end))
        firsts, columns, starts = numbers[:count], numbers[count : 2 * count], numbers[2 * count :]
        starts.append(self.size)
        return Lines(firsts, columns, total, lambda number: self._decoded(starts[number], starts[number + 1]))

    def _decoded(self, start: int, end: int) -> str:
        return self._bytes(start, end).decode("utf-8", "surrogatepass")

    def _bytes(self, start: int, end: int) -> bytes:
        self._stream.seek(start)
        data = self._stream.read(end - start)
        if len(data) != end - start:
            raise OSError("a part of it is missing")
        return data


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
