"""Every word that the tools use, as it was written: finds the word that somebody began or mistyped."""

from bisect import bisect_left
from collections.abc import Iterable

MOST_BEGUN = 24  # the shortest first: they are nearest to what was typed
MOST_CLOSE = 3
SHORTEST_MISTYPED = 4  # one wrong letter in three could be any word
LONGEST_MISTYPED = 32
TWO_MISTAKES = 8  # letters from which two mistakes still leave a word recognisable


class Vocabulary:
    """Immutable."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = sorted(set(words))
        # A mistake seldom hits the first letter, and changes the length by little: this makes the search short.
        self._alike: dict[tuple[str, int], list[str]] = {}
        for word in self._words:
            self._alike.setdefault((word[0], len(word)), []).append(word)

    def begun(self, start: str) -> list[str]:
        """The words that start so, and go on."""
        first = bisect_left(self._words, start + "\0")
        last = bisect_left(self._words, start + "\U0010ffff")
        return sorted(self._words[first:last], key=len)[:MOST_BEGUN]

    def close(self, word: str) -> list[str]:
        """The words that differ from this one by a mistake in typing."""
        if not SHORTEST_MISTYPED <= len(word) <= LONGEST_MISTYPED or not word.isalpha():
            return []
        from rapidfuzz.distance import OSA  # a swap of neighbours is one mistake; imported by those who make some
        from rapidfuzz.process import extract

        mistakes = 2 if len(word) >= TWO_MISTAKES else 1
        lengths = range(max(len(word) - mistakes, SHORTEST_MISTYPED), len(word) + mistakes + 1)
        alike = [known for length in lengths for known in self._alike.get((word[0], length), ())]
        found = extract(word, alike, scorer=OSA.distance, score_cutoff=mistakes, limit=MOST_CLOSE)
        return [known for known, distance, _ in found if distance == found[0][1]]
