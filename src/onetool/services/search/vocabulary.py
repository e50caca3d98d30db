"""Every word that the tools use, as it was written: finds the one that somebody began or mistyped."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

MOST_BEGUN = 24  # the shortest first: they are nearest to what was typed
MOST_CLOSE = 3
SHORTEST_MISTYPED = 4  # one wrong letter in three could be any word
LONGEST_MISTYPED = 32
TWO_MISTAKES = 8  # letters from which two mistakes still leave a word recognisable


class Vocabulary:
    """Immutable."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = sorted(set(words))
        self._by_length: dict[int, list[str]] = {}
        self._by_start: dict[tuple[int, str], list[str]] = {}
        for word in self._words:
            self._by_length.setdefault(len(word), []).append(word)
            self._by_start.setdefault((len(word), word[0]), []).append(word)

    def begun(self, start: str) -> list[str]:
        """The words that start so, and go on."""
        first, last = bisect_left(self._words, start + "\0"), bisect_left(self._words, start + "\U0010ffff")
        return sorted(self._words[first:last], key=len)[:MOST_BEGUN]

    def close(self, word: str) -> list[str]:
        """The words that differ by a mistake in typing, which seldom hits the first letter."""
        return _close(word, [self._by_start.get((length, word[0]), []) for length in _lengths(word)])

    def less_close(self, word: str) -> list[str]:
        """The same, with the first letter open too. Slower: every word of about this length is compared."""
        return _close(word, [self._by_length.get(length, []) for length in _lengths(word)])


def _mistakes(word: str) -> int:
    return 2 if len(word) >= TWO_MISTAKES else 1


def _lengths(word: str) -> range:
    """How long a word may be that was mistyped so; none if no mistake can be told from another word."""
    if not SHORTEST_MISTYPED <= len(word) <= LONGEST_MISTYPED or not word.isalpha():
        return range(0)
    return range(max(len(word) - _mistakes(word), SHORTEST_MISTYPED), len(word) + _mistakes(word) + 1)


def _close(word: str, alike: Sequence[Sequence[str]]) -> list[str]:
    """Those of them with the fewest mistakes. A swap of neighbours is one."""
    candidates = [known for words in alike for known in words]
    if not candidates:
        return []
    from rapidfuzz.distance import OSA  # only a mistake needs it, and most queries have none
    from rapidfuzz.process import extract

    found = extract(word, candidates, scorer=OSA.distance, score_cutoff=_mistakes(word), limit=MOST_CLOSE)
    return [known for known, mistakes, _ in found if mistakes == found[0][1]]
