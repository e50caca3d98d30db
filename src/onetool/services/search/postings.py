"""`WordIndex`: which words stand in which field of which tool. Tools come and go one by one; nothing is made anew.

A posting keeps of each tool only how often the word stands in each field. What that says for the tool is computed when
somebody asks: it depends on how many tools there are, and on how long their texts are.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Set
from math import log
from threading import RLock
from typing import NamedTuple, Protocol

from msgspec import Struct

from onetool.services.search.documents import (
    COUNT_BYTES,
    COUNT_MASK,
    COUNT_ONCE,
    FIELDS,
    SATURATION,
    Document,
    Lengths,
    Numbers,
    PackedCounts,
    Said,
    Worths,
)
from onetool.services.search.frozen import (
    NO_NUMBERS,
    NO_TEXTS,
    NumberLists,
    Overlaid,
    SavedNumbers,
    SavedTexts,
    Texts,
    numbers_in,
    saved_numbers,
    saved_texts,
)
from onetool.services.search.slots import FEW, SavedSlots, SavedVocabulary, SlotMap, Vocabulary, saved_vocabulary
from onetool.services.search.words import name_keys, stem

MANY_SLOTS = 256  # of one word: which of them have it in some fields is kept
MOST_FOUND = 50  # words of which that is kept
MOST_SAID = 2_000_000  # numbers that are kept of stems that were asked for

Fields = tuple[int, ...]
NO_TOOLS: Set[int] = frozenset()


class Posting(NamedTuple):
    """The tools that have one word, in their order, and the number of the counts of each."""

    slots: "array[int]"
    counts: "array[int]"

    def put(self, slot: int, counts: int) -> None:
        if slot > self.slots[-1]:
            self.slots.append(slot)
            self.counts.append(counts)
        else:
            at = bisect_left(self.slots, slot)
            self.slots.insert(at, slot)
            self.counts.insert(at, counts)

    def drop(self, slot: int) -> None:
        at = bisect_left(self.slots, slot)
        del self.slots[at], self.counts[at]


class WordIndex:
    """Who asks or changes it holds `lock`."""

    def __init__(self, saved: "SavedWords | None" = None) -> None:
        saved = saved or SavedWords()
        self.lock = RLock()
        self.vocabulary = Vocabulary(saved.words)
        self.spelled, self.parts = SlotMap(saved.spelled), SlotMap(saved.parts)  # names as `name_keys` writes them
        names = Texts(saved.names)
        self._names = Overlaid[str](names.__getitem__)  # by slot
        self._first_new = self._there = self.slots = len(names)
        self._free: list[int] = []  # not those of the file: their order means something
        self._kept_slots, self._kept_counts = NumberLists(saved.slots), NumberLists(saved.counts)  # by number of word
        self._changed: dict[int, Posting] = {}  # by number of word: what counts instead of the file's
        self._forms: dict[str, list[str]] = {}  # stem -> words, but for those that are all the forms of themselves
        self._words_of = Overlaid["array[int]"](NumberLists(saved.words_of).__getitem__)  # by slot: numbers of words
        self._counts = Numbers(int.from_bytes(counts, "little") for counts in saved.packed)
        self._lengths = Numbers[Lengths](saved.lengths)
        self._length_of = numbers_in(saved.length_of)  # by slot
        # Of each field: words of all tools, and tools that have any.
        self._totals = [list(total) for total in saved.totals or [(0, 0)] * len(FIELDS)]
        self._worths: Worths | None = None
        self._said: dict[str, Said] = {}
        self._said_size = 0  # numbers in there
        self._found: dict[str, dict[Fields, Set[int]]] = {}  # see `_having`
        self._with_fields: dict[Fields, tuple[int, set[int]]] = {}  # see `_counts_with`
        self._restore_forms(saved.stems)

    def __len__(self) -> int:
        return self._there

    # Changing

    def add(self, document: Document) -> int:
        """Its slot."""
        slot = self._new_slot()
        counted: dict[str, PackedCounts] = {}
        for once, words in zip(COUNT_ONCE, document.fields, strict=True):
            for word in words[:COUNT_MASK]:  # more can't be counted
                counted[word] = counted.get(word, 0) + once
        self._words_of[slot] = array("I", [self._put(word, slot, counted[word]) for word in counted])
        names, description, parameters, tags = map(len, document.fields[: len(FIELDS)])
        self._set_lengths(slot, (names, description, parameters, tags), 1)
        self._set_name(slot, document.name)
        return slot

    def remove(self, slot: int) -> None:
        for number in self._words_of[slot]:
            self._drop(number, slot)
        spelled, parts = name_keys(self._names[slot])
        self.spelled.discard(spelled, slot)
        for key in parts:
            self.parts.discard(key, slot)
        self._set_lengths(slot, self._lengths.values[self._length_of[slot]], -1)
        self._names.drop(slot)
        self._words_of.drop(slot)
        self._there -= 1
        if slot >= self._first_new:
            self._free.append(slot)

    def _new_slot(self) -> int:
        self._there += 1
        if self._free:
            return self._free.pop()
        self._length_of.append(0)
        self.slots += 1
        return self.slots - 1

    def _set_name(self, slot: int, name: str) -> None:
        self._names[slot] = name
        spelled, parts = name_keys(name)
        self.spelled.add(spelled, slot)
        for key in parts:
            self.parts.add(key, slot)

    def _put(self, word: str, slot: int, counts: PackedCounts) -> int:
        number, new = self.vocabulary.number(word), self._counts.of(counts)
        if number is None:
            number = self._new_word(word)
            self._changed[number] = Posting(array("I", (slot,)), array("I", (new,)))
        else:
            self._own_posting(number).put(slot, new)
        if self._said or self._found:
            self._forget(word)
        return number

    def _own_posting(self, number: int) -> Posting:
        """One that can be changed."""
        held = self._changed.get(number)
        if held is None:
            held = self._changed[number] = self._of_file(number)
        return held

    def _new_word(self, word: str) -> int:
        forms = [*self.forms(stem(word)), word]
        number = self.vocabulary.add(word)
        self._set_forms(stem(word), forms)
        return number

    def _set_forms(self, stem: str, forms: list[str]) -> None:
        if forms and forms != [stem]:
            self._forms[stem] = sorted(forms)
        else:
            self._forms.pop(stem, None)

    def _drop(self, number: int, slot: int) -> None:
        word, held = self.vocabulary.text(number), self._own_posting(number)
        held.drop(slot)
        if not held.slots:
            forms = [form for form in self.forms(stem(word)) if form != word]
            self.vocabulary.discard(number)
            self._set_forms(stem(word), forms)
            if number >= self.vocabulary.kept:
                del self._changed[number]
        self._forget(word)

    def _forget(self, word: str) -> None:
        self._found.pop(word, None)
        if (old := self._said.pop(stem(word), None)) is not None:
            self._said_size -= len(old.slots)

    def _set_lengths(self, slot: int, lengths: Lengths, sign: int) -> None:
        self._length_of[slot] = self._lengths.of(lengths)
        for total, length in zip(self._totals, lengths, strict=True):
            total[0] += sign * length
            total[1] += sign * (length > 0)

    # Asking

    def name(self, slot: int) -> str:
        return self._names[slot]

    def knows(self, word: str) -> bool:
        """In any form, and where it says something."""
        return len(self.forms(stem(word))) > 0 and len(self.said(stem(word)).slots) > 0

    def forms(self, of: str) -> Sequence[str]:
        """The words that have this stem."""
        found = self._forms.get(of)
        return found if found is not None else (of,) if stem(of) == of and self._has(of) else ()

    def stems_of(self, words: Iterable[str]) -> set[str]:
        """Of those words that some tool has."""
        return {stem(word) for word in words if self._has(word)}

    def _has(self, word: str) -> bool:
        return self.vocabulary.number(word) is not None

    def posting(self, word: str) -> Posting | None:
        """Of this very form."""
        number = self.vocabulary.number(word)
        return None if number is None else self._posting(number)

    def _posting(self, number: int) -> Posting:
        held = self._changed.get(number)
        return self._of_file(number) if held is None else held

    def _of_file(self, number: int) -> Posting:
        return Posting(self._kept_slots[number], self._kept_counts[number])

    def having(self, words: Iterable[str], *fields: int) -> Set[int]:
        """The tools that have one of these words in one of these fields."""
        found = [self._having(word, fields) for word in words]
        return found[0] if len(found) == 1 else set[int]().union(*found)

    def _having(self, word: str, fields: Fields) -> Set[int]:
        """Of words that many tools have, it is kept until the word changes."""
        kept = self._found.get(word)
        if kept is not None and fields in kept:
            return kept[fields]
        posting = self.posting(word)
        if posting is None:
            return NO_TOOLS
        found = _with_counts(posting, self._counts_with(fields))
        if len(posting.slots) >= MANY_SLOTS:
            if len(self._found) >= MOST_FOUND:
                self._found = {}
            self._found.setdefault(word, {})[fields] = found
        return found

    def _counts_with(self, fields: Fields) -> set[int]:
        """The numbers of the counts of a word that stands in one of these fields. They only get more."""
        size, found = self._with_fields.get(fields, (0, set[int]()))
        if size < len(self._counts.values):
            wanted = sum(COUNT_MASK * COUNT_ONCE[field] for field in fields)
            found |= {number for number, counts in enumerate(self._counts.values) if counts & wanted}
            self._with_fields[fields] = len(self._counts.values), found
        return found

    def having_begun(self, start: str, *fields: int) -> Set[int]:
        """The tools that have a word which starts so, in one of these fields."""
        (kept, new), counts = self.vocabulary.begun(start), self._counts_with(fields)
        if len(kept) + len(new) <= FEW:  # of those that many tools have, it is known
            return self.having(map(self.vocabulary.text, (*kept, *new)), *fields)
        found, at = set[int](), kept.start
        for number in sorted(number for number in self._changed if number in kept):
            found |= _with_counts(self._between(at, number), counts)
            found |= _with_counts(self._changed[number], counts)
            at = number + 1
        return found.union(
            _with_counts(self._between(at, kept.stop), counts),
            *(_with_counts(self._changed[number], counts) for number in new),
        )

    def _between(self, first: int, end: int) -> Posting:
        """Of all these words of the file together."""
        return Posting(self._kept_slots.between(first, end), self._kept_counts.between(first, end))

    def rarity(self, stem: str) -> float:
        """What each of the weights is multiplied with."""
        having = len(self.said(stem).slots)
        return log(1 + (len(self) - having + 0.5) / (having + 0.5))

    def said(self, stem: str) -> Said:
        """Kept until the word, or the usual length of texts, changes."""
        worths = self._current_worths()
        if (said := self._said.get(stem)) is None:
            if self._said_size > MOST_SAID:
                self._said, self._said_size = {}, 0
            said = self._said[stem] = self._compute(stem, worths)
            self._said_size += len(said.slots)
        return said

    def _compute(self, stem: str, worths: Worths) -> Said:
        counted: list[tuple[Sequence[int], list[float]]] = []
        for word in self.forms(stem):
            posting = self.posting(word)
            assert posting is not None  # noqa: S101 - a form is a word that some tool has
            lengths = map(self._length_of.__getitem__, posting.slots)
            counted.append((posting.slots, [*map(worths.__getitem__, zip(posting.counts, lengths, strict=True))]))
        if len(counted) > 1:
            slots, worth = _summed(counted)
        else:
            slots, worth = array("I", counted[0][0]), counted[0][1]
        kept = [(slot, one) for slot, one in zip(slots, worth, strict=True) if one] if 0.0 in worth else None
        if kept is not None:  # everyday words of a description, and of what it belongs to, say nothing
            slots, worth = [slot for slot, _ in kept], [one for _, one in kept]
        return Said(slots, array("d", (one / (SATURATION + one) for one in worth)))

    def _current_worths(self) -> Worths:
        # Rounded: a change must not make everything be computed again that was right enough.
        usual = [float(f"{total / having:.4g}") if having else 1.0 for total, having in self._totals]
        if self._worths is None or self._worths.usual != usual:
            self._worths = Worths(self._counts.values, self._lengths.values, usual)
            self._said, self._said_size = {}, 0
        return self._worths

    # In a file

    def saved(self, slots: Sequence[int]) -> "SavedWords":
        """Of the tools in these slots. In the file they have the slots of their places here."""
        places = dict(zip(slots, range(len(slots)), strict=True))
        words, new, postings = list[str](), dict[int, int](), list[Posting]()
        for word, number in self.vocabulary.in_order():
            posting = _renumbered(self._posting(number), places)
            if posting.slots:
                new[number] = len(words)
                words.append(word)
                postings.append(posting)
        lengths = [self._lengths.values[self._length_of[slot]] for slot in slots]
        return SavedWords(
            names=saved_texts(map(self.name, slots)),
            words=saved_vocabulary(words),
            stems={number: stem(word) for number, word in enumerate(words) if stem(word) != word},
            slots=saved_numbers([one.slots for one in postings]),
            counts=saved_numbers([one.counts for one in postings]),
            words_of=saved_numbers([[*map(new.__getitem__, self._words_of[slot])] for slot in slots]),
            packed=[counts.to_bytes(COUNT_BYTES, "little") for counts in self._counts.values],
            lengths=self._lengths.values,
            length_of=array("I", map(self._length_of.__getitem__, slots)).tobytes(),
            totals=[(sum(of), sum(one > 0 for one in of)) for of in zip(*lengths, strict=True)],
            spelled=self.spelled.saved(places.get),
            parts=self.parts.saved(places.get),
        )

    def _restore_forms(self, stems: Mapping[int, str]) -> None:
        """`stems` are of those words that are not their own."""
        for number, of in stems.items():
            self._forms.setdefault(of, []).append(self.vocabulary.text(number))
        for of, forms in self._forms.items():
            forms += [of] if stem(of) == of and self._has(of) else []
            forms.sort()


class SavedWords(Struct, frozen=True):
    """A WordIndex, for a file. Its slots and the numbers of its words count from 0, without gaps."""

    names: SavedTexts = NO_TEXTS
    words: SavedVocabulary = SavedVocabulary()
    stems: dict[int, str] = {}  # by number of word: where they differ from the word
    slots: SavedNumbers = NO_NUMBERS  # by number of word
    counts: SavedNumbers = NO_NUMBERS  # the same: their numbers
    words_of: SavedNumbers = NO_NUMBERS
    packed: list[bytes] = []
    lengths: list[tuple[int, int, int, int]] = []
    length_of: bytes = b""
    totals: list[tuple[int, int]] = []
    spelled: SavedSlots = SavedSlots()
    parts: SavedSlots = SavedSlots()


def _with_counts(posting: Posting, counts: Set[int]) -> set[int]:
    here = set(posting.counts)
    if here <= counts:
        return set(posting.slots)
    if here.isdisjoint(counts):
        return set()
    return {slot for slot, count in zip(*posting, strict=True) if count in counts}


def _renumbered(posting: Posting, places: Mapping[int, int]) -> Posting:
    """With other slots, without those that have none."""
    slots, counts = [*map(places.get, posting.slots)], posting.counts
    if None in slots:
        counts = [count for slot, count in zip(slots, counts, strict=True) if slot is not None]
    found = [slot for slot in slots if slot is not None]
    if found == sorted(found):
        return Posting(array("I", found), array("I", counts))
    order = sorted(range(len(found)), key=found.__getitem__)
    return Posting(array("I", map(found.__getitem__, order)), array("I", map(counts.__getitem__, order)))


def _summed(counted: Iterable[tuple[Sequence[int], Sequence[float]]]) -> tuple[Sequence[int], list[float]]:
    sums: dict[int, float] = {}
    for slots, worth in counted:
        for slot, one in zip(slots, worth, strict=True):
            sums[slot] = sums.get(slot, 0.0) + one
    ordered: Mapping[int, float] = dict(sorted(sums.items()))
    return [*ordered], [*ordered.values()]


class KeptDocuments(Protocol):
    """What a store lends to a `SearchIndex`, so that its words are in memory once: tools that are indexed already."""

    words: WordIndex

    def slot_of(self, id: str) -> int | None:
        """Where a tool is, by its id in the store."""
        ...

    def slots(self) -> dict[str, int]:
        """Of all of them."""
        ...
