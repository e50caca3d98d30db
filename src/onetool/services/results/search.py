"""Which lines match: a regular expression from anybody, or something that they should resemble.

Both call `look` with the number of the line that they have come to: it ends a search that takes too long.
"""

import re
from collections.abc import Callable, Iterator

from onetool.services.results.errors import BadQueryError
from onetool.services.results.lines import Lines, lines_of

SIMILAR = 70.0  # of 100: less is chance
_SIZE = 256 * 1024  # of a compiled pattern: a stranger's may be small programs only
_OFTEN = 8  # lines between two looks at the clock, where each may take some hundredths of a second
_LOOKS_AROUND = re.compile(r"[\^$]|\\[AbBGzZ<>]")

Look = Callable[[int], None]
Found = tuple[int, str]  # a line, and before it which it is; the first is 0


def matching(lines: Lines, search: str, look: Look) -> Iterator[Found]:
    """The lines that match somewhere.

    Most pieces of a large text hold none, which one question can tell: for the text of a piece, without making lines
    of it, where the pattern does not care for what is around a match; else for all of its lines at once.
    """
    fits = _accepts({"pattern": search}, search)
    none_fits = _accepts({"items": {"not": {"pattern": search}}}, search)
    fits_within = None if _LOOKS_AROUND.search(search) else fits
    for first, text in lines.pieces():
        look(first)
        if fits_within is None or fits_within(text):
            some = lines_of(text)
            if not none_fits(some):
                yield from ((number, line) for number, line in enumerate(some, first) if fits(line))


def _accepts(schema: dict[str, object], search: str) -> Callable[[str | list[str]], bool]:
    """Python's own regular expressions may take for ever; the validator's engine is linear in time."""
    import jsonschema_rs

    options = jsonschema_rs.RegexOptions(size_limit=_SIZE, dfa_size_limit=_SIZE)
    try:
        is_valid = jsonschema_rs.Draft202012Validator(schema, offline=True, pattern_options=options).is_valid
    except ValueError:
        raise BadQueryError(
            f"search is not a regular expression that can be used here: {ascii(search)[:100]}; look-around and "
            "back-references can't be used, and characters like ( [ * that are meant as they are need a \\ before them"
        ) from None

    def accepts(value: str | list[str]) -> bool:
        try:
            return is_valid(value)
        except UnicodeEncodeError:  # half of a surrogate pair
            return is_valid(_mended(value) if isinstance(value, str) else list(map(_mended, value)))

    return accepts


def _mended(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def similar(lines: Lines, search: str, most: int, look: Look) -> Iterator[Found]:
    """The lines that hold something like it, in any case: the best first, equals in their order, at most so many."""
    from heapq import heappush, heappushpop

    from rapidfuzz import fuzz

    wanted = search.lower()
    best: list[tuple[float, int, str]] = []
    for first, text in lines.pieces():
        for number, line in enumerate(lines_of(text), first):
            if number % _OFTEN == 0:
                look(number)
            # Part of the line against all of the search: never part of the search, or the line "c" would hold "config".
            measure = fuzz.partial_ratio if len(line) >= len(wanted) else fuzz.ratio
            if score := measure(wanted, line.lower(), score_cutoff=SIMILAR):
                (heappush if len(best) < most else heappushpop)(best, (score, -number, line))
    best.sort(reverse=True)
    return ((-number, line) for _, number, line in best)
