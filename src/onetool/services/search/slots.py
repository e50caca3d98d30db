"""What the index is made of: keys with the tools that have them, and a vocabulary that completes and corrects words.

Tools go by *slots*, small numbers. Most keys belong to one tool: then the slot itself stands there, not a list of one.
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

NO_SLOTS: Sequence[int] = ()


class SlotMap:
    """Key -> the slots that have it, in order."""

    def __init__(self) -> None:
        self._held: dict[str, int | array[int]] = {}

    def add(self, key: str, slot: int) -> bool:
        """Whether the key is new."""
        held = self._held.get(key)
        if held is None:
            self._held[key] = slot
        elif isinstance(held, int):
            if held != slot:
                self._held[key] = array("I", sorted((held, slot)))
        elif slot > held[-1]:
            held.append(slot)
        elif held[at := bisect_left(held, slot)] != slot:
            held.insert(at, slot)
        return held is None

    def discard(self, key: str, slot: int) -> bool:
        """Whether the key is gone with it."""
        held = self._held.get(key)
        if isinstance(held, array):
            if (at := bisect_left(held, slot)) < len(held) and held[at] == slot:
                del held[at]
            if len(held) == 1:
                self._held[key] = held[0]
        elif held == slot:
            del self._held[key]
            return True
        return False

    def get(self, key: str) -> Sequence[int]:
        held = self._held.get(key)
        return NO_SLOTS if held is None else (held,) if isinstance(held, int) else held

    def having(self, keys: Iterable[str]) -> set[int]:
        """All slots that have one of them."""
        held = list(map(self._held.get, keys))
        found = {one for one in held if isinstance(one, int)}
        return found.union(*(one for one in held if isinstance(one, array))) if len(found) < len(held) else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def saved(self) -> "SavedSlots":
        single = {key: held for key, held in self._held.items() if isinstance(held, int)}
        others = {key: held for key, held in self._held.items() if not isinstance(held, int)}
        return SavedSlots(
            list(single), array("I", single.values()).tobytes(), list(others), joined(list(others.values()))
        )

    def restore(self, saved: "SavedSlots", once: "Once") -> None:
        single = map(once.slots.__getitem__, numbers_in(saved.slots))
        self._held = dict(zip(once.texts(saved.single), single, strict=True))
        self._held |= zip(once.texts(saved.others), taken_apart(saved.slots_of_others), strict=True)


class SavedSlots(Struct, array_like=True):
    """A SlotMap, for a file."""

    single: list[str]
    slots: bytes
    others: list[str]
    slots_of_others: tuple[bytes, bytes]


class Once:
    """Equal slots and texts are one object each in all that is restored together: most of them are there many times."""

    def __init__(self, size: int) -> None:
        """Of so many slots."""
        self.slots = list(range(size))
        self._texts: dict[str, str] = {}

    def texts(self, texts: Sequence[str]) -> Iterable[str]:
        return map(self._texts.setdefault, texts, texts)


def joined(arrays: "Sequence[array[int]]") -> tuple[bytes, bytes]:
    """How long each of them is, and all of them in a row."""
    return array("I", map(len, arrays)).tobytes(), b"".join(map(array.tobytes, arrays))


def taken_apart(saved: tuple[bytes, bytes]) -> "list[array[int]]":
    found: list[array[int]] = []
    at = 0
    for length in numbers_in(saved[0]):
        end = at + 4 * length
        found.append(numbers_in(saved[1][at:end]))
        at = end
    return found


def numbers_in(data: bytes) -> "array[int]":
    found = array("I")
    found.frombytes(data)
    return found


FEW = 64  # new words that are put in one by one; more are sorted with all others


class SortedWords:
    """Words in their order, each once: who adds one knows that it is new. It is put in its place when somebody asks."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._new: list[str] = []
        self._text: str | None = None  # all of them, a line each

    def add(self, word: str) -> None:
        self._new.append(word)

    def add_all(self, words: Iterable[str]) -> None:
        self._new += words

    def discard(self, word: str) -> None:
        words = self._settled()
        at = bisect_left(words, word)
        if at < len(words) and words[at] == word:
            del words[at]
            if self._text is not None:
                self._text = self._text.replace(f"\n{word}\n", "\n", 1)

    def with_prefix(self, start: str) -> list[str]:
        """Also the word itself."""
        words = self._settled()
        return words[bisect_left(words, start) : bisect_right(words, start + "\U0010ffff")]

    def containing(self, part: str) -> Iterator[str]:
        """Words that have it inside. A search in one long text is much quicker than one in each word."""
        words = self._settled()
        if self._text is None:
            self._text = "\n".join(["", *words, ""])
        text, at = self._text, 0
        while (at := text.find(part, at)) >= 0:
            end = text.index("\n", at)
            yield text[text.rindex("\n", 0, at) + 1 : end]
            at = end

    def _settled(self) -> list[str]:
        if self._new:
            if len(self._new) <= FEW:
                for word in self._new:
                    insort(self._words, word)
                if self._text is not None:  # where it stands there does not matter
                    self._text += "".join(f"{word}\n" for word in self._new)
            else:
                self._words += self._new
                self._words.sort()
                self._text = None
            self._new = []
        return self._words


# Words that were begun or mistyped


MOST_BEGUN = 24  # the shortest first: they are nearest to what was typed
MOST_CLOSE = 3
SHORTEST_MISTYPED = 4  # one wrong letter in three could be any word
LONGEST_MISTYPED = 32
TWO_MISTAKES = 7  # letters from which two mistakes still leave a word recognisable


def can_be_mistyped(word: str) -> bool:
    """Whether mistakes in it can be told from other words."""
    return SHORTEST_MISTYPED <= len(word) <= LONGEST_MISTYPED and word.isalpha()


class Vocabulary:
    """All words of an index."""

    def __init__(self) -> None:
        self.sorted = SortedWords()
        self._by_length: dict[int, SortedWords] = {}  # those that a mistyped word may mean

    def add(self, word: str) -> None:
        self.sorted.add(word)
        if word.isalpha():
            self._by_length.setdefault(len(word), SortedWords()).add(word)

    def add_all(self, words: Sequence[str]) -> None:
        self.sorted.add_all(words)
        for word in filter(str.isalpha, words):
            self._by_length.setdefault(len(word), SortedWords()).add(word)

    def discard(self, word: str) -> None:
        self.sorted.discard(word)
        if word.isalpha():
            self._by_length[len(word)].discard(word)

    def longer(self, start: str) -> list[str]:
        """The words that start so, and go on."""
        return sorted((word for word in self.sorted.with_prefix(start) if word != start), key=len)[:MOST_BEGUN]

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
        alike = (self._by_length[length].with_prefix(start) for length in lengths if length in self._by_length)
        candidates = [known for words in alike for known in words]
        if not candidates:
            return []
        from rapidfuzz.distance import OSA  # only a mistake needs it, and most queries have none
        from rapidfuzz.process import extract

        found = extract(word, candidates, scorer=OSA.distance, score_cutoff=mistakes, limit=most)
        return [(known, int(distance)) for known, distance, _ in found]
