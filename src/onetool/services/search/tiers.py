"""`TierSearch`: the order of the REST API over `Words`: prefix, whole word, fuzzy, recency.

The rank of a tool is (tier, score, place, age, key), and depends on its own texts and the query, never on other tools:
a page starts exactly where the one before ended, whoever changes tools in between. Of tools with one score those of one
group stand together, and imported groups come last. The tiers:

    0  one of its own names begins with the query            the fewer characters are left, the better
    1  every word of it is a whole word                      of its own names (the shorter, the better); of names, tags
                                                             and what it belongs to; of all texts
    2  every word of it is near a word                       the sum of how near: see `_near`
    3  nothing was asked for                                 newest first, as everywhere among equals of one group
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

PREFIX, WHOLE_WORD, FUZZY, RECENCY = (tier * 1_000_000 for tier in range(4))  # and the score is added
NOT_FOUND = 4_000_000
FAR = 1000  # more than what any name is long, or any sum of what is near
MAX_FUZZY = 10  # a longer query is pasted, not typed
MIN_INSIDE = 3  # letters: see `_near`
NOWHERE = 100  # more than any step of `_near`

TierRank = tuple[int, float, str, int, str]


class TierSearch:
    """The words of tools at one moment. `on` says which are in lists unless somebody asks for all; `imported` are the
    groups of tools that come last.
    """

    def __init__(self, words: Words, on: np.ndarray, imported: Collection[str] = ()) -> None:
        self.words = words
        self._on = words.alive & on
        self._imported = imported

    @cached_property
    def _places(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """The names of all places, in their order; which one each tool has; and the order of tools with one score."""
        numbers, names = self.words.numbered_groups(lambda group: f"{int(group in self._imported)}{group}")
        order = np.empty(self.words.size)
        order[np.lexsort((self.words.recency, numbers))] = np.arange(self.words.size)
        return names, numbers, order

    def search(
        self, query: str, include_off: bool, after: TierRank | None, limit: int, last_tier: int = 3
    ) -> list[TierRank]:
        """Return the ranks of the next `limit` tools behind `after`. Later tiers than the last one are left out."""
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
        """Yield the ranks of all tools, tier by tier. A tool that an earlier tier has found may come again."""
        if not query.strip():
            yield np.full(self.words.size, RECENCY)
        asked = [group[0] for group in word_groups(query)]
        if not asked:  # or nothing but punctuation, which nothing has
            return
        key = name_key(query, " ")
        yield self._with_prefix(key)
        asked = list(dict.fromkeys(asked))[:MAX_WORDS]
        words = self.words
        own, labels, texts = np.ones((3, words.size), bool)
        for word in asked:
            here = mask(words.size, words.having(word, NAMED))
            own &= here
            labels &= here | mask(words.size, words.having(word, LABELS))
            texts &= here | mask(words.size, words.having(word, TEXTS))
        ranks = np.full(words.size, NOT_FOUND)
        ranks[texts] = WHOLE_WORD + 2 * FAR
        ranks[labels] = WHOLE_WORD + FAR
        ranks[own] = WHOLE_WORD + np.maximum(words.gathered("title_lengths")[own] - len(key), 0)
        yield ranks
        if len(asked) <= MAX_FUZZY:
            near = sum(map(self._near, asked))
            yield np.where(near < NOWHERE, FUZZY + near, NOT_FOUND)

    def _with_prefix(self, key: str) -> np.ndarray:
        ranks = np.full(self.words.size, NOT_FOUND)
        lengths = self.words.lengths_with_prefix(key, TITLES)
        np.minimum.at(ranks, self.words.having_prefix(key, TITLES), PREFIX + lengths - len(key))
        return ranks

    def _near(self, word: str) -> np.ndarray:
        """Return how near each tool is to a word.

        0 begins a word of its own names, 1 is inside of one, 2 and 3 are one and two mistakes away; 4 begins a word of
        other texts, or is one, 5 is one or two mistakes away from one. Two ideographs are enough to look inside.
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
