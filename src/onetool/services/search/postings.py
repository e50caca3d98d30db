"""`WordIndex`: a mutable index of tools; `Words`: an immutable snapshot of it.

A changed tool is masked in the large part, and added to a small second part, which is merged occasionally. Any number
of threads may query `Words`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain, islice, pairwise
from math import log
from typing import NamedTuple

import numpy as np

from onetool.services.search.documents import OWN, SCORED, SCORED_FIELDS, Document
from onetool.services.search.part import (
    NO_SLOTS,
    SCORED_COUNT,
    IndexPart,
    index_documents,
    length_totals,
    merge_parts,
)

MAX_RECENT = 256  # tools in the second part before a merge
CHUNK = 5_000  # tools indexed together, whose words take much memory until then
MAX_CACHED = 2_000_000  # weights
SATURATION = 1.0
DENSE = 3  # a term in more than 1 of 3 tools has a full vector of weights, which is faster to add
SAMPLED = 16  # 1 value in 16

MAX_COMPLETED = 24  # completions of a prefix, the shortest first
MIN_MISTYPED, MAX_MISTYPED = 4, 32  # letters: one wrong letter in three could be any word
TWO_MISTAKES = 7  # letters from which two mistakes still leave a word recognisable


class TermWeights(NamedTuple):
    slots: np.ndarray | slice
    weights: np.ndarray


class WordIndex:
    """A mutable index of documents by key. Only one thread at a time may change it."""

    def __init__(self, part: IndexPart | None = None) -> None:
        self._parts: list[tuple[IndexPart, set[int]]] = [] if part is None else [(part, set())]  # with removed slots
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

    def current(self) -> "Words":
        if self._words is None:
            if len(self._recent) > MAX_RECENT or len(self._parts) > 1:
                self.merged()
            recent = [index_documents(self._recent)] if self._recent else []
            self._words = Words([*(part for part, _ in self._parts), *recent], self._alive(self._recent))
        return self._words

    def merged(self) -> IndexPart:
        """Merge all documents into one part, and return it."""
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
    """A snapshot of all parts. Slots are numbered part by part."""

    def __init__(self, parts: Sequence[IndexPart] = (), alive: np.ndarray | None = None) -> None:
        self.parts = [part for part in parts if len(part)]
        self.size = sum(map(len, self.parts))
        self.alive = np.ones(self.size, bool) if alive is None else alive
        self.count = int(np.count_nonzero(self.alive))
        self._offsets = [*accumulate(map(len, self.parts), initial=0)]
        self._weights: dict[str, TermWeights] = {}
        self._cached = 0  # number of cached weights

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
        """The average length of each field, rounded so that one changed tool doesn't change all weights."""
        totals = np.zeros((2, SCORED_COUNT), int)
        for part, place in self.placed():
            totals += part.totals - length_totals(part.lengths[~self.alive[place]])
        return tuple(float(f"{total / having:.4g}") if having else 1.0 for total, having in totals.T.tolist())

    def gathered(self, name: str) -> np.ndarray:
        """Return the concatenated arrays of all parts."""
        found = [getattr(part, name) for part in self.parts]
        return found[0] if len(found) == 1 else np.concatenate(found) if found else np.empty(0)

    def placed(self) -> Iterator[tuple[IndexPart, slice]]:
        """Yield each part with its slots."""
        return zip(self.parts, (slice(*bounds) for bounds in pairwise(self._offsets)), strict=True)

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
        """The place of each tool in the order of keys."""
        places = [part.by_key for part in self.parts]
        for part in self.parts[1:]:
            before = [bisect_left(self.parts[0].sorted_keys, key) for key in part.keys]
            places[1] = _between(before, places[1])
        return np.concatenate(places) if places else np.empty(0)

    @cached_property
    def by_group(self) -> np.ndarray:
        """The place of each tool in the order of groups, then keys."""
        places = np.empty(self.size)
        places[np.lexsort((self.by_key, self.numbered_groups()[0]))] = np.arange(self.size)
        return places

    def numbered_groups(self, name: Callable[[str], str] = str) -> tuple[np.ndarray, list[str]]:
        """Return the number of each tool's group, and the group names by number."""
        names = sorted({name(group) for part in self.parts for group in part.groups})
        number = {group: place for place, group in enumerate(names)}
        found = [np.array([number[name(group)] for group in part.groups])[part.group_of] for part in self.parts]
        return np.concatenate(found) if found else np.empty(0, int), names

    def behind(self, age: int, key: str) -> np.ndarray:
        """Return a mask of the tools that come after this age and key."""
        found = [np.arange(len(part)) >= part.place(age, key) for part in self.parts]
        return np.concatenate([np.empty(0, bool), *found])

    # Words

    def having(self, word: str, fields: int) -> np.ndarray:
        """Return the slots of the tools that have exactly this word in one of the fields."""
        return self._slots(lambda part: [part.find(word)], fields)

    def having_prefix(self, prefix: str, fields: int) -> np.ndarray:
        return self._slots(lambda part: [part.with_prefix(prefix)], fields)

    def having_stem(self, base: str, fields: int) -> np.ndarray:
        return self._slots(lambda part: [range(at, at + 1) for at in part.forms(base)], fields)

    def names_containing(self, text: str) -> np.ndarray:
        """Return the slots of the tools whose own names have a word that contains this text."""
        return self._slots(lambda part: [range(at, at + 1) for at in part.names_containing(text)], OWN)

    def _slots(self, find: Callable[[IndexPart], list[range]], fields: int) -> np.ndarray:
        every = ((part, place.start, words) for part, place in self.placed() for words in find(part) if words)
        return np.concatenate([NO_SLOTS, *(part.postings(words, fields) + start for part, start, words in every)])

    def lengths_with_prefix(self, prefix: str, fields: int) -> np.ndarray:
        """Return the length of the matching word for each slot of `having_prefix`."""
        every = (part.lengths_of(part.with_prefix(prefix), fields) for part in self.parts)
        return np.concatenate([NO_SLOTS, *every])

    def longer(self, prefix: str) -> list[str]:
        """Return the shortest scored words that are longer than this prefix."""
        found = set[str]()
        for part, place in self.placed():
            words = part.with_prefix(prefix)
            some = words.start + np.flatnonzero(part.word_bits[words.start : words.stop] & SCORED)
            some = some[part.word_lengths[some] > len(prefix)]
            some = some[np.argsort(part.word_lengths[some], kind="stable")]
            words_in_use = (part.words[at] for at in some.tolist() if self._is_alive(part, place, at, SCORED))
            found.update(islice(words_in_use, MAX_COMPLETED))
        return sorted(found, key=lambda word: (len(word), word))[:MAX_COMPLETED]

    def mistyped(self, word: str, fields: int, first_letter: str = "") -> dict[str, int]:
        """Return similar words of the fields, each with its number of typos, fewest first."""
        if not (MIN_MISTYPED <= len(word) <= MAX_MISTYPED and word.isalpha()):
            return {}
        from rapidfuzz.distance import OSA  # imported late: most queries have no typos
        from rapidfuzz.process import extract

        mistakes, found = 2 if len(word) >= TWO_MISTAKES else 1, dict[str, int]()
        lengths = range(max(len(word) - mistakes, MIN_MISTYPED), len(word) + mistakes + 1)
        for part, place in self.placed():
            some = chain.from_iterable(part.plain_words(length, first_letter) for length in lengths)
            for known, distance, _ in extract(word, [*some], scorer=OSA.distance, score_cutoff=mistakes, limit=None):
                if distance and self._is_alive(part, place, bisect_left(part.words, known), fields):
                    found[known] = int(distance)
        return dict(sorted(found.items(), key=lambda one: (one[1], len(one[0]), one[0])))

    def _is_alive(self, part: IndexPart, place: slice, number: int, fields: int) -> bool:
        if not part.word_bits[number] & fields:
            return False
        return bool(self.alive[place][part.postings(range(number, number + 1), fields)].any())

    # Weights

    @cached_property
    def _norms(self) -> list[np.ndarray]:
        """The weight of a word in each scored field of each tool, lower in long fields."""
        ratios = self.gathered("lengths").reshape(-1, SCORED_COUNT).T / np.array([self.averages]).T
        return [
            field.weight / (1 - field.b + field.b * ratio) for field, ratio in zip(SCORED_FIELDS, ratios, strict=True)
        ]

    def knows(self, base: str) -> bool:
        """Return whether any tool has a word with this stem."""
        return len(self.weights(base).weights) > 0

    def weights(self, base: str) -> TermWeights:
        """Return the BM25F weight of this stem for each tool that has it."""
        if (known := self._weights.get(base)) is not None:
            return known
        total = np.zeros(self.size)
        for part, place in self.placed():
            for number in part.forms(base):
                some = slice(part.starts[number], part.starts[number + 1])
                slots = part.slots[some] + place.start
                for counts, norms in zip(part.counts[some].T, self._norms, strict=True):
                    total[slots] += counts * norms[slots]
        total *= self.alive
        slots = np.flatnonzero(total)
        idf = log(1 + (self.count - len(slots) + 0.5) / (len(slots) + 0.5))
        if len(slots) * DENSE > self.size:
            found = TermWeights(slice(None), idf * total / (SATURATION + total))
        else:
            found = TermWeights(slots, idf * total[slots] / (SATURATION + total[slots]))
        if self._cached > MAX_CACHED:
            self._weights, self._cached = {}, 0
        self._weights[base] = found
        self._cached += len(found.weights) + 1
        return found


def _between(before: list[int], places: np.ndarray) -> np.ndarray:
    """Return places for a second part within the order of the first. `before` counts the preceding tools."""
    return np.array(before) - 1 + (places + 1) / (len(places) + 2)


def smallest(values: np.ndarray, order: np.ndarray, limit: int) -> np.ndarray:
    """Return the indexes of the `limit` smallest values, smallest first, equal values by `order`."""
    found, last = np.arange(len(values)), 0.0
    for step in (SAMPLED, 1):  # a sample leaves few values to compare, unless very many are equal
        if limit * step < len(found):
            last = np.partition(values[found[::step]], limit - 1)[limit - 1]
            found = found[values[found] <= last]
    if len(found) > limit:
        is_equal = values[found] == last
        found, equal = found[~is_equal], found[is_equal]
        left = limit - len(found)
        found = np.concatenate([found, equal[np.argpartition(order[equal], left - 1)[:left]]])
    return found[np.lexsort((order[found], values[found]))]
