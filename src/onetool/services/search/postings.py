"""`WordIndex`: which words stand in which field of which tool. Tools come and go one by one; nothing is made anew.

A posting keeps of each tool only how often the word stands in each field. What that says for the tool is computed when
somebody asks: it depends on how many tools there are, and on how long their texts are.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from itertools import accumulate
from math import log
from threading import RLock
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from msgspec import Struct

from onetool.services.search.slots import Once, SavedSlots, SlotMap, Vocabulary, joined, numbers_in, taken_apart
from onetool.services.search.words import name_keys, stem

if TYPE_CHECKING:
    import numpy as np

    from onetool.services.search.meaning import Doubles

    Slots = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

Words = Sequence[str]


class Document(NamedTuple):
    """A tool as it is found: its name, and the words of each field."""

    name: str
    names: Words  # of the name
    description: Words = ()
    parameters: Words = ()
    tags: Words = ()
    others: Words = ()  # of its title, and of the names of what it belongs to
    everyday: Words = ()  # of the description: they say nothing about which tool is meant

    @property
    def fields(self) -> tuple[Words, ...]:
        return self[1:]


NAMES, DESCRIPTION, PARAMETERS, TAGS, OTHERS, EVERYDAY = range(6)
SATURATION = 1.0


class SearchField(NamedTuple):
    weight: float
    evening: float  # 0: its length does not matter; 1: only the share of the text counts


# Names, description, parameters, tags. Parameters are many and alike (`path`, `limit`): they hint, they do not decide.
FIELDS = (SearchField(2.0, 0.3), SearchField(1.0, 0.5), SearchField(0.3, 0.7), SearchField(2.0, 0.3))

PackedCounts = int
"""How often a word stands in each field: 16 bits for each, which no text fills."""
_BITS, _MASK = 16, 0xFFFF
_BYTES = 2 * (len(Document._fields) - 1)
NO_ONE = (1 << 64) - 1
_ONCE = tuple(1 << _BITS * field for field in range(len(Document._fields) - 1))

Lengths = tuple[int, int, int, int]
"""How many words each of the FIELDS has."""
MANY_SLOTS = 256  # of one word: which of them have it in their names is kept
MOST_NAMED = 100  # words of which that is kept
MOST_KEPT = 2_000_000  # numbers that are kept of stems that were asked for


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


class Said:
    """The tools that have a word in any of its forms, and what that says for each, but for how rare the word is."""

    def __init__(self, slots: Sequence[int], weights: Sequence[float]) -> None:
        self.slots = slots
        self.weights = weights

    @cached_property
    def by_slot(self) -> dict[int, float]:
        return dict(zip(self.slots, self.weights, strict=True))

    @cached_property
    def arrays(self) -> "tuple[Slots, Doubles]":
        """Both, for numpy."""
        import numpy as np

        return np.array(self.slots, np.int64), np.array(self.weights)

    @cached_property
    def by_weight(self) -> list[set[int]]:
        """Slots of one weight each, the heaviest first."""
        found: dict[float, set[int]] = {}
        for slot, weight in zip(self.slots, self.weights, strict=True):
            found.setdefault(weight, set()).add(slot)
        return [found[weight] for weight in sorted(found, reverse=True)]


class _Worths(dict[tuple[int, int], float]):
    """Counts and lengths, by their numbers -> what they are worth together. Computed once for each pair."""

    def __init__(self, counts: Sequence[PackedCounts], lengths: Sequence[Lengths], usual: Sequence[float]) -> None:
        self._counts, self._lengths = counts, lengths
        self.usual = usual

    def __missing__(self, key: tuple[int, int]) -> float:
        counts, worth = self._counts[key[0]], 0.0
        for (weight, evening), length, usual in zip(FIELDS, self._lengths[key[1]], self.usual, strict=True):
            if count := counts & _MASK:
                worth += count * (weight / (1 - evening + evening * length / usual))
            counts >>= _BITS
        self[key] = worth
        return worth


Value = TypeVar("Value")


class Numbers(Generic[Value]):
    """Gives each value a number. Few different ones are many times there."""

    def __init__(self, values: Iterable[Value] = ()) -> None:
        self.values = list(values)
        self._known = {value: number for number, value in enumerate(self.values)}

    def of(self, value: Value) -> int:
        number = self._known.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class WordIndex:
    """Who asks or changes it holds `lock`."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.names: list[str | None] = []  # by slot; None where there is no tool
        self.vocabulary = Vocabulary()
        self.spelled = SlotMap()  # names as `name_keys` writes them
        self.parts = SlotMap()
        self._free: list[int] = []
        self._words: list[str] = []  # by number
        self._numbers: dict[str, int] = {}  # of words
        self._single = array("Q")  # by number of word: the slot and the counts of the one tool that has it, or NO_ONE
        self._postings: dict[int, Posting] = {}  # by number of word: of those that several tools have
        self._forms: dict[str, list[str]] = {}  # stem -> words, but for those that are all the forms of themselves
        self._words_of: list[bytes] = []  # by slot: numbers of words
        self._counts = Numbers[PackedCounts]()
        self._lengths = Numbers[Lengths]()
        self._length_of = array("I")  # by slot
        self._totals = [[0, 0] for _ in FIELDS]  # words of all tools, and tools that have any
        self._worths: _Worths | None = None
        self._said: dict[str, Said] = {}
        self._kept = 0
        self._named: dict[str, set[int]] = {}  # of words of many tools that somebody asked for
        self._with_fields: dict[tuple[int, ...], tuple[int, set[int]]] = {}  # see `counts_with`

    def __len__(self) -> int:
        return len(self.names) - len(self._free)

    # Changing

    def add(self, document: Document) -> int:
        """Its slot."""
        slot = self._new_slot()
        counted: dict[str, PackedCounts] = {}
        for once, words in zip(_ONCE, document.fields, strict=True):
            for word in words:
                counted[word] = counted.get(word, 0) + once
        self._words_of[slot] = array("I", [self._put(word, slot, counted[word]) for word in counted]).tobytes()
        names, description, parameters, tags = map(len, document.fields[: len(FIELDS)])
        self._set_lengths(slot, (names, description, parameters, tags), 1)
        self._set_name(slot, document)
        return slot

    def remove(self, slot: int) -> None:
        for number in array("I", self._words_of[slot]):
            self._drop(number, slot)
        name = self.names[slot] or ""
        spelled, parts = name_keys(name)
        self.spelled.discard(spelled, slot)
        for key in parts:
            self.parts.discard(key, slot)
        self._set_lengths(slot, self._lengths.values[self._length_of[slot]], -1)
        self.names[slot], self._words_of[slot] = None, b""
        self._free.append(slot)

    def _new_slot(self) -> int:
        if self._free:
            return self._free.pop()
        self.names.append(None)
        self._words_of.append(b"")
        self._length_of.append(0)
        return len(self.names) - 1

    def _set_name(self, slot: int, document: Document) -> None:
        self.names[slot] = document.name
        spelled, parts = name_keys(document.name)
        self.spelled.add(spelled, slot)
        for key in parts:
            self.parts.add(key, slot)

    def _put(self, word: str, slot: int, counts: PackedCounts) -> int:
        number = self._numbers.get(word)
        if number is None:
            number = self._new_word(word)
        held, single, new = self._postings.get(number), self._single[number], self._counts.of(counts)
        if held is None and single == NO_ONE:
            self._single[number] = slot << 32 | new
        else:
            if held is None:
                held, self._single[number] = _as_posting(single), NO_ONE
                self._postings[number] = held
            held.put(slot, new)
        if self._said or self._named:
            self._forget(word)
        return number

    def _new_word(self, word: str) -> int:
        forms = [*self.forms(stem(word)), word]
        number = self._numbers[word] = len(self._words)
        self._words.append(word)
        self._single.append(NO_ONE)
        self.vocabulary.add(word)
        self._set_forms(stem(word), forms)
        return number

    def _set_forms(self, stem: str, forms: list[str]) -> None:
        if forms and forms != [stem]:
            self._forms[stem] = sorted(forms)
        else:
            self._forms.pop(stem, None)

    def _drop(self, number: int, slot: int) -> None:
        word, held = self._words[number], self._postings.get(number)
        if held is not None:
            held.drop(slot)
            if len(held.slots) == 1:
                self._single[number] = held.slots[0] << 32 | held.counts[0]
                del self._postings[number]
        else:  # its number stays unused: words seldom go
            forms = [form for form in self.forms(stem(word)) if form != word]
            self._single[number] = NO_ONE
            del self._numbers[word]
            self.vocabulary.discard(word)
            self._set_forms(stem(word), forms)
        self._forget(word)

    def _forget(self, word: str) -> None:
        self._named.pop(word, None)
        if (old := self._said.pop(stem(word), None)) is not None:
            self._kept -= len(old.slots)

    def _set_lengths(self, slot: int, lengths: Lengths, sign: int) -> None:
        self._length_of[slot] = self._lengths.of(lengths)
        for total, length in zip(self._totals, lengths, strict=True):
            total[0] += sign * length
            total[1] += sign * (length > 0)

    # Asking

    def knows(self, word: str) -> bool:
        """In any form, and where it says something."""
        return len(self.forms(stem(word))) > 0 and len(self.said(stem(word)).slots) > 0

    def forms(self, of: str) -> Sequence[str]:
        """The words that have this stem."""
        found = self._forms.get(of)
        return found if found is not None else (of,) if of in self._numbers and stem(of) == of else ()

    def stems_of(self, words: Iterable[str]) -> set[str]:
        """Of those words that some tool has."""
        return {stem(word) for word in words if word in self._numbers}

    def posting(self, word: str) -> Posting | None:
        """Of this very form."""
        number = self._numbers.get(word)
        if number is None:
            return None
        held = self._postings.get(number)
        return _as_posting(self._single[number]) if held is None else held

    def counts_with(self, *fields: int) -> set[int]:
        """The numbers of the counts of a word that stands in one of these fields. They only get more."""
        size, found = self._with_fields.get(fields, (0, set[int]()))
        if size < len(self._counts.values):
            wanted = sum(_MASK * _ONCE[field] for field in fields)
            found |= {number for number, counts in enumerate(self._counts.values) if counts & wanted}
            self._with_fields[fields] = len(self._counts.values), found
        return found

    def named(self, words: Iterable[str]) -> set[int]:
        """The tools whose names have one of these words."""
        counts, found = self.counts_with(NAMES), set[int]()
        for number, word in ((self._numbers[word], word) for word in words if word in self._numbers):
            if (held := self._postings.get(number)) is None:
                slot, count = divmod(self._single[number], 1 << 32)
                if count in counts:
                    found.add(slot)
            elif len(held.slots) < MANY_SLOTS:
                found |= _with_counts(held, counts)
            else:
                if (kept := self._named.get(word)) is None:
                    if len(self._named) >= MOST_NAMED:
                        self._named = {}
                    kept = self._named[word] = _with_counts(held, counts)
                found |= kept
        return found

    def rarity(self, stem: str) -> float:
        """What each of the weights is multiplied with."""
        having = len(self.said(stem).slots)
        return log(1 + (len(self) - having + 0.5) / (having + 0.5))

    def said(self, stem: str) -> Said:
        """Kept until the word, or the usual length of texts, changes."""
        worths = self._current_worths()
        if (said := self._said.get(stem)) is None:
            if self._kept > MOST_KEPT:
                self._said, self._kept = {}, 0
            said = self._said[stem] = self._compute(stem, worths)
            self._kept += len(said.slots)
        return said

    def _compute(self, stem: str, worths: _Worths) -> Said:
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

    def _current_worths(self) -> _Worths:
        # Rounded: a change must not make everything be computed again that was right enough.
        usual = [float(f"{total / having:.4g}") if having else 1.0 for total, having in self._totals]
        if self._worths is None or self._worths.usual != usual:
            self._worths = _Worths(self._counts.values, self._lengths.values, usual)
            self._said, self._kept = {}, 0
        return self._worths

    # In a file

    def saved(self) -> "SavedWords":
        return SavedWords(
            names=self.names,
            free=self._free,
            words=self._words,
            stems={number: stem(word) for number, word in enumerate(self._words) if stem(word) != word},
            single=self._single.tobytes(),
            others=array("I", self._postings).tobytes(),
            slots=joined([held.slots for held in self._postings.values()]),
            counts=joined([held.counts for held in self._postings.values()]),
            words_of=(array("I", map(len, self._words_of)).tobytes(), b"".join(self._words_of)),
            packed=[counts.to_bytes(_BYTES, "little") for counts in self._counts.values],
            lengths=self._lengths.values,
            length_of=self._length_of.tobytes(),
            totals=self._totals,
            maps=[one.saved() for one in (self.spelled, self.parts)],
        )

    def restore(self, saved: "SavedWords", once: Once | None = None) -> None:
        """Into one that is empty."""
        once = once or Once(len(saved.names))
        self.names, self._free, self._words = saved.names, saved.free, [*once.texts(saved.words)]
        self._single.frombytes(saved.single)
        others = map(Posting, taken_apart(saved.slots), taken_apart(saved.counts))
        self._postings = dict(zip(numbers_in(saved.others), others, strict=True))
        unused = {number for number, one in enumerate(self._single) if one == NO_ONE} - self._postings.keys()
        there = {word: number for number, word in enumerate(self._words) if number not in unused}
        self._numbers = there
        self.vocabulary.add_all(list(there))
        for number, of in saved.stems.items():
            if number not in unused:
                self._forms.setdefault(of, []).append(self._words[number])
        for of, forms in self._forms.items():
            forms += [of] if of in there and there[of] not in saved.stems else []
            forms.sort()
        lengths, at = numbers_in(saved.words_of[0]), accumulate(numbers_in(saved.words_of[0]), initial=0)
        self._words_of = [saved.words_of[1][start : start + length] for start, length in zip(at, lengths, strict=False)]
        self._counts = Numbers(int.from_bytes(counts, "little") for counts in saved.packed)
        self._lengths, self._length_of = Numbers(saved.lengths), numbers_in(saved.length_of)
        self._totals = saved.totals
        for one, held in zip((self.spelled, self.parts), saved.maps, strict=True):
            one.restore(held, once)


class SavedWords(Struct):
    """A WordIndex, for a file."""

    names: list[str | None]
    free: list[int]
    words: list[str]
    stems: dict[int, str]  # where they differ from the word
    single: bytes
    others: bytes
    slots: tuple[bytes, bytes]
    counts: tuple[bytes, bytes]
    words_of: tuple[bytes, bytes]
    packed: list[bytes]
    lengths: list[tuple[int, int, int, int]]
    length_of: bytes
    totals: list[list[int]]
    maps: list[SavedSlots]


def _with_counts(posting: Posting, counts: Set[int]) -> set[int]:
    return {slot for slot, count in zip(*posting, strict=True) if count in counts}


def _as_posting(one: int) -> Posting:
    return Posting(array("I", [one >> 32]), array("I", [one & 0xFFFFFFFF]))


def _summed(counted: Iterable[tuple[Sequence[int], Sequence[float]]]) -> tuple[Sequence[int], list[float]]:
    sums: dict[int, float] = {}
    for slots, worth in counted:
        for slot, one in zip(slots, worth, strict=True):
            sums[slot] = sums.get(slot, 0.0) + one
    ordered: Mapping[int, float] = dict(sorted(sums.items()))
    return [*ordered], [*ordered.values()]
