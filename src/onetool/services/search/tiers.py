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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

from msgspec import Struct

from onetool.services.search.postings import DESCRIPTION, EVERYDAY, NAMES, OTHERS, TAGS, Document, SavedWords, WordIndex
from onetool.services.search.slots import SavedSlots, SlotMap, SortedWords, Vocabulary, numbers_in
from onetool.services.search.words import name_key, split_words, word_groups

PREFIX, WHOLE_WORD, FUZZY, RECENCY = range(4)
MOST_WORDS = 64  # different ones of a query; what is behind them is not looked at
MOST_FUZZY = 10  # a longer query is pasted, not typed
LONGEST_QUERY = 10_000  # characters
FAR = 1000  # more than what any name is long, or any sum of what is near
_ENOUGH = 3  # letters: see `_is_long`
_ZERO_AGE = 1 << 62

LABELS = (NAMES, TAGS, OTHERS)
TEXTS = (*LABELS, DESCRIPTION, EVERYDAY)

Slots = Collection[int]
Step = tuple[int, dict[int, Slots]]
"""A tier, and tools by their scores."""


class TierRank(NamedTuple):
    tier: int
    score: float
    age: int  # minus its time in ms
    id: str


class TierRow(NamedTuple):
    """What is to be known of a tool beside its words. `names` are its own, without what it belongs to."""

    id: str
    names: tuple[str, ...]
    age: int


class SavedTiers(Struct):
    """A TierIndex with its words, for a file."""

    words: SavedWords
    slots: bytes
    rows: list[TierRow]
    off: list[int]
    begins: SavedSlots
    heads: SavedSlots


