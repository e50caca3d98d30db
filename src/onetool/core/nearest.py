"""Which known names somebody may have meant."""

from collections.abc import Iterable

MOST = 3


def nearest(name: str, known: Iterable[str], most: int = MOST) -> list[str]:
    """The known names closest to a wrong one, best first; none when nothing is close."""
    from rapidfuzz import fuzz, process, utils  # on the way of an error, never of a start

    found = process.extract(name, list(known), scorer=fuzz.WRatio, processor=utils.default_process, limit=most * 4)
    # WRatio calls any short substring a good match: hold what is much shorter or longer to a stricter measure.
    good = [known for known, score, _ in found if score >= 70 and fuzz.ratio(name.lower(), known.lower()) >= 45]
    return good[:most]


def did_you_mean(name: str, known: Iterable[str], most: int = MOST) -> str | None:
    """A question to put behind an error, or nothing."""
    names = nearest(name, known, most)
    if not names:
        return None
    return f"did you mean {' or '.join(names)}?"
