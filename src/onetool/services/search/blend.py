"""How words and meanings become one score.

A tool's score is how near its meaning is to the query's, and a little for each point that BM25F gives its words. No
weight depends on the query: BM25F already counts a rare word for much and a common one for little. So a query whose
rare words stand in a tool is decided by them, and one in other words than the tool's is decided by what it means.

Where meanings count, so do the words of all tools: numpy adds them up, which of very many is much quicker.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from heapq import nlargest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onetool.services.search.documents import Said
    from onetool.services.search.meaning import Doubles, Similarities

    SaidParts = Iterable[Iterable[tuple[Said, float]]]

WORD_POINT = 0.03  # what a point of BM25F counts beside a nearness, which is about 0.2 to 1; 0.02 to 0.05 do as well
LEAST_NEAR = 0.25  # of a tool that shares no word with the query: below this, everything is like everything

ROUNDED = 1 - 1e-9
FAIR_WORDS, FAIR_BLEND = 5.0, 0.6  # the score of a fair match: it counts as one half


class WordFits:
    """How well texts fit by their words alone: more than 0 and less than 1, as in `Blend`."""

    def __init__(self, words: Mapping[int, float]) -> None:
        """Tool -> its points of BM25F."""
        self._words = words

    def __len__(self) -> int:
        return len(self._words)

    def best(self, most: int, among: Set[int] | None = None) -> dict[int, float]:
        """So many, and those that are as good as the last of them. Rounding must not decide."""
        words = self._words
        if among is not None:
            words = {tool: words[tool] for tool in among if tool in words}
        if most < len(words):
            least = nlargest(most, words.values())[-1] * ROUNDED
            words = {tool: score for tool, score in words.items() if score >= least}
        return {tool: score / (score + FAIR_WORDS) for tool, score in words.items()}

    def of(self, tools: Iterable[int]) -> Iterator[float]:
        """Of these; 0 where nothing fits."""
        scores = (self._words.get(tool, 0.0) for tool in tools)
        return (score / (score + FAIR_WORDS) for score in scores)


def summed(said: "SaidParts", everyday: Iterable[tuple["Said", float]], size: int) -> "Doubles":
    """By slot: of each part the most telling word, all parts together; then everyday words of those that have any."""
    import numpy as np

    scores = np.zeros(size)
    for part in said:
        best = np.zeros(size)
        for one, times in part:
            slots, weights = one.arrays
            best[slots] = np.maximum(best[slots], times * weights)
        scores += best
    for one, times in everyday:
        slots, weights = one.arrays
        scores[slots] += times * weights * (scores[slots] > 0)
    return scores


class Blend:
    """The scores of all tools, by slot."""

    def __init__(self, words: "Doubles", meanings: "Similarities") -> None:
        import numpy as np

        near = np.zeros(len(words))
        most = min(len(words), len(meanings.near))
        near[:most] = meanings.near[:most]
        found = words > 0
        if meanings.may_find:
            found |= near >= LEAST_NEAR
        self._slots = found.nonzero()[0]
        self._totals = np.maximum(near, 0.0)[self._slots] + WORD_POINT * words[self._slots]
        self._np, self._size = np, len(words)

    def __len__(self) -> int:
        return len(self._slots)

    def best(self, most: int, among: Set[int] | None = None) -> dict[int, float]:
        """So many, and those that are as good as the last of them."""
        slots, totals = self._slots, self._totals
        if among is not None:
            there = self._np.zeros(self._size, bool)
            there[self._np.fromiter(among, self._np.int64, len(among))] = True
            here = there[slots]
            slots, totals = slots[here], totals[here]
        if most < len(slots):
            least = self._np.partition(totals, -most)[-most]
            slots, totals = slots[totals >= least], totals[totals >= least]
        return dict(zip(slots.tolist(), (totals / (totals + FAIR_BLEND)).tolist(), strict=True))

    def of(self, tools: Collection[int]) -> list[float]:
        """Of these; 0 where nothing fits."""
        wanted = self._np.fromiter(tools, self._np.int64, len(tools))
        places = self._np.searchsorted(self._slots, wanted)
        found = zip(wanted.tolist(), places.tolist(), strict=True)
        totals = [float(self._totals[at]) if at < len(self) and self._slots[at] == tool else 0.0 for tool, at in found]
        return [total / (total + FAIR_BLEND) for total in totals]
