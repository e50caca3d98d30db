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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from heapq import merge, nsmallest
from itertools import chain, islice
from typing import NamedTuple

from msgspec import Struct

from onetool.services.search.documents import DESCRIPTION, EVERYDAY, NAMES, OTHERS, TAGS, Document
from onetool.services.search.frozen import NO_TEXTS, SavedTexts, Texts, numbers_in, saved_texts
from onetool.services.search.postings import NO_TOOLS, SavedWords, WordIndex
from onetool.services.search.slots import FEW, SavedSlots, SlotMap
from onetool.services.search.words import name_key, split_words, word_groups

PREFIX, WHOLE_WORD, FUZZY, RECENCY = range(4)
MOST_WORDS = 64  # different ones of a query; what is behind them is not looked at
MOST_FUZZY = 10  # a longer query is pasted, not typed
LONGEST_QUERY = 10_000  # characters
FAR = 1000  # more than what any name is long, or any sum of what is near
_ENOUGH = 3  # letters: see `_is_long`
DENSE = 50  # one of so many tools: see `_first`
MANY = 1000  # tools: see `SeenSlots`

LABELS = (NAMES, TAGS, OTHERS)
TEXTS = (*LABELS, DESCRIPTION, EVERYDAY)

Slots = Collection[int]
Step = tuple[int, Iterable[tuple[int, Slots]]]
"""A tier, and its tools by their scores, the best first. Computed as far as somebody goes on asking."""


class TierRank(NamedTuple):
    tier: int
    score: float  # inside the tier; lower is better
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


class SavedRows(Struct, array_like=True, frozen=True):
    """TierRows, for a file: column by column."""

    ids: SavedTexts = NO_TEXTS
    names: SavedTexts = NO_TEXTS
    titles: SavedTexts = NO_TEXTS
    ages: bytes = b""
    lengths: bytes = b""


class SavedTiers(Struct, frozen=True):
    """A TierIndex with its words, for a file. Its slots are in their order: newest first."""

    words: SavedWords = SavedWords()
    ids: SavedSlots = SavedSlots()
    rows: SavedRows = SavedRows()
    off: list[int] = []
    names: SavedSlots = SavedSlots()
    heads: SavedSlots = SavedSlots()
    squeezed: SavedSlots = SavedSlots()


class TierRows(Collection[int]):
    """The rows by slot: those of a file, and what came since. Iterating gives the slots."""

    def __init__(self, saved: SavedRows) -> None:
        self.kept = len(saved.lengths) // 4  # slots below are the file's, newest first
        self._ids, self._names, self._titles = (Texts(one) for one in (saved.ids, saved.names, saved.titles))
        self._ages, self.lengths = array("q"), numbers_in(saved.lengths)  # by slot
        self._ages.frombytes(saved.ages)
        self._gone: set[int] = set()
        self._new: dict[int, TierRow] = {}

    def __getitem__(self, slot: int) -> TierRow:
        found = self._new.get(slot)
        if found is not None:
            return found
        return TierRow(self._ids[slot], self._names[slot], self._titles[slot], self._ages[slot], self.lengths[slot])

    def __setitem__(self, slot: int, row: TierRow) -> None:
        self._new[slot] = row
        self.lengths.extend([0] * (slot + 1 - len(self.lengths)))
        self.lengths[slot] = row.length

    def __delitem__(self, slot: int) -> None:
        if slot < self.kept:
            self._gone.add(slot)
        else:
            del self._new[slot]

    def __contains__(self, slot: object) -> bool:
        return slot in self._new or (isinstance(slot, int) and slot < self.kept and slot not in self._gone)

    def __iter__(self) -> Iterator[int]:
        return chain((slot for slot in range(self.kept) if slot not in self._gone), self._new)

    def __len__(self) -> int:
        return self.kept - len(self._gone) + len(self._new)

    def slots(self) -> dict[str, int]:
        """By their ids."""
        kept = {id: slot for slot, id in enumerate(self._ids) if slot not in self._gone}
        return kept | {row.id: slot for slot, row in self._new.items()}

    def recency(self, slot: int) -> Recency:
        return (self._ages[slot], self._ids[slot]) if slot < self.kept else self._new[slot].recency

    def saved(self, slots: Sequence[int]) -> SavedRows:
        rows = [self[slot] for slot in slots]
        return SavedRows(
            *(saved_texts(texts) for texts in zip(*((row.id, row.name, row.title) for row in rows), strict=True)),
            ages=array("q", (row.age for row in rows)).tobytes(),
            lengths=array("I", (row.length for row in rows)).tobytes(),
        )


