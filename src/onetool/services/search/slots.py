"""What the index is made of: numbered words that are completed and corrected, and keys with the tools that have them.

Tools go by *slots*, small numbers. Most of what is known comes from a file, is read there, and is not changed; what has
changed since stands beside it. Most keys belong to one tool: then the slot itself stands there, not a list of one.
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec import Struct

from onetool.services.search.frozen import (
    NO_NUMBERS,
    NO_TEXTS,
    NumberLists,
    SavedNumbers,
    SavedTexts,
    SortedTexts,
    saved_numbers,
    saved_texts,
)

NO_SLOTS: Sequence[int] = ()

FEW = 64  # new words that are put in one by one; more are sorted with all others


class SortedWords:
    """Words in their order, each once: who adds one knows that it is new. It is put in its place when somebody asks."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._new: list[str] = []

    def add(self, word: str) -> None:
        self._new.append(word)

    def discard(self, word: str) -> None:
        words = self._settled()
        at = bisect_left(words, word)
        if at < len(words) and words[at] == word:
            del words[at]

    def with_prefix(self, start: str) -> list[str]:
        """Also the word itself."""
        words = self._settled()
        return words[bisect_left(words, start) : bisect_right(words, start + "\U0010ffff")] if start else words

    def _settled(self) -> list[str]:
        if self._new:
            if len(self._new) <= FEW:
                for word in self._new:
                    insort(self._words, word)
            else:
                self._words += self._new
                self._words.sort()
            self._new = []
        return self._words


# Words, and those that were begun or mistyped


MOST_BEGUN = 24  # the shortest first: they are nearest to what was typed
MOST_CLOSE = 3
MOST_FOUND = 4096  # words of the file whose numbers are remembered
SHORTEST_MISTYPED = 4  # one wrong letter in three could be any word
LONGEST_MISTYPED = 32
TWO_MISTAKES = 7  # letters from which two mistakes still leave a word recognisable


def can_be_mistyped(word: str) -> bool:
    """Whether mistakes in it can be told from other words."""
    return SHORTEST_MISTYPED <= len(word) <= LONGEST_MISTYPED and word.isalpha()


class SavedVocabulary(Struct, array_like=True, frozen=True):
    """A Vocabulary, for a file: its words in their order; and those that a mistyped word may mean, a line each."""

    words: SavedTexts = NO_TEXTS
    plain: bytes = b""


class Begun(NamedTuple):
    """The numbers of words that begin with something."""

    kept: range  # of the file's; some of them may be gone
    new: list[int]


