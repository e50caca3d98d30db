"""A page of a text: some of its lines, or of those that match a search.

Code gets the lines that it asks for. Only where a page is sent to somebody it may have to be cut (`sendable`).
"""

import sys
from bisect import bisect_right
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from threading import Semaphore
from time import monotonic
from typing import Any, NotRequired, TypedDict, TypeGuard

from onetool.core.errors import ToolFailure
from onetool.services.results.errors import BadQueryError
from onetool.services.results.lines import Lines
from onetool.services.results.lines import lines_of as lines_of
from onetool.services.results.search import Found, matching, similar

LONGEST_SEARCH = 1_000
LONGEST_FUZZY = 100  # what a line takes grows with the square of it: half a millisecond here, forty for a thousand
MOST_BYTES = 32 * 1024 * 1024  # of a page, also for code
BEST = 1_000  # lines that resemble a search: who wants more of them wants something else
MOST_SECONDS = 5.0
_AROUND = 16  # quotes, a mark and spaces before it, and the number of a line that was searched for
_ESCAPE = 10  # bytes, of \\U0001f600 for example
_SHOWN = 200  # characters of a line inside a message


# One at a time: comparing holds up all other threads of the process, as long as a line or a piece takes.
_searching = Semaphore(1)


class Next(TypedDict):
    """Where a page that was cut goes on."""

    offset: int
    column: int


class Page(TypedDict):
    """Some lines of a result. `total_lines` counts all that there are, `has_more` means those that were asked for."""

    lines: list[str]
    numbers: NotRequired[list[int]]  # of a search: which lines of the result these are
    total_lines: int
    returned: int
    offset: int
    column: NotRequired[int]  # where the first line begins, unless that is its beginning
    has_more: bool
    cut: NotRequired[bool]  # it was too large to be sent …
    next: NotRequired[Next]  # … and goes on here


class Further(TypedDict, total=False):
    numbers: list[int]
    column: int


class TimeUpError(ToolFailure):
    """A search that did not come to its end. Linear is still long, when the text and the pattern are large."""

    def __init__(self, line: int, total: int, fuzzy: bool) -> None:
        simpler = "a regular expression: without fuzzy it is much faster" if fuzzy else "a simpler search"
        super().__init__(
            f"the search took more than {MOST_SECONDS:g} s: it came to line {line + 1:,} of {total:,}",
            reason="timeout",
            hints=[f"use {simpler}; or search in code, before the result is returned"],
        )


def check_query(offset: int, limit: int, column: int) -> None:
    """BadQueryError, where no result could be read like that."""
    if offset < 1:
        raise BadQueryError(f"offset must be >= 1 (1-indexed), got {offset}")
    if limit < 1:
        raise BadQueryError(f"limit must be >= 1, got {limit}")
    if column < 1:
        raise BadQueryError(f"column must be >= 1 (1-indexed), got {column}")


def page_of(
    lines: Lines,
    offset: int,
    limit: int,
    search: str | None,
    fuzzy: bool,
    most_bytes: int = MOST_BYTES,
    column: int = 1,
) -> Page:
    """The lines from `offset` (the first is 1), at most `limit`; with a search among those that match.

    `search` is a regular expression, or with `fuzzy` something to resemble: then the best come first, and only those.
    The first line begins at `column`. A page of more than `most_bytes` is cut. One whose search takes too long ends
    earlier, if it has found some lines by then.
    """
    check_query(offset, limit, column)
    found = _found(lines, search, fuzzy, offset + limit) if search else _read(lines, offset, column, most_bytes)
    with closing(found):
        skipped = min(offset - 1, sys.maxsize) if search else 0
        asked = _from(islice(found, skipped, None), column if search else 1)
        page, has_more = _taken(asked, limit, most_bytes)
    numbers: Further = {"numbers": [number + 1 for number, _ in page]} if search else {}
    begins: Further = {"column": column} if column > 1 else {}
    whole: Page = {
        "lines": [line for _, line in page],
        **numbers,
        "total_lines": lines.total,
        "returned": len(page),
        "offset": offset,
        **begins,
        "has_more": has_more,
    }
    return fitting(whole, most_bytes)