class Newest:
    """Slots, newest first. One that is new is put in its place when somebody asks."""

    def __init__(self, rows: TierRows) -> None:
        self._rows, self._recency = rows, rows.recency
        self._kept = range(rows.kept)
        self._slots: list[int] = []  # those that are not the file's
        self._new: list[int] = []

    def add(self, slot: int) -> None:
        self._new.append(slot)

    def discard(self, slot: int) -> None:
        """Before its row is gone."""
        if slot not in self._kept:
            slots = self._settled()
            del slots[bisect_left(slots, self._recency(slot), key=self._recency)]

    def behind(self, after: Recency | None) -> Iterator[int]:
        """All of them."""
        slots, kept = self._settled(), (slot for slot in self._kept[self._place(after) :] if slot in self._rows)
        later = slots[0 if after is None else bisect_right(slots, after, key=self._recency) :]
        return merge(kept, later, key=self._recency) if later else kept

    def first(self, slots: Iterable[int], after: Recency | None, limit: int) -> list[int]:
        """Of these, which are few."""
        kept, new, start = list[int](), list[int](), self._place(after)
        for slot in slots:
            if slot not in self._kept:
                new.append(slot)
            elif slot >= start:
                kept.append(slot)
        new = [slot for slot in new if slot in self._rows and (after is None or self._recency(slot) > after)]
        kept = nsmallest(limit, kept)
        return nsmallest(limit, (*kept, *new), key=self._recency) if new else kept

    def _place(self, after: Recency | None) -> int:
        return 0 if after is None else bisect_right(self._kept, after, key=self._recency)

    def _settled(self) -> list[int]:
        if len(self._new) <= FEW:
            for slot in self._new:
                insort(self._slots, slot, key=self._recency)
        else:
            self._slots = sorted((*self._slots, *self._new), key=self._recency)
        self._new = []
        return self._slots


class SeenSlots:
    """Which tools had their turn. Large sets are not copied."""

    def __init__(self) -> None:
        self._few: set[int] = set()
        self._many: list[Slots] = []

    def add(self, slots: Slots) -> None:
        if len(slots) < MANY:
            self._few.update(slots)
        else:
            self._many.append(slots)

    def without(self, slots: Iterable[int]) -> Iterator[int]:
        few, many = self._few, self._many
        if not many:
            return (slot for slot in slots if slot not in few)
        return (slot for slot in slots if slot not in few and not any(slot in one for one in many))


