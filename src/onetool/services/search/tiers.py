"""`TierSearch`: the ranking of the REST API over `Words`: prefix, whole word, fuzzy, recency.

The rank of a tool is (tier, score, place, age, key). It depends only on the tool's text and the query, not on other
tools, so a page starts exactly where the previous page ended even if tools change in between. Tools with equal scores
are sorted by group, imported groups last. The tiers and their scores:

    0  an own name of the tool begins with the query         the fewer remaining characters, the better
    1  every query word is a whole word                      of own names (the shorter, the better); of names, tags and
                                                             group; of all fields
    2  every query word is similar to a word                 the sum of the distances: see `_near`
    3  the query is empty                                    newest first, as always within a group
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from functools import cached_property
from itertools import islice

import numpy as np

from onetool.services.search.documents import LABELS, NAMED, TEXTS, TITLES
from onetool.services.search.lexical import mask
from onetool.services.search.postings import Words, smallest
from onetool.services.search.words import MAX_QUERY, MAX_WORDS, name_key, word_groups

PREFIX, WHOLE_WORD, FUZZY, RECENCY = (tier * 1_000_000 for tier in range(4))  # the score is added
NOT_FOUND = 4_000_000
FAR = 1000  # more than the length of any name, and than any sum of distances
MAX_FUZZY = 10  # words; a longer query is pasted, not typed
MIN_INSIDE = 3  # letters that may be inside a word: see `_near`
NOWHERE = 100  # more than any step of `_near`

TierRank = tuple[int, float, str, int, str]


class TierSearch:
    """A search in a snapshot of words. `on` is the mask of enabled tools; `imported` groups come last."""

    def __init__(self, words: Words, on: np.ndarray, imported: Collection[str] = ()) -> None:
        self.words = words
        self._on = words.alive & on
        self._imported = imported

    @cached_property
    def _places(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """The names of all places, sorted; the place of each tool; and the order of tools with equal scores."""
        numbers, names = self.words.numbered_groups(lambda group: f"{int(group in self._imported)}{group}")
        order = np.empty(self.words.size)
        order[np.lexsort((self.words.recency, numbers))] = np.arange(self.words.size)
        return names, numbers, order

    def search(
        self, query: str, include_off: bool, after: TierRank | None, limit: int, last_tier: int = 3
    ) -> list[TierRank]:
        """Return the ranks of the next `limit` tools after `after`, in tiers up to `last_tier`."""
        words = self.words
        there = words.alive if include_off else self._on
        ranks, chosen = np.full(words.size, NOT_FOUND), np.empty(0, int)
        names, places, order = self._places if query.strip() else ([""], np.zeros(words.size, int), words.recency)
        for tier in islice(self._tiers(query[:MAX_QUERY]), last_tier + 1):
            np.minimum(ranks, tier, out=ranks)
            found = np.flatnonzero(there & (ranks < NOT_FOUND))
            if after is not None:
                last = after[0] * WHOLE_WORD + after[1]
                behind = places >= bisect_right(names, after[2])
                behind |= (places >= bisect_left(names, after[2])) & words.behind(*after[3:])
                found = found[(ranks[found] > last) | ((ranks[found] == last) & behind[found])]
            chosen = found[smallest(ranks[found], order[found], limit)]
            if len(chosen) >= limit:
                break
        return [
            (rank // WHOLE_WORD, float(rank % WHOLE_WORD), names[place], age, words.keys[slot])
            for rank, place, age, slot in zip(
                *(values[chosen].tolist() for values in (ranks, places, words.ages)), chosen.tolist(), strict=True
            )
        ]

    def _tiers(self, query: str) -> Iterator[np.ndarray]:
        """Yield the ranks of all tools, tier by tier. A tool found in an earlier tier may occur again."""
        if not query.strip():
            yield np.full(self.words.size, RECENCY)
        asked = [group[0] for group in word_groups(query)]
        if not asked:  # empty, or only punctuation, which no tool has
            return
        key = name_key(query, " ")
        words, ranks = self.words, np.full(self.words.size, NOT_FOUND)
        lengths = words.lengths_with_prefix(key, TITLES)
        np.minimum.at(ranks, words.having_prefix(key, TITLES), PREFIX + lengths - len(key))
        yield ranks
        asked = list(dict.fromkeys(asked))[:MAX_WORDS]
        own, labels, texts = np.ones((3, words.size), bool)
        for word in asked:
            in_own_names = mask(words.size, words.having(word, NAMED))
            own &= in_own_names
            labels &= in_own_names | mask(words.size, words.having(word, LABELS))
            texts &= in_own_names | mask(words.size, words.having(word, TEXTS))
        ranks = np.full(words.size, NOT_FOUND)
        ranks[texts] = WHOLE_WORD + 2 * FAR
        ranks[labels] = WHOLE_WORD + FAR
        ranks[own] = WHOLE_WORD + np.maximum(words.gathered("title_lengths")[own] - len(key), 0)
        yield ranks
        if len(asked) <= MAX_FUZZY:
            near = sum(map(self._near, asked))
            yield np.where(near < NOWHERE, FUZZY + near, NOT_FOUND)

    def _near(self, word: str) -> np.ndarray:
        """Return the distance of each tool from a word.

        In own names, the word is 0: the start of a word, 1: inside a word, 2 or 3: one or two typos away. In other
        fields, it is 4: the start of a word or the word itself, 5: one or two typos away. Two ideographs may also be
        inside a word.
        """
        words, is_long = self.words, len(word) >= MIN_INSIDE or not word.isascii()
        near = np.full(words.size, NOWHERE)
        for typo in words.mistyped(word, TEXTS):
            near[words.having(typo, TEXTS)] = 5
        near[words.having_prefix(word, TEXTS) if is_long else words.having(word, TEXTS)] = 4
        for typo, mistakes in reversed(words.mistyped(word, NAMED).items()):
            near[words.having(typo, NAMED)] = mistakes + 1
        if is_long:
            near[words.names_containing(word)] = 1
        near[words.having_prefix(word, NAMED)] = 0
        return near