def _read(lines: Lines, offset: int, column: int, most_bytes: int) -> Generator[Found]:
    yield from enumerate(lines.since(offset - 1, column - 1, most_bytes + 1), offset - 1)


def _from(found: Iterator[Found], column: int) -> Iterator[Found]:
    """The same lines, the first of them from that column on."""
    for number, line in islice(found, 1):
        yield number, line[column - 1 :]
    yield from found


def _taken(found: Iterator[Found], limit: int, most_bytes: int) -> tuple[list[Found], bool]:
    """As many as were asked for, and whether there are more. No more are read than it takes to have too much."""
    page: list[Found] = []
    size = 0
    try:
        for number, line in found:
            if len(page) == limit:
                return page, True
            page.append((number, line))
            size += written(line)
            if _is_too_much(size, most_bytes, page[0][1], len(page)):
                return page, True
    except TimeUpError as error:
        if len(page) > 1:
            return page[:-1], True  # one that is known to be there: "more" must be no guess
        if page:
            error.hints += (f"one line was found by then: {page[0][1][:_SHOWN]}",)
        raise
    return page, False


def is_page(value: Any) -> TypeGuard[Page]:
    """Whether a value is what a page looks like: code may have passed it on."""
    return (
        type(value) is dict
        and Page.__required_keys__ <= value.keys() <= Page.__annotations__.keys()
        and isinstance(value["lines"], list)
        and all(type(line) is str for line in value["lines"])
        and all(type(value[key]) is int for key in ("offset", "column") if key in value)
    )


def fitting(page: Page, most_bytes: int) -> Page:
    """The page, or as much of it as has so many bytes: whole lines, or a part of the first one."""
    lines, size = page["lines"], 0
    for count, line in enumerate(lines):
        size += written(line)
        if _is_too_much(size, most_bytes, line, count + 1):
            break
    else:
        return page
    offset, column = page["offset"], page.get("column", 1)
    if count:
        sent, further = lines[:count], Next(offset=offset + count, column=1)
    else:
        part = _part(line, most_bytes)
        sent, further = [part], Next(offset=offset, column=column + len(part))
    shorter: Page = {**page, "lines": sent, "returned": len(sent), "has_more": True, "cut": True, "next": further}
    if "numbers" in shorter:
        shorter["numbers"] = shorter["numbers"][: len(sent)]
    return shorter


def _is_too_much(size: int, most_bytes: int, line: str, count: int) -> bool:
    """Whether so many lines have to be cut. A single character is sent whatever it takes: there must be an end."""
    return size > most_bytes and (count > 1 or len(line) > 1)


def _part(line: str, most_bytes: int) -> str:
    """As much of the beginning of a line as fits, and never nothing."""
    lengths = range(1, min(len(line), most_bytes) + 1)
    return line[: max(1, bisect_right(lengths, most_bytes, key=lambda length: written(line[:length])))]


def written(line: str) -> int:
    """Bytes that a line takes on a page, at the most: it is written as data, in quotes, on a line of its own."""
    if line.isascii() and line.isprintable():
        return len(line) + line.count('"') + line.count("\\") + _AROUND
    plain = sum(map(str.isprintable, line))  # what is not becomes an escape
    return len(line.encode("utf-8", "surrogatepass")) + plain + _ESCAPE * (len(line) - plain) + _AROUND


def _found(lines: Lines, search: str, fuzzy: bool, most: int) -> Generator[Found]:
    longest = LONGEST_FUZZY if fuzzy else LONGEST_SEARCH
    if len(search) > longest:
        raise BadQueryError(f"search must have at most {longest} characters, got {len(search)}")
    if not _searching.acquire(timeout=MOST_SECONDS):
        raise ToolFailure(
            "others are searching, and did not come to an end in time", reason="busy", hints=["try again"]
        )
    try:
        deadline = monotonic() + MOST_SECONDS

        def look(line: int) -> None:
            if monotonic() > deadline:
                raise TimeUpError(line, lines.total, fuzzy)

        yield from similar(lines, search, min(most, BEST), look) if fuzzy else matching(lines, search, look)
    finally:
        _searching.release()