class TierIndex:
    """Who asks or changes it holds the lock of its words."""

    def __init__(self, words: WordIndex) -> None:
        self.words = words
        self._rows: dict[int, TierRow] = {}
        self._recency: dict[int, str] = {}  # by slot: what sorts as (age, id) does
        self._off: set[int] = set()  # in no list unless somebody asks for those, too
        self._begins = SlotMap()  # names as they are compared
        self._beginnings = SortedWords()
        self._heads = SlotMap()  # words of names, and names in one word
        self._head_words = Vocabulary()
        self._slots: dict[str, int] = {}  # by id

    def slot_of(self, id: str) -> int | None:
        return self._slots.get(id)

    def __len__(self) -> int:
        return len(self._rows)

    # Changing

    def put(self, row: TierRow, document: Document, is_on: bool) -> None:
        """In place of the one of its id."""
        if row.id in self._slots:
            self.drop(row.id)
        slot = self._slots[row.id] = self.words.add(document)
        self._rows[slot] = row
        self._recency[slot] = _recency(row.age, row.id)
        keys, heads = _heads(row.names)
        for key in keys:
            if self._begins.add(key, slot):
                self._beginnings.add(key)
        for head in heads:
            if self._heads.add(head, slot):
                self._head_words.add(head)
        self.switch(row.id, is_on)

    def switch(self, id: str, is_on: bool) -> None:
        (self._off.discard if is_on else self._off.add)(self._slots[id])

    def drop(self, id: str) -> None:
        slot = self._slots.pop(id)
        keys, heads = _heads(self._rows.pop(slot).names)
        del self._recency[slot]
        self._off.discard(slot)
        for key in keys:
            if self._begins.discard(key, slot):
                self._beginnings.discard(key)
        for head in heads:
            if self._heads.discard(head, slot):
                self._head_words.discard(head)
        self.words.remove(slot)

    # In a file

    def saved(self) -> "SavedTiers":
        slots, rows = array("I", self._rows), list(self._rows.values())
        return SavedTiers(
            self.words.saved(), slots.tobytes(), rows, list(self._off), self._begins.saved(), self._heads.saved()
        )

    def restore(self, saved: "SavedTiers") -> None:
        """Into one that is empty."""
        self.words.restore(saved.words)
        self._rows = dict(zip(numbers_in(saved.slots), saved.rows, strict=True))
        self._recency = {slot: _recency(row.age, row.id) for slot, row in self._rows.items()}
        self._slots = {row.id: slot for slot, row in self._rows.items()}
        self._off = set(saved.off)
        self._begins.restore(saved.begins)
        self._beginnings.add_all(self._begins)
        self._heads.restore(saved.heads)
        self._head_words.add_all(list(self._heads))

    # Asking

    def search(self, query: str, include_off: bool, after: TierRank | None, limit: int) -> list[TierRank]:
        """The next `limit` ones behind `after`."""
        found: list[TierRank] = []
        for tier, scored in self._steps(query[:LONGEST_QUERY]):
            for score in sorted(scored):
                if len(found) >= limit:
                    return found
                if after is None or after[:2] <= (tier, score):
                    least = "" if after is None or after[:2] < (tier, score) else _recency(after.age, after.id)
                    chosen = self._newest(scored[score], include_off, least, limit - len(found))
                    rows = map(self._rows.__getitem__, chosen)
                    found += [TierRank(tier, float(score), row.age, row.id) for row in rows]
        return found

    def _newest(self, slots: Slots, include_off: bool, behind: str, limit: int) -> list[int]:
        if not include_off and self._off:
            slots = [slot for slot in slots if slot not in self._off]
        recency = self._recency.__getitem__
        if behind:
            slots = [slot for slot in slots if recency(slot) > behind]
        return nsmallest(limit, slots, key=recency)

    def _steps(self, query: str) -> Iterator[Step]:
        """In the order of ranks; computed as far as somebody goes on asking."""
        if not query.strip():
            yield RECENCY, {0: self._rows.keys()}
        asked = [group[0] for group in word_groups(query)]
        if not asked:  # or nothing but punctuation, which nothing has
            return
        key = name_key(query, " ")
        begun = self._begun(key)
        yield PREFIX, _by_score(begun)
        asked = list(dict.fromkeys(asked))[:MOST_WORDS]
        seen = set(begun)
        yield from self._whole_words(asked, len(key), seen)
        if len(asked) <= MOST_FUZZY:
            near = self._all_near(asked)
            yield FUZZY, _by_score({slot: score for slot, score in near.items() if slot not in seen})

    def _begun(self, key: str) -> dict[int, int]:
        """Tool -> how many characters of its name are left."""
        left: dict[int, int] = {}
        for name in sorted(self._beginnings.with_prefix(key), key=len, reverse=True):
            left |= dict.fromkeys(self._begins.get(name), len(name) - len(key))
        return left

    def _whole_words(self, asked: Sequence[str], length: int, seen: set[int]) -> Iterator[Step]:
        names = _having_all(asked, self._heads.get) - seen
        seen |= names
        yield WHOLE_WORD, _by_score({slot: max(0, self._shorter(slot) - length) for slot in names})
        for score, fields in ((FAR, LABELS), (2 * FAR, TEXTS)):
            counts = self.words.counts_with(*fields)
            found = _having_all(asked, lambda word, counts=counts: self._having(word, counts)) - seen
            seen |= found
            yield WHOLE_WORD, {score: found}

    def _shorter(self, slot: int) -> int:
        """The length of the shorter name."""
        return min(len(key) for name in self._rows[slot].names if (key := name_key(name, " ")))

    def _having(self, word: str, counts: Collection[int]) -> set[int]:
        """Tools that have the word, in fields that these counts are of; or as a name of their own."""
        found = set(self._heads.get(word))
        if (posting := self.words.posting(word)) is not None:
            found.update(slot for slot, count in zip(*posting, strict=True) if count in counts)
        return found & self._rows.keys() if len(self._rows) < len(self.words) else found

    # Words that are near

    def _all_near(self, asked: Sequence[str]) -> dict[int, int]:
        """The longest first: who has nothing near it is out."""
        total: dict[int, int] | None = None
        for word in sorted(asked, key=len, reverse=True):
            near = self._near(word)
            if total is not None:
                near = {slot: total[slot] + near[slot] for slot in total.keys() & near.keys()}
            total = near
            if not total:
                break
        return total or {}

    def _near(self, word: str) -> dict[int, int]:
        """Tools that have something near this word, each with how near.

        0 begins a word of the names, 1 is inside of one, 2 and 3 so many slips away; 4 begins a word of other texts, or
        is one, 5 is one or two slips away from one.
        """
        texts, is_long = self.words.counts_with(*TEXTS), _is_long(word)
        others = self.words.vocabulary
        found: dict[int, int] = {}
        slips = self._head_words.near(word)
        for known in others.near(word):  # the farthest first: what is nearer takes its place
            found |= dict.fromkeys(self._having(known, texts), 5)
        for known in others.sorted.with_prefix(word) if is_long else [word]:
            found |= dict.fromkeys(self._having(known, texts), 4)
        for known in sorted(slips, key=slips.__getitem__, reverse=True):
            found |= dict.fromkeys(self._heads.get(known), slips[known] + 1)
        if is_long:
            for known in self._head_words.sorted.containing(word):
                found |= dict.fromkeys(self._heads.get(known), 1)
        for known in self._head_words.sorted.with_prefix(word):
            found |= dict.fromkeys(self._heads.get(known), 0)
        return found


def _heads(names: Sequence[str]) -> tuple[set[str], set[str]]:
    """Names as they are compared, and the words that they are found by: also `readfile` for `read-file`."""
    keys = {key for name in names if (key := name_key(name, " "))}
    return keys, {word for name in names for word in (*split_words(name), name_key(name)) if word}


def _recency(age: int, id: str) -> str:
    return f"{age + _ZERO_AGE:019d}{id}"


def _by_score(scores: Mapping[int, int]) -> dict[int, Slots]:
    found: dict[int, list[int]] = {}
    for slot, score in scores.items():
        found.setdefault(score, []).append(slot)
    return dict(found)


def _having_all(asked: Sequence[str], having: Callable[[str], Collection[int]]) -> set[int]:
    found: set[int] | None = None
    for word in asked:
        found = set(having(word)) if found is None else found.intersection(having(word))
        if not found:
            break
    return found or set()


def _is_long(word: str) -> bool:
    """Enough to look for inside of words, and as a beginning in longer texts. Two ideographs say enough."""
    return len(word) >= _ENOUGH or not word.isascii()
