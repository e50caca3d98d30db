"""A page of a text: some of its lines, or of those that match a search."""

import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from threading import Semaphore
from time import monotonic
from typing import NotRequired, TypedDict

from onetool.core.errors import ToolFailure
from onetool.services.results.errors import BadQueryError
from onetool.services.results.lines import LONGEST_LINE as LONGEST_LINE
from onetool.services.results.lines import Lines
from onetool.services.results.lines import lines_of as lines_of
from onetool.services.results.search import Found, matching, similar

LONGEST_SEARCH = 1_000
LONGEST_FUZZY = 100  # what a line takes grows with the square of it: half a millisecond here, forty for a thousand
BEST = 1_000  # lines that resemble a search: who wants more of them wants something else
MOST_SECONDS = 5.0
_AROUND = 16  # quotes, a mark and spaces before it, and the number of a line that was searched for
_ESCAPE = 10  # bytes, of \\U0001f600 for example
_SHOWN = 200  # characters of a line inside a message


# One at a time: comparing holds up all other threads of the process, as long as a line or a piece takes.
_searching = Semaphore(1)


class Page(TypedDict):
    """Some lines of a result. `total_lines` counts all that there are, `has_more` means those that were asked for."""

    lines: list[str]
    numbers: NotRequired[list[int]]  # of a search: which lines of the result these are
    total_lines: int
    returned: int
    offset: int
    has_more: bool


class NumbersOnly(TypedDict, total=False):
    numbers: list[int]


class TimeUpError(ToolFailure):
    """A search that did not come to its end. Linear is still long, when the text and the pattern are large."""

    def __init__(self, line: int, total: int, fuzzy: bool) -> None:
        simpler = "a regular expression: without fuzzy it is much faster" if fuzzy else "a simpler search"
        super().__init__(
            f"the search took more than {MOST_SECONDS:g} s: it came to line {line + 1:,} of {total:,}",
            reason="timeout",
            hints=[f"use {simpler}; or search in code, before the result is returned"],
        )


def page_of(
    lines: Lines, offset: int, limit: int, search: str | None, fuzzy: bool, most_bytes: int | None = None
) -> Page:
    """The lines from `offset` (the first is 1), at most `limit`; with a search among those that match.

    `search` is a regular expression, or with `fuzzy` something to resemble: then the best come first, and only those.
    A page of more than `most_bytes` ends earlier, though never before its first line; so does one whose search takes
    too long, if it has found some lines by then.
    """
    if offset < 1:
        raise BadQueryError(f"offset must be >= 1 (1-indexed), got {offset}")
    if limit < 1:
        raise BadQueryError(f"limit must be >= 1, got {limit}")
    skipped = min(offset - 1, sys.maxsize) if search else 0
    if search:
        found = _found(lines, search, fuzzy, offset + limit)
    else:
        found = ((number, line) for number, line in enumerate(lines.since(offset - 1), offset - 1))
    with closing(found):
        page, has_more = _fitting(islice(found, skipped, None), limit, most_bytes)
    numbers: NumbersOnly = {"numbers": [number + 1 for number, _ in page]} if search else {}
    return {
        "lines": [line for _, line in page],
        **numbers,
        "total_lines": lines.total,
        "returned": len(page),
        "offset": offset,
        "has_more": has_more,
    }


def _fitting(found: Iterator[Found], limit: int, most_bytes: int | None) -> tuple[list[Found], bool]:
    """As many as fit, and whether there are more."""
    page: list[Found] = []
    size = 0
    try:
        for number, line in found:
            size += written(line)
            if len(page) == limit or (page and most_bytes is not None and size > most_bytes):
                return page, True
            page.append((number, line))
    except TimeUpError as error:
        if len(page) > 1:
            return page[:-1], True  # one that is known to be there: "more" must be no guess
        if page:
            error.hints += (f"one line was found by then: {page[0][1][:_SHOWN]}",)
        raise
    return page, False


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
