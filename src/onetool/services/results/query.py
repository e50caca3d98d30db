"""A page of a text: some of its lines, or of those that match a search."""

from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import TypedDict

from onetool.core.errors import ToolFailure
from onetool.services.results.errors import BadQueryError

LONGEST_LINE = 2_000
LONGEST_SEARCH = 1_000
SIMILAR = 70.0  # of 100: less is chance
MOST_SECONDS = 5.0
_SIZE = 256 * 1024  # of a compiled pattern: a stranger's may be small programs only
_OFTEN = 64  # lines between two looks at the clock


class Page(TypedDict):
    """Some lines of a result. `total_lines` counts all that there are, `has_more` means those that were asked for."""

    lines: list[str]
    total_lines: int
    returned: int
    offset: int
    has_more: bool


def query(
    text: str,
    offset: int = 1,
    limit: int = 100,
    search: str | None = None,
    fuzzy: bool = False,
    most_bytes: int | None = None,
) -> Page:
    """The lines from `offset` (the first is 1), at most `limit`; with a search among those that match.

    `search` is a regular expression, or with `fuzzy` something to resemble: then the best come first. A page of more
    than `most_bytes` ends earlier, though never before its first line.
    """
    if offset < 1:
        raise BadQueryError(f"offset must be >= 1 (1-indexed), got {offset}")
    if limit < 1:
        raise BadQueryError(f"limit must be >= 1, got {limit}")
    lines = lines_of(text)
    found = _found(lines, search, fuzzy) if search else lines
    page = _fitting(found[offset - 1 : offset - 1 + limit], most_bytes)
    return {
        "lines": page,
        "total_lines": len(lines),
        "returned": len(page),
        "offset": offset,
        "has_more": offset - 1 + len(page) < len(found),
    }


def _fitting(page: list[str], most_bytes: int | None) -> list[str]:
    if most_bytes is None:
        return page
    for number, line in enumerate(page):
        most_bytes -= len(line.encode("utf-8", "surrogatepass"))
        if most_bytes < 0:
            return page[: max(number, 1)]
    return page


def lines_of(text: str) -> list[str]:
    """The lines of a text. One that is too long comes as several: it could not be had in parts otherwise."""
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    if max(map(len, lines), default=0) <= LONGEST_LINE:
        return lines
    return [line[start : start + LONGEST_LINE] for line in lines for start in range(0, max(len(line), 1), LONGEST_LINE)]


def _found(lines: list[str], search: str, fuzzy: bool) -> list[str]:
    if len(search) > LONGEST_SEARCH:
        raise BadQueryError(f"search must have at most {LONGEST_SEARCH} characters, got {len(search)}")
    if fuzzy:
        return _similar(lines, search)
    fits = _pattern(search)
    return [line for line in _in_time(lines) if fits(line)]


def _pattern(search: str) -> Callable[[str], bool]:
    """A regular expression from anybody. Python's own may take for ever; the validator's engine is linear in time."""
    import jsonschema_rs

    options = jsonschema_rs.RegexOptions(size_limit=_SIZE, dfa_size_limit=_SIZE)
    schema = {"type": "string", "pattern": search}
    try:
        matches = jsonschema_rs.Draft202012Validator(schema, offline=True, pattern_options=options).is_valid
    except ValueError:
        raise BadQueryError(
            f"search is not a regular expression that can be used here: {ascii(search)[:100]}; look-around and "
            "back-references can't be used, and characters like ( [ * that are meant as they are need a \\ before them"
        ) from None

    def fits(line: str) -> bool:
        try:
            return matches(line)
        except UnicodeEncodeError:  # half of a surrogate pair
            return matches(line.encode("utf-8", "replace").decode())

    return fits


def _similar(lines: list[str], search: str) -> list[str]:
    """The lines that hold something like it, in any case, the best first and equals in their order."""
    from rapidfuzz import fuzz

    wanted = search.lower()
    scored: list[tuple[float, str]] = []
    for line in _in_time(lines):
        # Part of the line against all of the search: never part of the search, or the line "c" would hold "config".
        measure = fuzz.partial_ratio if len(line) >= len(wanted) else fuzz.ratio
        if score := measure(wanted, line.lower(), score_cutoff=SIMILAR):
            scored.append((score, line))
    scored.sort(key=lambda pair: pair[0], reverse=True)
    return [line for _, line in scored]


def _in_time(lines: Iterable[str]) -> Iterator[str]:
    """The lines, as long as there is time: linear is still long, when the text and the pattern are large."""
    deadline = monotonic() + MOST_SECONDS
    for number, line in enumerate(lines):
        if number % _OFTEN == 0 and monotonic() > deadline:
            hint = "use a simpler or shorter search"
            raise ToolFailure(f"the search took more than {MOST_SECONDS:g} s", reason="timeout", hints=[hint])
        yield line