class Vocabulary:
    """Words by number. Those of a file have the numbers of their order in it; new ones have greater ones."""

    def __init__(self, saved: SavedVocabulary | None = None) -> None:
        saved = saved or SavedVocabulary()
        self._kept, self._kept_plain = SortedTexts(saved.words), saved.plain
        self.kept = len(self._kept)  # the numbers below are those of the file
        self._gone: set[int] = set()  # of those
        self._found: dict[str, int] = {}  # of those: the ones that were asked for
        self._numbers: dict[str, int] = {}  # of new ones
        self._texts: list[str] = []  # of these
        self._free: list[int] = []  # numbers of new ones that are gone
        self._sorted = SortedWords()  # the same in their order
        self._by_length: dict[int, SortedWords] | None = None  # those that a mistyped word may mean

    def number(self, word: str) -> int | None:
        if (found := self._numbers.get(word)) is not None or not self.kept:
            return found
        found = self._find(word)
        return None if found in self._gone else found

    def _find(self, word: str) -> int | None:
        """In the file. Common words are asked for again and again where many tools change."""
        found = self._found.get(word)
        if found is None and (found := self._kept.find(word)) is not None:
            if len(self._found) >= MOST_FOUND:
                self._found.clear()
            self._found[word] = found
        return found

    def text(self, number: int) -> str:
        return self._kept[number] if number < self.kept else self._texts[number - self.kept]

    def add(self, word: str) -> int:
        """Its number. Who adds it knows that it is not there."""
        number = self._find(word) if self.kept else None
        if number is None:
            number = self._numbers[word] = self._new_number(word)
            self._sorted.add(word)
        else:
            self._gone.discard(number)
        if word.isalpha() and self._by_length is not None:
            self._by_length.setdefault(len(word), SortedWords()).add(word)
        return number

    def _new_number(self, word: str) -> int:
        if not self._free:
            self._texts.append(word)
            return self.kept + len(self._texts) - 1
        number = self._free.pop()
        self._texts[number - self.kept] = word
        return number

    def discard(self, number: int) -> None:
        """Its number may be given to another word: nobody keeps it."""
        word = self.text(number)
        if number < self.kept:
            self._gone.add(number)
        else:
            del self._numbers[word]
            self._free.append(number)
            self._sorted.discard(word)
        if word.isalpha() and self._by_length is not None:
            self._by_length[len(word)].discard(word)

    def in_order(self) -> list[tuple[str, int]]:
        """All words with their numbers, in the order of the words."""
        kept = ((word, number) for number, word in enumerate(self._kept) if number not in self._gone)
        return sorted(chain(kept, self._numbers.items()))

    def begun(self, start: str) -> Begun:
        """The words that start so. Also the word itself."""
        new = self._sorted.with_prefix(start) if self._numbers else ()
        return Begun(self._kept.begun(start), [self._numbers[word] for word in new])

    def containing(self, part: str) -> Iterator[int]:
        """Words that have it inside."""
        kept = (number for number in self._kept.containing(part) if number not in self._gone)
        return chain(kept, (number for word, number in self._numbers.items() if part in word))

    def lengths(self, numbers: Begun) -> Iterator[tuple[int, int]]:
        """Numbers of words, and how many characters each has."""
        kept = zip(numbers.kept, self._kept.lengths(numbers.kept), strict=True)
        new = ((number, len(self.text(number))) for number in numbers.new)
        return chain((one for one in kept if one[0] not in self._gone) if self._gone else kept, new)

    def longer(self, start: str) -> list[str]:
        """The words that start so, and go on: the shortest ones."""
        found = [one for one in self.lengths(self.begun(start)) if one[1] > len(start)]
        if len(found) > MOST_BEGUN:
            longest = sorted(length for _, length in found)[MOST_BEGUN - 1]
            found = [one for one in found if one[1] <= longest]
        return sorted(map(self.text, (number for number, _ in found)), key=lambda word: (len(word), word))[:MOST_BEGUN]

    def close(self, word: str) -> list[str]:
        """The words with the fewest mistakes in typing, which seldom hit the first letter."""
        return self._closest(word, word[:1])

    def close_with_any_start(self, word: str) -> list[str]:
        """The same, with the first letter open too. Slower: every word of about this length is compared."""
        return self._closest(word, "")

    def near(self, word: str) -> dict[str, int]:
        """All words that differ by mistakes in typing, each with how many."""
        found = self._compared(word, "", None)
        return {known: mistakes for known, mistakes in found if mistakes}

    def _closest(self, word: str, start: str) -> list[str]:
        found = self._compared(word, start, MOST_CLOSE)
        return [known for known, mistakes in found if mistakes == found[0][1]]

    def _compared(self, word: str, start: str, most: int | None) -> list[tuple[str, int]]:
        """With the words that begin with `start`. A swap of neighbours is one mistake."""
        if not can_be_mistyped(word):
            return []
        mistakes = 2 if len(word) >= TWO_MISTAKES else 1
        lengths = range(max(len(word) - mistakes, SHORTEST_MISTYPED), len(word) + mistakes + 1)
        plain = self._plain()
        alike = (plain[length].with_prefix(start) for length in lengths if length in plain)
        candidates = list(chain.from_iterable(alike))
        if not candidates:
            return []
        from rapidfuzz.distance import OSA  # only a mistake needs it, and most queries have none
        from rapidfuzz.process import extract

        found = extract(word, candidates, scorer=OSA.distance, score_cutoff=mistakes, limit=most)
        return [(known, int(distance)) for known, distance, _ in found]

    def _plain(self) -> dict[int, SortedWords]:
        """By their length. They are read when somebody first mistypes."""
        if self._by_length is None:
            kept = str(self._kept_plain, "utf-8").splitlines()
            gone = {self.text(number) for number in self._gone}
            self._by_length = {}
            for word in chain((one for one in kept if one not in gone), filter(str.isalpha, self._numbers)):
                self._by_length.setdefault(len(word), SortedWords()).add(word)
        return self._by_length


