"""Which lines match: a regular expression from anybody, or something that they should resemble.

Both call `look` with the number of the line that they have come to: it ends a search that takes too long.
"""

import re
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter

from onetool.services.results.errors import BadQueryError
from onetool.services.results.lines import Lines, lines_of

SIMILAR = 70.0  # of 100: less is chance
_SIZE = 256 * 1024  # of a compiled pattern: a stranger's may be small programs only
_OFTEN = 8  # lines between two looks at the clock, where each may take some hundredths of a second
_WINDOW = 2_000  # characters of a line that are compared at once
LONGEST_FOUND = 32 * 1024 * 1024  # characters of a line that was found: no page holds more
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
    told = -1  # a very long line that was found already, in an earlier part of it
    for first, text, is_part in lines.chunks():
        look(first)
        if is_part:
            if first != told and fits(text):
                told = first
                yield first, _line(lines, first)
        elif fits_within is None or fits_within(text):
            some = lines_of(text)
            if not none_fits(some):
                yield from ((number, line) for number, line in enumerate(some, first) if fits(line))


def _line(lines: Lines, number: int) -> str:
    return next(lines.since(number, longest=LONGEST_FOUND))


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

    best: list[tuple[float, int, str]] = []
    for number, scored in groupby(_scored(lines, search.lower(), look), itemgetter(0)):
        _, score, line = max(scored)
        if score:
            (heappush if len(best) < most else heappushpop)(best, (score, -number, line))
    best.sort(reverse=True)
    return ((-number, line or _line(lines, -number)) for _, number, line in best)


def _scored(lines: Lines, wanted: str, look: Look) -> Iterator[tuple[int, float, str]]:
    """Each line, how much of 100 something in it is like what is wanted, and its text. A very long line comes several
    times, without its text."""
    from rapidfuzz import fuzz

    for first, text, is_part in lines.chunks():
        for number, line in [(first, text)] if is_part else enumerate(lines_of(text), first):
            if len(line) > _WINDOW:
                yield number, _best_window(wanted, line, lambda at=number: look(at)), "" if is_part else line
                continue
            if number % _OFTEN == 0:
                look(number)
            # Part of the line against all of the search: never part of the search, or the line "c" would hold "config".
            measure = fuzz.partial_ratio if len(line) >= len(wanted) else fuzz.ratio
            yield number, measure(wanted, line.lower(), score_cutoff=SIMILAR), "" if is_part else line


def _best_window(wanted: str, line: str, look: Callable[[], None]) -> float:
    """The same for a line that takes too long to be compared at once: the windows overlap by what is wanted."""
    from rapidfuzz import fuzz

    best = 0.0
    for count, start in enumerate(range(0, len(line) - len(wanted), _WINDOW - len(wanted))):
        if count % _OFTEN == 0:
            look()
        start = min(start, len(line) - _WINDOW)
        best = max(best, fuzz.partial_ratio(wanted, line[start : start + _WINDOW].lower(), score_cutoff=SIMILAR))
    return best
