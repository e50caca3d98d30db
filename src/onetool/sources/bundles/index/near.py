"""Words that somebody may have meant: known ones that are one or two slips of the finger away.

Whether a word is near another one depends on the two alone. Numbers are never near each other: v1 is not v2.
"""

from collections.abc import Sequence

SHORTEST, LONGEST = 4, 40  # shorter words are near to everything
_TWO_SLIPS = 7  # letters from which on a word may have two


def can_be_mistyped(word: str) -> bool:
    return SHORTEST <= len(word) <= LONGEST and word.isalpha()


def near(word: str, known: Sequence[str]) -> dict[int, list[str]]:
    """The known words that are one slip away, and two: a letter too many, too few, another one, or two swapped."""
    found: dict[int, list[str]] = {1: [], 2: []}
    if not can_be_mistyped(word):
        return found
    from rapidfuzz.distance import OSA  # only where somebody searches for what is not there
    from rapidfuzz.process import extract

    slips = 2 if len(word) >= _TWO_SLIPS else 1
    for other, distance, _ in extract(word, known, scorer=OSA.distance, score_cutoff=slips, limit=None):
        if distance:
            found[int(distance)].append(other)
    return found