def saved_vocabulary(words: Sequence[str]) -> SavedVocabulary:
    """Of these, which are in their order."""
    return SavedVocabulary(saved_texts(words), "\n".join(filter(str.isalpha, words)).encode())


# Keys with their tools


Renumbered = Callable[[int], int | None]
"""The slot that a slot becomes in a file; None if it is left out."""


class SavedSlots(Struct, array_like=True, frozen=True):
    """A SlotMap, for a file: its keys, and the slots of each."""

    keys: SavedVocabulary = SavedVocabulary()
    slots: SavedNumbers = NO_NUMBERS


class SlotMap:
    """Key -> the slots that have it, in order."""

    def __init__(self, saved: SavedSlots | None = None) -> None:
        saved = saved or SavedSlots()
        self.keys = Vocabulary(saved.keys)
        self._kept = NumberLists(saved.slots)
        self._changed: dict[int, int | array[int]] = {}  # by number of key: what counts instead of the file's

    def add(self, key: str, slot: int) -> int:
        """The number of the key."""
        number = self.keys.number(key)
        if number is None:
            number = self.keys.add(key)
            self._changed[number] = slot
            return number
        held = self._changed.get(number)
        if held is None:
            held = self._changed[number] = self._kept[number]
        if isinstance(held, int):
            if held != slot:
                self._changed[number] = array("I", sorted((held, slot)))
        elif slot > held[-1]:
            held.append(slot)
        elif held[at := bisect_left(held, slot)] != slot:
            held.insert(at, slot)
        return number

    def discard(self, key: str, slot: int) -> None:
        number = self.keys.number(key)
        if number is None:
            return
        held = self._changed.get(number)
        if held is None:
            held = self._kept[number]
        if isinstance(held, int):
            held = array("I", (held,))
        if (at := bisect_left(held, slot)) == len(held) or held[at] != slot:
            return
        del held[at]
        self._changed[number] = held[0] if len(held) == 1 else held
        if not held:
            self.keys.discard(number)
            if number >= self.keys.kept:
                del self._changed[number]

    def get(self, key: str) -> Sequence[int]:
        number = self.keys.number(key)
        return NO_SLOTS if number is None else self.of(number)

    def of(self, number: int) -> Sequence[int]:
        held = self._changed.get(number)
        if held is None:
            return self._kept[number]
        return (held,) if isinstance(held, int) else held

    def having(self, keys: Iterable[str]) -> set[int]:
        """All slots that have one of them."""
        return set[int]().union(*map(self.get, keys))

    def having_begun(self, start: str) -> set[int]:
        """All slots that have a key which starts so."""
        kept, new = self.keys.begun(start)
        found, at = set[int](), kept.start
        for number in sorted(number for number in self._changed if number in kept):
            found.update(self._kept.between(at, number), self.of(number))
            at = number + 1
        return found.union(self._kept.between(at, kept.stop), *map(self.of, new))

    def saved(self, renumbered: Renumbered) -> SavedSlots:
        keys, held = list[str](), list[list[int]]()
        for key, number in self.keys.in_order():
            slots = [slot for one in self.of(number) if (slot := renumbered(one)) is not None]
            if slots:
                keys.append(key)
                held.append(sorted(slots))
        return SavedSlots(saved_vocabulary(keys), saved_numbers(held))
