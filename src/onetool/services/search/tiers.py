"""`TierIndex`: the order of the REST API over the words of a `WordIndex`: prefix, whole word, fuzzy, recency.

The rank of a tool is (tier, score, age, id), and depends on its own texts and the query, never on other tools: a page
begins exactly where the one before ended, whoever changes tools in between. The tiers:

    0  one of its own names begins with the query            the fewer characters are left, the better
    1  every word of it is a whole word                      of its own names (the shorter, the better); of names, tags
                                                             and what it belongs to; of all texts
    2  every word of it is near a word                       the sum of how near: see `_near`
    3  nothing was asked for                                 newest first, as everywhere among equals
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from onetool.services.search.postings import DESCRIPTION, EVERYDAY, NAMES, OTHERS, TAGS, Document, SavedWords, WordIndex
from onetool.services.search.slots import FEW, Once, SavedSlots, SlotMap, Vocabulary, numbers_in
from onetool.services.search.words import name_key, split_words, word_groups

PREFIX, WHOLE_WORD, FUZZY, RECENCY = range(4)
MOST_WORDS = 64  # different ones of a query; what is behind them is not looked at
MOST_FUZZY = 10  # a longer query is pasted, not typed
LONGEST_QUERY = 10_000  # characters
FAR = 1000  # more than what any name is long, or any sum of what is near
_ENOUGH = 3  # letters: see `_is_long`
DENSE = 50  # one of so many tools: see `_first`

LABELS = (NAMES, TAGS, OTHERS)
TEXTS = (*LABELS, DESCRIPTION, EVERYDAY)

Slots = Collection[int]
Step = tuple[int, Iterable[tuple[int, Slots]]]
"""A tier, and its tools by their scores, the best first. Computed as far as somebody goes on asking."""


class TierRank(NamedTuple):
    tier: int
    score: float
    age: int  # minus its time in ms
    id: str


class TierRow(Struct, frozen=True, gc=False, array_like=True):
    """What is to be known of a tool beside its words. Name and title are its own, without what it belongs to."""

    id: str
    name: str
    title: str
    age: int
    length: int  # of the shorter name as it is compared

    @property
    def recency(self) -> "Recency":
        return self.age, self.id


Recency = tuple[int, str]
"""What tools are sorted by, newest first."""


def row_of(id: str, name: str, title: str, age: int) -> TierRow:
    lengths = [len(key) for one in (name, title) if (key := name_key(one, " "))]
    return TierRow(id, name, title, age, min(lengths, default=0))


class SavedTiers(Struct):
    """A TierIndex with its words, for a file."""

    words: SavedWords
    slots: bytes  # newest first, and so are the rows
    rows: list[TierRow]
    off: list[int]
    names: list[SavedSlots]


class NameWords:
    """Words with the tools whose names have them."""

    def __init__(self) -> None:
        self.slots = SlotMap()
        self.words = Vocabulary()

    def add(self, word: str, slot: int) -> None:
        if self.slots.add(word, slot):
            self.words.add(word)

    def discard(self, word: str, slot: int) -> None:
        if self.slots.discard(word, slot):
            self.words.discard(word)

    def restore(self, saved: SavedSlots, once: Once) -> None:
        self.slots.restore(saved, once)
        self.words.add_all(list(self.slots))

    def having(self, words: Iterable[str]) -> set[int]:
        return self.slots.having(words)


class Newest:
    """Slots, newest first. One that is new is put in its place when somebody asks."""

    def __init__(self, rows: Mapping[int, TierRow]) -> None:
        self._recency = lambda slot: rows[slot].recency
        self._slots: list[int] = []
        self._new: list[int] = []

    def add(self, slot: int) -> None:
        self._new.append(slot)

    def discard(self, slot: int) -> None:
        slots = self._settled()
        del slots[bisect_left(slots, self._recency(slot), key=self._recency)]

    def restore(self, slots: Iterable[int]) -> None:
        self._slots = list(slots)

    def behind(self, after: Recency | None) -> Iterator[int]:
        slots = self._settled()
        return islice(slots, 0 if after is None else bisect_right(slots, after, key=self._recency), None)

    def _settled(self) -> list[int]:
        if len(self._new) <= FEW:
            for slot in self._new:
                insort(self._slots, slot, key=self._recency)
        else:
            self._slots = sorted((*self._slots, *self._new), key=self._recency)
        self._new = []
        return self._slots


class TierIndex:
    """Who asks or changes it holds the lock of its words."""

    def __init__(self, words: WordIndex) -> None:
        self.words = words
        self._rows: dict[int, TierRow] = {}
        self._slots: dict[str, int] = {}  # by id
        self._newest = Newest(self._rows)
        self._off: set[int] = set()  # in no list unless somebody asks for those, too
        self._names = NameWords()  # whole names as they are compared
        self._heads = NameWords()  # words of names
        self._squeezed = NameWords()  # names in one word: `readfile`

    def slot_of(self, id: str) -> int | None:
        return self._slots.get(id)

    def __len__(self) -> int:
        return len(self._rows)

    # Changing

    def put(self, row: TierRow, document: Document, is_on: bool) -> int:
        """In place of the one of its id; its slot."""
        if row.id in self._slots:
            self.drop(row.id)
        slot = self._slots[row.id] = self.words.add(document)
        self._rows[slot] = row
        self._newest.add(slot)
        for known, word in self._found_by(row):
            known.add(word, slot)
        self.switch(slot, is_on)
        return slot

    def switch(self, slot: int, is_on: bool) -> None:
        (self._off.discard if is_on else self._off.add)(slot)

    def drop(self, id: str) -> None:
        slot = self._slots.pop(id)
        self._newest.discard(slot)
        row = self._rows.pop(slot)
        self._off.discard(slot)
        for known, word in self._found_by(row):
            known.discard(word, slot)
        self.words.remove(slot)

    def _found_by(self, row: TierRow) -> set[tuple[NameWords, str]]:
        found: set[tuple[NameWords, str]] = set()
        for name in (row.name, row.title):
            if key := name_key(name, " "):
                found |= {(self._names, key), *((self._heads, word) for word in split_words(name))}
                if " " in key:
                    found.add((self._squeezed, name_key(name)))
        return found

    # In a file

    def saved(self) -> "SavedTiers":
        slots = array("I", self._newest.behind(None))
        rows = [self._rows[slot] for slot in slots]
        names = [known.slots.saved() for known in (self._names, self._heads, self._squeezed)]
        return SavedTiers(self.words.saved(), slots.tobytes(), rows, list(self._off), names)

    def restore(self, saved: "SavedTiers", once: Once | None = None) -> None:
        """Into one that is empty."""
        once = once or Once(len(saved.words.names))
        self.words.restore(saved.words, once)
        self._rows.update(zip(map(once.slots.__getitem__, numbers_in(saved.slots)), saved.rows, strict=True))
        self._newest.restore(self._rows)
        self._slots = {row.id: slot for slot, row in self._rows.items()}
        self._off = set(saved.off)
        for known, held in zip((self._names, self._heads, self._squeezed), saved.names, strict=True):
            known.restore(held, once)

    # Asking

    def search(self, query: str, include_off: bool, after: TierRank | None, limit: int) -> list[TierRank]:
        """The next `limit` ones behind `after`."""
        found: list[TierRank] = []
        for tier, scored in self._steps(query[:LONGEST_QUERY]):
            for score, slots in scored:
                if after is None or after[:2] <= (tier, score):
                    behind = None if after is None or after[:2] < (tier, score) else after[2:]
                    chosen = self._first(slots, include_off, behind, limit - len(found))
                    rows = map(self._rows.__getitem__, chosen)
                    found += [TierRank(tier, float(score), row.age, row.id) for row in rows]
                if len(found) >= limit:
                    return found
        return found

    def _first(self, slots: Slots, include_off: bool, behind: Recency | None, limit: int) -> Iterable[int]:
        """The newest of them. Of many it is quicker to go through all tools, newest first, until there are enough."""
        off = set[int]() if include_off else self._off
        if len(slots) > limit and len(slots) * DENSE > len(self._rows):
            every = self._newest.behind(behind)
            return islice((slot for slot in every if slot in slots and slot not in off), limit)
        wanted = ((self._rows[slot].recency, slot) for slot in slots if slot not in off)
        return [slot for _, slot in nsmallest(limit, (one for one in wanted if behind is None or one[0] > behind))]

    def _steps(self, query: str) -> Iterator[Step]:
        """In the order of ranks."""
        if not query.strip():
            yield RECENCY, [(0, self._rows.keys())]
        asked = [group[0] for group in word_groups(query)]
        if not asked:  # or nothing but punctuation, which nothing has
            return
        key, seen = name_key(query, " "), set[int]()
        yield PREFIX, self._begun(key, seen)
        asked = list(dict.fromkeys(asked))[:MOST_WORDS]
        yield from self._whole_words(asked, len(key), seen)
        if len(asked) <= MOST_FUZZY:
            yield FUZZY, self._fuzzy(asked, seen)

    def _begun(self, key: str, seen: set[int]) -> Iterator[tuple[int, Slots]]:
        """By how many characters of the name are left."""
        begun: dict[int, list[str]] = {}
        for name in self._names.words.sorted.with_prefix(key):
            begun.setdefault(len(name) - len(key), []).append(name)
        for left in sorted(begun):
            yield left, _new(self._names.having(begun[left]), seen)

    def _whole_words(self, asked: Sequence[str], length: int, seen: set[int]) -> Iterator[Step]:
        names = _new(_having_all(asked, self._named), seen)
        yield WHOLE_WORD, _by_score({slot: max(0, self._rows[slot].length - length) for slot in names})
        for score, fields in ((FAR, LABELS), (2 * FAR, TEXTS)):
            counts = self.words.counts_with(*fields)
            found = _having_all(asked, lambda word, counts=counts: self._having([word], counts))
            yield WHOLE_WORD, [(score, _new(found, seen))]

    def _named(self, word: str) -> set[int]:
        return self._heads.having([word]) | self._squeezed.having([word])

    def _having(self, words: Iterable[str], counts: set[int]) -> set[int]:
        """Tools that have one of the words, in fields that these counts are of; or in names of their own."""
        found = set[int]()
        for word in words:
            found |= self._named(word)
            if (posting := self.words.posting(word)) is None:
                continue
            here = set(posting.counts)
            if here <= counts:
                found.update(posting.slots)
            elif here & counts:
                found.update(slot for slot, count in zip(*posting, strict=True) if count in counts)
        return found & self._rows.keys() if len(self._rows) < len(self.words) else found

    # Words that are near

    def _fuzzy(self, asked: Sequence[str], seen: set[int]) -> Iterator[tuple[int, Slots]]:
        """The sum of how near each word is."""
        if len(asked) == 1:
            for level, slots in self._near(asked[0]):
                yield level, _new(slots, seen)
            return
        every = [list(self._near(word)) for word in asked]
        left = set[int].intersection(*(set[int]().union(*(slots for _, slots in near)) for near in every)) - seen
        sums = dict.fromkeys(left, 0)
        for near in every:
            levels: dict[int, int] = {}
            for level, slots in reversed(near):
                levels |= dict.fromkeys(left & slots, level)
            sums = {slot: total + levels[slot] for slot, total in sums.items()}
        yield from _by_score(sums)

    def _near(self, word: str) -> Iterator[tuple[int, set[int]]]:
        """Tools that have something near this word, by how near, the nearest first. One may come several times.

        0 begins a word of the names, 1 is inside of one, 2 and 3 so many slips away; 4 begins a word of other texts, or
        is one, 5 is one or two slips away from one.
        """
        texts, is_long = self.words.counts_with(*TEXTS), _is_long(word)
        known = (self._heads, self._squeezed)
        yield 0, set[int]().union(*(names.having(names.words.sorted.with_prefix(word)) for names in known))
        if is_long:
            yield 1, self._heads.having(self._heads.words.sorted.containing(word))
        slips = [(names, names.words.near(word)) for names in known]
        for mistakes in (1, 2):
            found = (names.having(one for one in near if near[one] == mistakes) for names, near in slips)
            yield mistakes + 1, set[int]().union(*found)
        others = self.words.vocabulary
        yield 4, self._having(others.sorted.with_prefix(word) if is_long else [word], texts)
        yield 5, self._having(others.near(word), texts)


def _new(slots: set[int], seen: set[int]) -> set[int]:
    """Those that were not seen before. Now they are."""
    found = slots - seen
    seen |= found
    return found


def _by_score(scores: Mapping[int, int]) -> list[tuple[int, Slots]]:
    found: dict[int, set[int]] = {}
    for slot, score in scores.items():
        found.setdefault(score, set()).add(slot)
    return sorted(found.items())


def _having_all(asked: Sequence[str], having: Callable[[str], set[int]]) -> set[int]:
    found: set[int] | None = None
    for word in asked:
        found = having(word) if found is None else found & having(word)
        if not found:
            break
    return found or set()


def _is_long(word: str) -> bool:
    """Enough to look for inside of words, and as a beginning in longer texts. Two ideographs say enough."""
    return len(word) >= _ENOUGH or not word.isascii()
