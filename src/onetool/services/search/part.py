"""`IndexPart`: an immutable inverted index of tools, as arrays.

A *term* is a word or a normalised whole name. Terms are sorted, so terms with a common prefix are a range. Each has its
*postings*: the slots of the tools that have the term, its count in each scored field, and a bit for every field that
has it.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain

import numpy as np

from onetool.services.search.documents import FIELD_COUNT, NAMED, OWN, SCORED, SCORED_FIELDS, TEXTS, Document
from onetool.services.search.files import Arrays, text_array, texts_in
from onetool.services.search.words import stem

MAX_COUNT = 0xFFFF
SCORED_COUNT = len(SCORED_FIELDS)

TEXT_NAMES = ("keys", "words", "groups")
POSTING_ARRAYS = ("counts", "bits")
SLOT_ARRAYS = ("lengths", "group_of", "enabled", "ages", "title_lengths")
ARRAY_NAMES = ("starts", "slots", *POSTING_ARRAYS, *SLOT_ARRAYS)
NO_SLOTS = np.empty(0, np.int64)

LAST = "\U0010ffff"  # after every prefix


class IndexPart:
    """The postings of many tools. Slots are in order of recency: newest first, then by key."""

    def __init__(self, keys: list[str], words: list[str], groups: list[str], arrays: Arrays) -> None:
        self.keys, self.words, self.groups = keys, words, groups
        self.starts, self.slots = arrays["starts"], arrays["slots"]  # of each word's postings
        self.counts, self.bits = arrays["counts"], arrays["bits"]  # of each posting
        self.lengths = arrays["lengths"]  # words in each scored field, by slot
        self.group_of, self.enabled = arrays["group_of"], arrays["enabled"]  # by slot
        self.ages, self.title_lengths = arrays["ages"], arrays["title_lengths"]

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def read(cls, saved: Arrays) -> "IndexPart":
        """Return the part from the arrays of `saved`."""
        keys, words, groups = (texts_in(saved[name]) for name in TEXT_NAMES)
        return cls(keys, words, groups, saved)

    def saved(self) -> Arrays:
        texts = {name: text_array(getattr(self, name)) for name in TEXT_NAMES}
        return texts | {name: getattr(self, name) for name in ARRAY_NAMES}

    @cached_property
    def slot_of(self) -> dict[str, int]:
        return {key: slot for slot, key in enumerate(self.keys)}

    @cached_property
    def totals(self) -> np.ndarray:
        return length_totals(self.lengths)

    @cached_property
    def word_bits(self) -> np.ndarray:
        """The fields that have each word, as bits."""
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
        """Return the first slot after this age and key."""
        return bisect_right(range(len(self)), (age, key), key=lambda slot: (self.ages[slot], self.keys[slot]))

    @cached_property
    def _stemmed(self) -> dict[str, list[int]]:
        """The words of each stem, except a word that is its own stem."""
        found: dict[str, list[int]] = {}
        for number in np.flatnonzero(self.word_bits & SCORED).tolist():
            if (base := stem(self.words[number])) != self.words[number]:
                found.setdefault(base, []).append(number)
        return found

    @cached_property
    def _by_length(self) -> dict[int, list[str]]:
        """Candidates for mistyped words, by length, sorted."""
        found: dict[int, list[str]] = {}
        for number in np.flatnonzero(self.word_bits & (SCORED | TEXTS | NAMED)).tolist():
            if (word := self.words[number]).isalpha():
                found.setdefault(len(word), []).append(word)
        return found

    @cached_property
    def _named(self) -> tuple[np.ndarray, np.ndarray, str]:
        """The words of own names: their numbers, the start of each in the joined text, and the joined text."""
        numbers = np.flatnonzero(self.word_bits & OWN)
        starts = np.concatenate([[0], np.cumsum(self.word_lengths[numbers] + 1)])
        return numbers, starts, "\n".join(map(self.words.__getitem__, numbers.tolist()))

    def find(self, word: str) -> range:
        """Return the number of a word as a range, which is empty if the word is missing."""
        at = bisect_left(self.words, word)
        return range(at, at + 1) if at < len(self.words) and self.words[at] == word else range(0)

    def with_prefix(self, prefix: str) -> range:
        """Return the numbers of the words with this prefix, including the prefix itself."""
        first = bisect_left(self.words, prefix)
        return range(first, bisect_left(self.words, prefix + LAST, first))

    def postings(self, words: range, fields: int) -> np.ndarray:
        """Return the slots that have these words in one of the fields. Slots may repeat."""
        some = slice(self.starts[words.start], self.starts[words.stop])
        return self.slots[some][(self.bits[some] & fields) != 0]

    def lengths_of(self, words: range, fields: int) -> np.ndarray:
        """Return the length of the word of each posting, in the order of `postings`."""
        some = slice(self.starts[words.start], self.starts[words.stop])
        lengths = np.repeat(
            self.word_lengths[words.start : words.stop], np.diff(self.starts[words.start : words.stop + 1])
        )
        return lengths[(self.bits[some] & fields) != 0]

    def plain_words(self, length: int, prefix: str) -> list[str]:
        words = self._by_length.get(length, [])
        return words[bisect_left(words, prefix) : bisect_left(words, prefix + LAST)] if prefix else words

    def names_containing(self, text: str) -> list[int]:
        """Return the words of own names that contain this text. One search of the joined text is faster than many."""
        numbers, starts, every = self._named
        found = [match.start() for match in re.finditer(re.escape(text), every)]
        return numbers[np.unique(np.searchsorted(starts, found, "right") - 1)].tolist()

    def forms(self, base: str) -> list[int]:
        """Return the words that have this stem."""
        return [*self._stemmed.get(base, ()), *(self.find(base) if stem(base) == base else ())]


def length_totals(lengths: np.ndarray) -> np.ndarray:
    """Return for each scored field the number of words, and of tools that have any."""
    return np.array([lengths.sum(axis=0), np.count_nonzero(lengths, axis=0)])


class _Numbers(dict[str, int]):
    """A dictionary that gives each new word the next number."""

    def __missing__(self, word: str) -> int:
        self[word] = len(self)
        return self[word]


def index_documents(documents: Mapping[str, Document]) -> IndexPart:
    """Return the index of these documents by key."""
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
    for number in range(every.shape[1]):
        bits[posting[field == number]] |= 1 << number
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
    return IndexPart(keys, words, [*groups], arrays)


def merge_parts(parts: Sequence[IndexPart], alive: np.ndarray) -> IndexPart:
    """Merge parts into one, keeping the tools that are alive. `alive` has all slots, part by part."""
    remaining = np.flatnonzero(alive)
    every, ages = [*chain.from_iterable(part.keys for part in parts)], np.concatenate([part.ages for part in parts])
    recency = [*zip(ages[remaining].tolist(), (every[slot] for slot in remaining.tolist()), strict=True)]
    order = remaining[sorted(range(len(remaining)), key=recency.__getitem__)]  # fast, because nearly sorted
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
    return IndexPart([every[slot] for slot in order.tolist()], used, [*groups], arrays)
