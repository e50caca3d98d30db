"""Which known names somebody may have meant."""

from collections.abc import Iterable

MOST = 3
LONGEST = 200  # nobody mistypes more than that, and comparing it would take long
CLEARLY_BETTER = 15.0  # with one name so much closer, the others are not worth offering
CLOSE = 60.0  # of 100: `pth` is 86 from `path`, `lst` 86 from `list`, `weather` 31 from `time.now`


def nearest(name: str, known: Iterable[str], most: int = MOST) -> list[str]:
    """The known names closest to a wrong one, best first; none when nothing is close.

    A dotted name is also found by its last part: `read_fil` means `fs.read_file`.
    """
    if len(name) > LONGEST:
        return []
    from rapidfuzz import fuzz, process, utils  # on the way of an error, never of a start

    names = list(dict.fromkeys(known))
    best: dict[str, float] = {}
    for words in (names, [one.rpartition(".")[2] for one in names]):
        found = process.extract(
            name, words, scorer=fuzz.ratio, processor=utils.default_process, score_cutoff=CLOSE, limit=most
        )
        for _, score, index in found:
            best[names[index]] = max(score, best.get(names[index], 0.0))
    floor = max(best.values(), default=0.0) - CLEARLY_BETTER
    return sorted((one for one in best if best[one] > floor), key=best.__getitem__, reverse=True)[:most]


def did_you_mean(name: str, known: Iterable[str], most: int = MOST) -> str | None:
    """A question to put behind an error, or nothing."""
    names = nearest(name, known, most)
    if not names:
        return None
    return f"did you mean {' or '.join(names)}?"


def or_rather(name: str, known: Iterable[str]) -> str:
    """The same question as the end of a sentence: `; did you mean …?`, or nothing."""
    question = did_you_mean(name, known)
    return f"; {question}" if question else ""
