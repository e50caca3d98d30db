"""Texts as they stand in a file: one after the other, in one piece of memory. Each becomes a `str` when it is read.

100,000 strings and a dict of them take ten times the room, and a second to make. What is read here never changes: who
needs other texts keeps them beside it.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Generic, TypeVar

from msgspec import Struct

_AFTER_ALL = b"\xff"  # no UTF-8 has it


class SavedTexts(Struct, array_like=True, frozen=True):
    """Texts, for a file: where each begins, and where the last one ends; and all of them."""

    bounds: bytes
    data: bytes


def saved_texts(texts: Iterable[str]) -> SavedTexts:
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return SavedTexts(array("I", accumulate(map(len, encoded), initial=0)).tobytes(), b"".join(encoded))


NO_TEXTS = saved_texts(())


def numbers_in(data: bytes) -> "array[int]":
    found = array("I")
    found.frombytes(data)
    return found


class Texts:
    def __init__(self, saved: SavedTexts = NO_TEXTS) -> None:
        self._bounds, self._data = numbers_in(saved.bounds), saved.data
        self._is_ascii = saved.data.isascii()

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, at: int) -> str:
        return str(self._data[self._bounds[at] : self._bounds[at + 1]], "utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))


class SortedTexts(Texts):
    """In their order, each once. They go by their numbers in it."""

    def find(self, text: str) -> int | None:
        raw = text.encode("utf-8", "surrogatepass")
        at = bisect_left(range(len(self)), raw, key=self._raw)
        return at if at < len(self) and self._raw(at) == raw else None

    def begun(self, start: str) -> range:
        """Those that start so. UTF-8 has the order of its characters."""
        raw = start.encode("utf-8", "surrogatepass")
        first = bisect_left(range(len(self)), raw, key=self._raw)
        return range(first, bisect_left(range(len(self)), raw + _AFTER_ALL, first, key=self._raw))

    def containing(self, part: str) -> Iterator[int]:
        """One search in all of them is much quicker than one in each."""
        raw, data, bounds, at = part.encode("utf-8", "surrogatepass"), self._data, self._bounds, 0
        while (at := data.find(raw, at)) >= 0:
            number = bisect_right(bounds, at) - 1
            if at + len(raw) <= bounds[number + 1]:
                yield number
                at = bounds[number + 1]
            else:  # it is the end of one and the beginning of the next
                at += 1

    def lengths(self, some: range) -> list[int]:
        """How many characters each has."""
        if self._is_ascii:
            return [end - start for start, end in pairwise(self._bounds[some.start : some.stop + 1])]
        return [len(self[one]) for one in some]

    def _raw(self, at: int) -> bytes:
        return self._data[self._bounds[at] : self._bounds[at + 1]]


# By slot: what a file says, and what came since


class SavedNumbers(Struct, array_like=True, frozen=True):
    """Lists of numbers, for a file: where each begins, and where the last one ends; and all of them."""

    starts: bytes
    numbers: bytes


def saved_numbers(lists: Sequence[Sequence[int]]) -> SavedNumbers:
    starts = array("I", accumulate(map(len, lists), initial=0))
    return SavedNumbers(starts.tobytes(), array("I", chain.from_iterable(lists)).tobytes())


NO_NUMBERS = saved_numbers(())


class NumberLists:
    def __init__(self, saved: SavedNumbers = NO_NUMBERS) -> None:
        self._starts, self._numbers = numbers_in(saved.starts), numbers_in(saved.numbers)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, at: int) -> "array[int]":
        return self.between(at, at + 1)

    def between(self, first: int, end: int) -> "array[int]":
        """All of these in a row."""
        return self._numbers[self._starts[first] : self._starts[end]]


Value = TypeVar("Value")


class Overlaid(Generic[Value]):
    """By number: what a file says, and what came since."""

    def __init__(self, kept: Callable[[int], Value]) -> None:
        """`kept` reads the file."""
        self._kept = kept
        self._new: dict[int, Value] = {}

    def __getitem__(self, at: int) -> Value:
        found = self._new.get(at)
        return self._kept(at) if found is None else found

    def __setitem__(self, at: int, value: Value) -> None:
        self._new[at] = value

    def drop(self, at: int) -> None:
        """Nobody asks for it any more."""
        self._new.pop(at, None)