class TierIndex:
    """Who asks or changes it holds the lock of its words."""

    def __init__(self, saved: SavedTiers | None = None) -> None:
        saved = saved or SavedTiers()
        self.words = WordIndex(saved.words)
        self._ids = SlotMap(saved.ids)
        self._rows = TierRows(saved.rows)
        self._newest = Newest(self._rows)
        self._off: set[int] = set(saved.off)  # in no list unless somebody asks for those, too
        self._names = SlotMap(saved.names)  # whole names as they are compared
        self._heads = SlotMap(saved.heads)  # words of names
        self._squeezed = SlotMap(saved.squeezed)  # names in one word: `readfile`

    def slot_of(self, id: str) -> int | None:
        return next(iter(self._ids.get(id)), None)

    def slots(self) -> dict[str, int]:
        """Of all tools, by their ids."""
        return self._rows.slots()

    def __len__(self) -> int:
        return len(self._rows)

    # Changing

    def put(self, row: TierRow, document: Document, is_on: bool) -> int:
        """In place of the one of its id; its slot."""
        self.drop(row.id)
        slot = self.words.add(document)
        self._ids.add(row.id, slot)
        self._rows[slot] = row
        self._newest.add(slot)
        for known, word in self._found_by(row):
            known.add(word, slot)
        self.switch(slot, is_on)
        return slot

    def switch(self, slot: int, is_on: bool) -> None:
        (self._off.discard if is_on else self._off.add)(slot)

    def drop(self, id: str) -> None:
        """If it is there."""
        if (slot := self.slot_of(id)) is None:
            return
        row = self._rows[slot]
        self._ids.discard(id, slot)
        self._newest.discard(slot)
        del self._rows[slot]
        self._off.discard(slot)
        for known, word in self._found_by(row):
            known.discard(word, slot)
        self.words.remove(slot)

    def _found_by(self, row: TierRow) -> set[tuple[SlotMap, str]]:
        found: set[tuple[SlotMap, str]] = set()
        for name in (row.name, row.title):
            if key := name_key(name, " "):
                found |= {(self._names, key), *((self._heads, word) for word in split_words(name))}
                if " " in key:
                    found.add((self._squeezed, name_key(name)))
        return found

    # In a file

    def saved(self) -> tuple["SavedTiers", dict[int, int]]:
        """What is to be written, and the slot that each slot becomes there."""
        slots = [*self._newest.behind(None)]
        places = dict(zip(slots, range(len(slots)), strict=True))
        ids, names, heads, squeezed = (
            known.saved(places.get) for known in (self._ids, self._names, self._heads, self._squeezed)
        )
        off = [places[slot] for slot in self._off]
        return SavedTiers(self.words.saved(slots), ids, self._rows.saved(slots), off, names, heads, squeezed), places

    # Asking

    def search(
        self, query: str, include_off: bool, after: TierRank | None, limit: int, last: TierRank | None = None
    ) -> list[TierRank]:
        """The next `limit` ones behind `after`. What ranks behind `last` is not looked for."""
        found: list[TierRank] = []
        seen = SeenSlots()
        for tier, scored in self._steps(query[:LONGEST_QUERY], seen):
            if last is not None and tier > last.tier:
                break
            for score, slots in scored:
                if last is not None and (tier, score) > last[:2]:
                    return found
                if after is None or after[:2] <= (tier, score):
                    behind = None if after is None or after[:2] < (tier, score) else after[2:]
                    chosen = self._first(slots, seen, include_off, behind, limit - len(found))
                    found += [TierRank(tier, float(score), *self._rows.recency(slot)) for slot in chosen]
                if len(found) >= limit:
                    return found
                seen.add(slots)
        return found

    def _first(
        self, slots: Slots, seen: SeenSlots, include_off: bool, behind: Recency | None, limit: int
    ) -> Iterable[int]:
        """The newest of them. Of many it is quicker to go through all tools, newest first, until there are enough."""
        off = NO_TOOLS if include_off else self._off
        if len(slots) > limit and len(slots) * DENSE > len(self._rows):
            every = seen.without(slot for slot in self._newest.behind(behind) if slot in slots and slot not in off)
            return islice(every, limit)
        return self._newest.first((slot for slot in seen.without(slots) if slot not in off), behind, limit)

    def _steps(self, query: str, seen: SeenSlots) -> Iterator[Step]:
        """In the order of ranks. What was seen already may come again."""
        if not query.strip():
            yield RECENCY, [(0, self._rows)]
        asked = [group[0] for group in word_groups(query)]
        if not asked:  # or nothing but punctuation, which nothing has
            return
        key = name_key(query, " ")
        yield PREFIX, self._begun(key)
        asked = list(dict.fromkeys(asked))[:MOST_WORDS]
        yield from self._whole_words(asked, len(key), seen)
        if len(asked) <= MOST_FUZZY:
            yield FUZZY, self._fuzzy(asked, seen)

    def _begun(self, key: str) -> Iterator[tuple[int, Slots]]:
        """By how many characters of the name are left."""
        names = self._names
        begun = [*names.keys.lengths(names.keys.begun(key))]
        for length in sorted({length for _, length in begun}):
            slots = (names.of(number) for number, own in begun if own == length)
            yield length - len(key), set[int]().union(*slots)

    def _whole_words(self, asked: Sequence[str], length: int, seen: SeenSlots) -> Iterator[Step]:
        named = sorted(map(self._named, asked), key=len)
        yield WHOLE_WORD, self._by_length([*seen.without(named[0].intersection(*named[1:]))], length)
        for score, fields in ((FAR, LABELS), (2 * FAR, TEXTS)):
            yield WHOLE_WORD, [(score, self._having_all(asked, fields))]

    def _named(self, word: str) -> set[int]:
        return self._heads.having([word]).union(self._squeezed.get(word))

    def _by_length(self, slots: Sequence[int], length: int) -> Iterator[tuple[int, Slots]]:
        """By how many characters their names are longer."""
        more = [max(0, self._rows.lengths[slot] - length) for slot in slots]
        for score in sorted({*more}):
            yield score, {slot for slot, own in zip(slots, more, strict=True) if own == score}

    def _having_all(self, asked: Sequence[str], fields: tuple[int, ...]) -> Slots:
        """Tools that have all words, each in one of these fields or in a name of their own."""
        if len(asked) == 1:  # in names it was looked for before
            return self.words.having(asked, *fields)
        both = [(self.words.having([word], *fields), self._named(word)) for word in asked]
        (texts, names), *others = sorted(both, key=lambda one: len(one[0]) + len(one[1]))
        found = texts | names
        for texts, names in others:
            found = (found & texts) | (found & names)
        return found

    # Words that are near

    def _fuzzy(self, asked: Sequence[str], seen: SeenSlots) -> Iterator[tuple[int, Slots]]:
        """The sum of how near each word is."""
        if len(asked) == 1:
            yield from self._near(asked[0])
            return
        every, left = list[list[tuple[int, Set[int]]]](), NO_TOOLS
        for word in asked:
            near = [*self._near(word)]
            some = set[int]().union(*(slots for _, slots in near))
            left = left & some if every else set(seen.without(some))
            every.append(near)
            if not left:
                return
        sums = dict.fromkeys(left, 0)
        for near in every:
            levels: dict[int, int] = {}
            for level, slots in reversed(near):
                levels |= dict.fromkeys(left & slots, level)
            sums = {slot: total + levels[slot] for slot, total in sums.items()}
        yield from _by_score(sums)

    def _near(self, word: str) -> Iterator[tuple[int, Set[int]]]:
        """Tools that have something near this word, by how near, the nearest first. One may come several times.

        0 begins a word of the names, 1 is inside of one, 2 and 3 so many slips away; 4 begins a word of other texts, or
        is one, 5 is one or two slips away from one.
        """
        is_long, known = _is_long(word), (self._heads, self._squeezed)
        yield 0, self._heads.having_begun(word) | self._squeezed.having_begun(word)
        if is_long:
            yield 1, set[int]().union(*map(self._heads.of, self._heads.keys.containing(word)))
        slips = [(names, names.keys.near(word)) for names in known]
        for mistakes in (1, 2):
            found = (names.having(one for one in near if near[one] == mistakes) for names, near in slips)
            yield mistakes + 1, set[int]().union(*found)
        yield 4, self.words.having_begun(word, *TEXTS) if is_long else self.words.having([word], *TEXTS)
        yield 5, self.words.having(self.words.vocabulary.near(word), *TEXTS)


def _by_score(scores: Mapping[int, int]) -> list[tuple[int, Slots]]:
    found: dict[int, set[int]] = {}
    for slot, score in scores.items():
        found.setdefault(score, set()).add(slot)
    return sorted(found.items())


def _is_long(word: str) -> bool:
    """Enough to look for inside of words, and as a beginning in longer texts. Two ideographs say enough."""
    return len(word) >= _ENOUGH or not word.isascii()
