"""`WordIndex`: which terms stand in which fields of which tools, as arrays.

A *term* is a word, or a whole name as it is compared. Each term has its *postings*: the slots of the tools that have
it, how often it stands in each scored field, and a bit for every field that has it. A `Part` holds the postings of many
tools and never changes. A changed tool is masked out there, and goes into a small second part that is merged now and
then. `Words` are all parts at one moment: any number of threads may ask them.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain, islice, pairwise
from math import log
from typing import NamedTuple

import numpy as np

from onetool.services.search.documents import FIELD_COUNT, NAMED, OWN, SCORED, SCORED_FIELDS, TEXTS, TITLES, Document
from onetool.services.search.files import Arrays, text_array, texts_in
from onetool.services.search.words import stem

MAX_RECENT = 256  # tools of the second part; with more, it is merged
CHUNK = 5_000  # tools that are indexed together: their words are objects until then
MAX_CACHED = 2_000_000  # weights of a part that are kept
MAX_KNOWN = 1_000  # words whose rarity is kept
MAX_COUNT = 0xFFFF
SATURATION = 1.0
SCORED_COUNT = len(SCORED_FIELDS)
DENSE = 3  # a term that one of so many tools has: its weights are a whole vector, which is added quicker

TEXT_NAMES = ("keys", "words", "groups")
POSTING_ARRAYS = ("counts", "bits")
SLOT_ARRAYS = ("lengths", "group_of", "enabled", "ages", "title_lengths")
NO_SLOTS = np.empty(0, np.int64)

LAST = "\U0010ffff"  # after every prefix

MAX_COMPLETED = 24  # words that a prefix stands for: the shortest, which are nearest to what was typed
MIN_MISTYPED, MAX_MISTYPED = 4, 32  # letters: one wrong letter in three could be any word
TWO_MISTAKES = 7  # letters from which two mistakes still leave a word recognisable


class TermWeights(NamedTuple):
    """What a word says for each tool that has it, but for how rare it is."""

    slots: np.ndarray | None  # None: the weights are those of all slots
    weights: np.ndarray


class ScoredTerms:
    """Weights by stem, for one set of averages. BM25F: each further time counts less, and less in a long text."""

    def __init__(self, lengths: np.ndarray, averages: tuple[float, ...]) -> None:
        self.averages = averages
        columns = zip(SCORED_FIELDS, (lengths / np.array(averages)).T, strict=True)
        self.norms = np.array([field.weight / (1 - field.b + field.b * ratio) for field, ratio in columns])
        self.weights: dict[str, TermWeights] = {}
        self._size = 0

    def keep(self, base: str, found: TermWeights) -> None:
        if self._size > MAX_CACHED:
            self.weights, self._size = {}, 0
        self.weights[base] = found
        self._size += len(found.weights) + 1


class Part:
    """The postings of many tools. Slots are in the order of recency: newest first, then by key."""

    def __init__(self, keys: list[str], words: list[str], groups: list[str], arrays: Arrays) -> None:
        self.keys, self.words, self.groups = keys, words, groups
        self.starts, self.slots = arrays["starts"], arrays["slots"]  # of each word's postings
        self.counts, self.bits = arrays["counts"], arrays["bits"]  # of each posting
        self.lengths = arrays["lengths"]  # words in each scored field, by slot
        self.group_of, self.enabled = arrays["group_of"], arrays["enabled"]  # by slot
        self.ages, self.title_lengths = arrays["ages"], arrays["title_lengths"]
        self._scored = ScoredTerms(self.lengths, (1.0,) * SCORED_COUNT)

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def read(cls, saved: Arrays) -> "Part":
        """Return the part that `saved` gave. Raises KeyError."""
        keys, words, groups = (texts_in(saved[name]) for name in TEXT_NAMES)
        return cls(keys, words, groups, saved)

    def saved(self) -> Arrays:
        texts = {name: text_array(getattr(self, name)) for name in TEXT_NAMES}
        return texts | {name: getattr(self, name) for name in (*POSTING_ARRAYS, *SLOT_ARRAYS, "starts", "slots")}

    @cached_property
    def slot_of(self) -> dict[str, int]:
        return {key: slot for slot, key in enumerate(self.keys)}

    @cached_property
    def word_bits(self) -> np.ndarray:
        """The fields that each word stands in."""
        return np.bitwise_or.reduceat(self.bits, self.starts[:-1])

    @cached_property
    def word_lengths(self) -> np.ndarray:
        return np.fromiter(map(len, self.words), np.int32, len(self.words))

    @cached_property
    def sorted_keys(self) -> list[str]:
        return sorted(self.keys)

    @cached_property
    def by_key(self) -> np.ndarray:
        """The place of each slot in the order of the keys."""
        places = np.empty(len(self))
        places[[self.slot_of[key] for key in self.sorted_keys]] = np.arange(len(self))
        return places

    def place(self, age: int, key: str) -> int:
        """The first slot behind this age and key."""
        return bisect_right(range(len(self)), (age, key), key=lambda slot: (self.ages[slot], self.keys[slot]))

    @cached_property
    def _stemmed(self) -> dict[str, list[int]]:
        """Stem -> its words, but for a word that is its own stem."""
        found: dict[str, list[int]] = {}
        for number in np.flatnonzero(self.word_bits & SCORED).tolist():
            if (base := stem(self.words[number])) != self.words[number]:
                found.setdefault(base, []).append(number)
        return found

    @cached_property
    def _by_length(self) -> dict[int, list[str]]:
        """The words that a mistyped word may mean, by their length, in their order."""
        found: dict[int, list[str]] = {}
        for number in np.flatnonzero(self.word_bits & (SCORED | TEXTS | NAMED)).tolist():
            if (word := self.words[number]).isalpha():
                found.setdefault(len(word), []).append(word)
        return found

    @cached_property
    def _named(self) -> tuple[np.ndarray, np.ndarray, str]:
        """The words of own names: their numbers, where each starts in a text of all of them, and this text."""
        numbers = np.flatnonzero(self.word_bits & OWN)
        starts = np.concatenate([[0], np.cumsum(self.word_lengths[numbers] + 1)])
        return numbers, starts, "\n".join(map(self.words.__getitem__, numbers.tolist()))

    def number(self, word: str) -> int | None:
        at = bisect_left(self.words, word)
        return at if at < len(self.words) and self.words[at] == word else None

    def with_prefix(self, prefix: str) -> tuple[int, int]:
        """The range of the words that start so. Also the word itself."""
        first = bisect_left(self.words, prefix)
        return first, bisect_left(self.words, prefix + LAST, first)

    def postings(self, first: int, end: int, fields: int) -> np.ndarray:
        """Slots of the words in this range, where they stand in one of the fields. One may come several times."""
        some = slice(self.starts[first], self.starts[end])
        return self.slots[some][(self.bits[some] & fields) != 0]

    def titles_with_prefix(self, prefix: str) -> tuple[np.ndarray, np.ndarray]:
        first, end = self.with_prefix(prefix)
        some = slice(self.starts[first], self.starts[end])
        is_title = (self.bits[some] & TITLES) != 0
        lengths = np.repeat(self.word_lengths[first:end], np.diff(self.starts[first : end + 1]))
        return self.slots[some][is_title], lengths[is_title]

    def plain_words(self, length: int, prefix: str) -> list[str]:
        words = self._by_length.get(length, [])
        return words[bisect_left(words, prefix) : bisect_left(words, prefix + LAST)] if prefix else words

    def names_containing(self, text: str) -> Iterator[int]:
        """The words of own names with this text inside. One search in all of them is quicker than one in each."""
        numbers, starts, every = self._named
        found = [one.start() for one in re.finditer(re.escape(text), every)]
        return iter(numbers[np.unique(np.searchsorted(starts, found, "right") - 1)].tolist())

    def forms(self, base: str) -> list[int]:
        """The numbers of the words that have this stem."""
        own = self.number(base) if stem(base) == base else None
        return [*self._stemmed.get(base, ()), *(() if own is None else (own,))]

    def weights(self, base: str, averages: tuple[float, ...]) -> TermWeights:
        """Return what the words of this stem say, where texts have these lengths on average."""
        known = self._scored
        if known.averages != averages:
            known = self._scored = ScoredTerms(self.lengths, averages)
        if (found := known.weights.get(base)) is None:
            found = self._compute(self.forms(base), known.norms)
            known.keep(base, found)
        return found

    def _compute(self, forms: list[int], norms: np.ndarray) -> TermWeights:
        total = np.zeros(len(self) if forms else 0)
        for number in forms:
            some = slice(self.starts[number], self.starts[number + 1])
            slots, counts = self.slots[some], self.counts[some]
            for field in range(SCORED_COUNT):  # one by one: equal tools must get equal sums
                total[slots] += counts[:, field] * norms[field, slots]
        slots = np.flatnonzero(total)
        if len(slots) * DENSE > len(self):
            return TermWeights(None, total / (SATURATION + total))
        return TermWeights(slots, total[slots] / (SATURATION + total[slots]))


class _Numbers(dict[str, int]):
    """Gives each new word the next number."""

    def __missing__(self, word: str) -> int:
        self[word] = len(self)
        return self[word]


def index_documents(documents: Mapping[str, Document]) -> Part:
    """Return the part of these documents, which are given by their keys."""
    keys = sorted(documents, key=lambda key: (documents[key].age, key))
    ordered = [documents[key] for key in keys]
    numbers, groups, terms, sizes = _Numbers(), _Numbers(), array("I"), array("I")
    for document in ordered:
        for words in document.terms:
            terms.extend(map(numbers.__getitem__, words))
            sizes.append(len(words))
    words = sorted(numbers)
    places = np.empty(len(words), np.int64)
    places[[numbers[word] for word in words]] = np.arange(len(words))
    every = np.array(sizes, np.int64).reshape(-1, FIELD_COUNT)
    slot, field = np.divmod(np.repeat(np.arange(every.size), every.ravel()), every.shape[1])
    pairs, posting = np.unique(places[np.array(terms, np.int64)] * len(keys) + slot, return_inverse=True)
    is_scored = field < SCORED_COUNT
    cells = posting[is_scored] * SCORED_COUNT + field[is_scored]
    counts = np.bincount(cells, minlength=len(pairs) * SCORED_COUNT).reshape(-1, SCORED_COUNT)
    bits = np.zeros(len(pairs), np.uint16)
    for one in range(every.shape[1]):
        bits[posting[field == one]] |= 1 << one
    arrays = {
        "starts": np.searchsorted(pairs, np.arange(len(words) + 1) * len(keys)),
        "slots": (pairs % max(len(keys), 1)).astype(np.int32),
        "counts": np.minimum(counts, MAX_COUNT).astype(np.uint16),
        "bits": bits,
        "lengths": every[:, :SCORED_COUNT].astype(np.int32),
        "group_of": np.array([groups[document.group] for document in ordered], np.int32),
        "enabled": np.array([document.enabled for document in ordered], bool),
        "ages": np.array([document.age for document in ordered], np.int64),
        "title_lengths": np.array([document.title_length for document in ordered], np.int32),
    }
    return Part(keys, words, [*groups], arrays)


def merge_parts(parts: Sequence[Part], alive: np.ndarray) -> Part:
    """Return one part of the tools that are alive. `alive` is about all slots, part by part."""
    kept = np.flatnonzero(alive)
    every, ages = [*chain.from_iterable(part.keys for part in parts)], np.concatenate([part.ages for part in parts])
    recency = [*zip(ages[kept].tolist(), (every[slot] for slot in kept.tolist()), strict=True)]
    order = kept[sorted(range(len(kept)), key=recency.__getitem__)]  # nearly sorted, which takes little time
    new_slot = np.full(len(every), -1, np.int64)
    new_slot[order] = np.arange(len(order))
    words = [*dict.fromkeys(sorted(chain.from_iterable(part.words for part in parts)))]
    numbers, groups = {word: number for number, word in enumerate(words)}, _Numbers()
    offsets = [*accumulate(map(len, parts), initial=0)]
    word_of = np.concatenate(
        [np.repeat(np.fromiter(map(numbers.__getitem__, part.words), np.int64), np.diff(part.starts)) for part in parts]
    )
    slots = np.concatenate([new_slot[part.slots + offset] for part, offset in zip(parts, offsets, strict=False)])
    postings = np.flatnonzero(slots >= 0)
    pairs = word_of[postings] * len(order) + slots[postings]
    postings = postings[np.argsort(pairs, kind="stable")]
    sizes = np.bincount(word_of[postings], minlength=len(words))
    is_used = sizes > 0
    group_of = np.concatenate(
        [np.fromiter((groups[group] for group in part.groups), np.int32)[part.group_of] for part in parts]
    )
    arrays = {
        "starts": np.concatenate([[0], np.cumsum(sizes[is_used])]),
        "slots": slots[postings].astype(np.int32),
        **{name: np.concatenate([getattr(part, name) for part in parts])[postings] for name in POSTING_ARRAYS},
        **{name: np.concatenate([getattr(part, name) for part in parts])[order] for name in SLOT_ARRAYS},
        "group_of": group_of[order],
    }
    used = [word for word, is_there in zip(words, is_used.tolist(), strict=True) if is_there]
    return Part([every[slot] for slot in order.tolist()], used, [*groups], arrays)


class WordIndex:
    """Documents by their keys, which come and go. One thread changes it at a time."""

    def __init__(self, part: Part | None = None) -> None:
        self._parts: list[tuple[Part, set[int]]] = [] if part is None else [(part, set())]  # with slots that are gone
        self._recent: dict[str, Document] = {}
        self._words: Words | None = None

    def put(self, key: str, document: Document) -> None:
        self.drop(key)
        self._recent[key], self._words = document, None
        if len(self._recent) >= CHUNK:
            self._parts.append((index_documents(self._recent), set()))
            self._recent = {}

    def drop(self, key: str) -> None:
        if self._recent.pop(key, None) is not None:
            self._words = None
        for part, gone in self._parts:
            if (slot := part.slot_of.get(key)) is not None:
                gone.add(slot)
                self._words = None

    def has_group(self, group: str) -> bool:
        """Whether a document may have this group."""
        recent = (document.group == group for document in self._recent.values())
        return any(group in part.groups for part, _ in self._parts) or any(recent)

    def current(self) -> "Words":
        if self._words is None:
            if len(self._recent) > MAX_RECENT or len(self._parts) > 1:
                self.merged()
            recent = [index_documents(self._recent)] if self._recent else []
            self._words = Words([*(part for part, _ in self._parts), *recent], self._alive(self._recent))
        return self._words

    def merged(self) -> Part:
        """Return the only part, with all documents."""
        recent = [index_documents(self._recent)] if self._recent or not self._parts else []
        if recent or len(self._parts) > 1 or self._parts[0][1]:
            parts = [*(part for part, _ in self._parts), *recent]
            merged = merge_parts(parts, self._alive(self._recent))
            self._parts, self._recent, self._words = [(merged, set())], {}, None
        return self._parts[0][0]

    def _alive(self, recent: Mapping[str, Document]) -> np.ndarray:
        alive = np.ones(sum(len(part) for part, _ in self._parts) + len(recent), bool)
        offset = 0
        for part, gone in self._parts:
            alive[[offset + slot for slot in gone]] = False
            offset += len(part)
        return alive


class Words:
    """All parts at one moment. Slots go through them, part by part."""

    def __init__(self, parts: Sequence[Part] = (), alive: np.ndarray | None = None) -> None:
        self.parts = [part for part in parts if len(part)]
        self.size = sum(map(len, self.parts))
        self.alive = np.ones(self.size, bool) if alive is None else alive
        self.count = int(np.count_nonzero(self.alive))
        self._offsets = [*accumulate(map(len, self.parts), initial=0)]
        self._weights: dict[str, tuple[float, list[tuple[slice, TermWeights]]]] = {}

    def joined(self, other: "Words") -> "Words":
        return Words([*self.parts, *other.parts], np.concatenate([self.alive, other.alive]))

    @cached_property
    def keys(self) -> list[str]:
        return [*chain.from_iterable(part.keys for part in self.parts)]

    @cached_property
    def ages(self) -> np.ndarray:
        return self.gathered("ages")

    @cached_property
    def averages(self) -> tuple[float, ...]:
        """The usual length of each field. Rounded: a changed tool must not change the weights of all others."""
        lengths = self.gathered("lengths")[self.alive].reshape(-1, SCORED_COUNT)
        totals, having = lengths.sum(axis=0).tolist(), np.count_nonzero(lengths, axis=0).tolist()
        return tuple(float(f"{total / some:.4g}") if some else 1.0 for total, some in zip(totals, having, strict=True))

    def gathered(self, name: str) -> np.ndarray:
        """Return an array of all parts."""
        found = [getattr(part, name) for part in self.parts]
        return found[0] if len(found) == 1 else np.concatenate(found) if found else np.empty(0)

    def placed(self) -> Iterator[tuple[Part, slice]]:
        """The parts, and the slots of each."""
        return zip(self.parts, (slice(*bounds) for bounds in pairwise(self._offsets)), strict=True)

    def _placed(self) -> Iterator[tuple[Part, int]]:
        return zip(self.parts, self._offsets, strict=False)

    @cached_property
    def recency(self) -> np.ndarray:
        """The place of each tool of a `WordIndex` in the order of recency."""
        places = [np.arange(len(part)) for part in self.parts]
        for part in self.parts[1:]:
            before = [self.parts[0].place(*one) for one in zip(part.ages.tolist(), part.keys, strict=True)]
            places[1] = _between(before, places[1])
        return np.concatenate(places) if places else np.empty(0)

    @cached_property
    def by_key(self) -> np.ndarray:
        """The same in the order of the keys."""
        places = [part.by_key for part in self.parts]
        for part in self.parts[1:]:
            before = [bisect_left(self.parts[0].sorted_keys, key) for key in part.keys]
            places[1] = _between(before, places[1])
        return np.concatenate(places) if places else np.empty(0)

    def behind(self, age: int, key: str) -> np.ndarray:
        """Return which tools are older than that, or have a greater key."""
        found = [np.arange(len(part)) >= part.place(age, key) for part in self.parts]
        return np.concatenate([np.empty(0, bool), *found])

    # Words

    def having(self, word: str, fields: int) -> np.ndarray:
        """Slots of the tools that have this very word in one of the fields."""
        found = ((part, offset, part.number(word)) for part, offset in self._placed())
        return _joined(part.postings(at, at + 1, fields) + offset for part, offset, at in found if at is not None)

    def having_prefix(self, prefix: str, fields: int) -> np.ndarray:
        return _joined(part.postings(*part.with_prefix(prefix), fields) + offset for part, offset in self._placed())

    def titles_with_prefix(self, prefix: str) -> tuple[np.ndarray, np.ndarray]:
        """Slots of the tools that have a title which starts so, and how many characters it has."""
        found = [(part.titles_with_prefix(prefix), offset) for part, offset in self._placed()]
        return _joined(slots + offset for (slots, _), offset in found), _joined(lengths for (_, lengths), _ in found)

    def having_stem(self, base: str, fields: int) -> np.ndarray:
        every = ((part, offset, at) for part, offset in self._placed() for at in part.forms(base))
        return _joined(part.postings(at, at + 1, fields) + offset for part, offset, at in every)

    def longer(self, prefix: str) -> list[str]:
        """The scored words that start so, and go on: the shortest ones."""
        found = set[str]()
        for part, offset in self._placed():
            first, end = part.with_prefix(prefix)
            some = first + np.flatnonzero(part.word_bits[first:end] & SCORED)
            some = some[part.word_lengths[some] > len(prefix)]
            some = some[np.argsort(part.word_lengths[some], kind="stable")]
            there = (part.words[at] for at in some.tolist() if self._is_alive(part, offset, at, SCORED))
            found.update(islice(there, MAX_COMPLETED))
        return sorted(found, key=lambda word: (len(word), word))[:MAX_COMPLETED]

    def names_containing(self, text: str) -> np.ndarray:
        """Slots of the tools that have a word with this text inside in their own names."""
        every = ((part, offset, at) for part, offset in self._placed() for at in part.names_containing(text))
        return _joined(part.postings(at, at + 1, OWN) + offset for part, offset, at in every)

    def mistyped(self, word: str, fields: int, first_letter: str = "") -> dict[str, int]:
        """The words of the fields that differ by mistakes in typing, each with how many, the nearest first."""
        if not (MIN_MISTYPED <= len(word) <= MAX_MISTYPED and word.isalpha()):
            return {}
        from rapidfuzz.distance import OSA  # only a mistake needs it, and most queries have none
        from rapidfuzz.process import extract

        mistakes, found = 2 if len(word) >= TWO_MISTAKES else 1, dict[str, int]()
        lengths = range(max(len(word) - mistakes, MIN_MISTYPED), len(word) + mistakes + 1)
        for part, offset in self._placed():
            some = chain.from_iterable(part.plain_words(length, first_letter) for length in lengths)
            for known, distance, _ in extract(word, [*some], scorer=OSA.distance, score_cutoff=mistakes, limit=None):
                if distance and self._is_alive(part, offset, bisect_left(part.words, known), fields):
                    found[known] = int(distance)
        return dict(sorted(found.items(), key=lambda one: (one[1], len(one[0]), one[0])))

    def _is_alive(self, part: Part, offset: int, number: int, fields: int) -> bool:
        return bool(part.word_bits[number] & fields) and bool(
            self.alive[part.postings(number, number + 1, fields) + offset].any()
        )

    # Weights

    def weights(self, base: str) -> tuple[float, list[tuple[slice, TermWeights]]]:
        """How rare a word is, in all its forms, and its weights, part by part."""
        if (known := self._weights.get(base)) is not None:
            return known
        found, having = list[tuple[slice, TermWeights]](), 0
        for part, place in self.placed():
            one = part.weights(base, self.averages)
            if len(one.weights):
                alive = self.alive[place]
                having += int(np.count_nonzero(alive & (one.weights > 0) if one.slots is None else alive[one.slots]))
                found.append((place, one))
        idf = log(1 + (self.count - having + 0.5) / (having + 0.5)) if having else 0.0
        if len(self._weights) >= MAX_KNOWN:
            self._weights = {}
        self._weights[base] = idf, found
        return idf, found


def _joined(slots: Iterable[np.ndarray]) -> np.ndarray:
    found = [*slots]
    return found[0] if len(found) == 1 else np.concatenate([NO_SLOTS, *found])


def _between(before: list[int], places: np.ndarray) -> np.ndarray:
    """Return the places of a second part among those of the first one: each behind so many of them."""
    return np.array(before) - 1 + (places + 1) / (len(places) + 2)


def smallest(values: np.ndarray, order: np.ndarray, limit: int) -> np.ndarray:
    """Return the places of the `limit` smallest values, smallest first, equal ones in this order."""
    found = np.arange(len(values))
    if len(values) > limit:  # equal ones may be very many
        last = np.partition(values, limit - 1)[limit - 1]
        found, equal = np.flatnonzero(values < last), np.flatnonzero(values == last)
        left = limit - len(found)
        found = np.concatenate([found, equal[np.argpartition(order[equal], left - 1)[:left]]])
    return found[np.lexsort((order[found], values[found]))]
