"""Reads a page of a text: some of its lines, or of the lines that match a search.

A line that is too long can be read in parts. Searches use an engine with linear time, and have a time limit.
"""

import sys
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from heapq import heappush, heappushpop
from itertools import islice
from threading import Semaphore
from time import monotonic
from typing import Any, TypedDict, TypeGuard

from onetool.core.call import Next, Page
from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.text import replace_all_surrogates


class BadQueryError(BadArguments, ValueError):
    """An offset, limit or search that can't be used."""


def lines_of(text: str) -> list[str]:
    """Return the lines of a text. A line break at the end does not start another line."""
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


# Searching lines

AT_ONCE = 64_000  # characters that are tested between two checks of the clock
LONG = 16 * AT_ONCE  # a longer line is tested in parts, which overlap by AT_ONCE
SIMILAR = 70.0  # of 100: lower scores are chance
MAX_PATTERN_BYTES = 256 * 1024  # of a compiled pattern
_OFTEN = 8  # comparisons between two checks of the clock
_WINDOW = 2_000  # characters of a line compared at once

OnProgress = Callable[[int], None]
FoundLine = tuple[int, str]  # the number of a line, from 0, and the line


def matching(lines: Sequence[str], search: str, look: OnProgress) -> Iterator[FoundLine]:
    """Yield the lines that contain a match. Most groups of lines have none, which a single test shows."""
    fits = _accepts({"pattern": search}, search)
    none_fits = _accepts({"items": {"not": {"pattern": search}}}, search)
    for first, group in _groups(lines):
        look(first)
        if len(group[-1]) <= LONG and none_fits(group):
            continue
        for number, line in enumerate(group, first):
            if any(fits(part) for part in _parts(line, number, look)):
                yield number, line


def _groups(lines: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the lines in groups that end once they have AT_ONCE characters, each with the number of its first line."""
    first = size = 0
    for number, line in enumerate(lines, 1):
        size += len(line) + 1
        if size >= AT_ONCE or number == len(lines):
            yield first, lines[first:number]
            first, size = number, 0


def _parts(line: str, number: int, look: OnProgress) -> Iterator[str]:
    if len(line) <= LONG:
        yield line
        return
    for start in range(0, len(line), LONG - AT_ONCE):
        look(number)
        yield line[start : start + LONG]


def _accepts(schema: dict[str, object], search: str) -> Callable[[str | Sequence[str]], bool]:
    """Return a test based on a JSON Schema validator, whose regular expressions take linear time, unlike Python's."""
    import jsonschema_rs

    options = jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES, dfa_size_limit=MAX_PATTERN_BYTES)
    try:
        is_valid = jsonschema_rs.Draft202012Validator(schema, offline=True, pattern_options=options).is_valid
    except ValueError:
        raise BadQueryError(
            f"search is not a regular expression that can be used here: {ascii(search)[:100]}; look-around and "
            "back-references are not supported, and literal characters like ( [ * need a \\ before them"
        ) from None

    def accepts(value: str | Sequence[str]) -> bool:
        try:
            return is_valid(value)
        except UnicodeEncodeError:  # a lone surrogate
            return is_valid(replace_all_surrogates(value))

    return accepts


def similar(lines: Sequence[str], search: str, count: int, look: OnProgress) -> Iterator[FoundLine]:
    """Return at most `count` similar lines, ignoring case: the best first, equal ones in order."""
    best: list[tuple[float, int]] = []
    search = search.lower()
    for number, line in enumerate(lines):
        if number % _OFTEN == 0:
            look(number)
        if score := _similarity(search, line, lambda at=number: look(at)):
            (heappush if len(best) < count else heappushpop)(best, (score, -number))
    best.sort(reverse=True)
    return ((-number, lines[-number]) for _, number in best)


def _similarity(search: str, line: str, look: Callable[[], None]) -> float:
    """Return the similarity, 0 to 100. A long line is compared in windows that overlap by the length of the search."""
    from rapidfuzz import fuzz

    if len(line) <= _WINDOW:
        # Compare parts of the line with all of the search, never the reverse: the line "c" must not match "config".
        measure = fuzz.partial_ratio if len(line) >= len(search) else fuzz.ratio
        return measure(search, line.lower(), score_cutoff=SIMILAR)
    best = 0.0
    for count, start in enumerate(range(0, len(line) - len(search), _WINDOW - len(search))):
        if count % _OFTEN == 0:
            look()
        start = min(start, len(line) - _WINDOW)
        best = max(best, fuzz.partial_ratio(search, line[start : start + _WINDOW].lower(), score_cutoff=SIMILAR))
    return best


# Pages

MAX_SEARCH = 1_000  # characters
MAX_FUZZY = 100  # characters: time per line is quadratic, 0.5 ms for these and 40 ms for a thousand
MAX_BYTES = 32 * 1024 * 1024  # of a page, including in the sandbox
MAX_SIMILAR = 1_000  # lines; more are not useful
MAX_SEARCH_S = 5.0
_AROUND = 16  # bytes for quotes, a mark, spaces and the number of a line
_ESCAPE = 10  # bytes, for example of \\U0001f600
_SHOWN = 200  # characters of a line in a message


# One search at a time: comparing a line or a piece blocks all other threads of the process.
_searching = Semaphore(1)


class Further(TypedDict, total=False):
    numbers: list[int]
    column: int


class TimeUpError(ToolFailure):
    """A search that took too long, as even linear time may for a large text and pattern."""

    def __init__(self, line: int, total: int, fuzzy: bool) -> None:
        simpler = "a regular expression: without fuzzy it is much faster" if fuzzy else "a simpler search"
        super().__init__(
            f"the search took more than {MAX_SEARCH_S:g} s: it stopped at line {line + 1:,} of {total:,}",
            reason="timeout",
            hints=[f"use {simpler}; or search in code, before the result is returned"],
        )


def check_query(offset: int, limit: int, column: int) -> None:
    """Raise BadQueryError if an argument is out of range."""
    if offset < 1:
        raise BadQueryError(f"offset must be >= 1 (1-indexed), got {offset}")
    if limit < 1:
        raise BadQueryError(f"limit must be >= 1, got {limit}")
    if column < 1:
        raise BadQueryError(f"column must be >= 1 (1-indexed), got {column}")


def page_of(
    text: str,
    offset: int = 1,
    limit: int = 100,
    search: str | None = None,
    fuzzy: bool = False,
    max_bytes: int = MAX_BYTES,
    column: int = 1,
) -> Page:
    """Return at most `limit` lines from `offset` (the first is 1); with a search, only lines that match.

    `search` is a regular expression; with `fuzzy`, a phrase that lines must resemble, and the best lines come first.
    The first line begins at `column`. A page of more than `max_bytes` is cut. If a search takes too long, the page has
    the lines found by then.
    """
    check_query(offset, limit, column)
    lines = lines_of(text)
    if search:
        with closing(_found_lines(lines, search, fuzzy, offset + limit)) as found:
            page, has_more = _taken(islice(found, min(offset - 1, sys.maxsize), None), limit, max_bytes, column)
    else:
        page, has_more = _taken(enumerate(lines[offset - 1 : offset + limit]), limit, max_bytes, column)
    numbers: Further = {"numbers": [number + 1 for number, _ in page]} if search else {}
    begins: Further = {"column": column} if column > 1 else {}
    whole: Page = {
        "lines": [line for _, line in page],
        **numbers,
        "total_lines": len(lines),
        "returned": len(page),
        "offset": offset,
        **begins,
        "has_more": has_more,
    }
    return fitting(whole, max_bytes)


def _taken(found: Iterator[FoundLine], limit: int, max_bytes: int, column: int) -> tuple[list[FoundLine], bool]:
    """Return at most `limit` lines, the first from `column` on, and whether there are more. Stop at `max_bytes`."""
    page: list[FoundLine] = []
    size = 0
    try:
        for number, line in found:
            if len(page) == limit:
                return page, True
            start = 0 if page else column - 1
            line = line[start : start + max(2, max_bytes + 1)]  # what is longer will be cut
            page.append((number, line))
            size += written(line)
            if _is_too_much(size, max_bytes, page[0][1], len(page)):
                return page, True
    except TimeUpError as error:
        if len(page) > 1:
            return page[:-1], True  # the line left out proves that there are more
        if page:
            error.hints += (f"one line was found before: {page[0][1][:_SHOWN]}",)
        raise
    return page, False


def is_page(value: Any) -> TypeGuard[Page]:
    """Return whether a value looks like a page: code may have returned one."""
    return (
        type(value) is dict
        and Page.__required_keys__ <= value.keys() <= Page.__annotations__.keys()
        and isinstance(value["lines"], list)
        and all(type(line) is str for line in value["lines"])
        and all(type(value[key]) is int for key in ("offset", "column") if key in value)
    )


def sendable_page(page: Page, inline_bytes: int, size: int) -> Page:
    """Return the page, cut if its size is more than `inline_bytes`. Half of them are kept for the text around the
    lines.
    """
    return page if size <= inline_bytes else fitting(page, inline_bytes // 2)


def fitting(page: Page, max_bytes: int) -> Page:
    """Return the page, cut to `max_bytes`: whole lines, or a part of the first line."""
    lines, size = page["lines"], 0
    for count, line in enumerate(lines):
        size += written(line)
        if _is_too_much(size, max_bytes, line, count + 1):
            break
    else:
        return page
    offset, column = page["offset"], page.get("column", 1)
    if count:
        sent, further = lines[:count], Next(offset=offset + count, column=1)
    else:
        lengths = range(1, min(len(line), max_bytes) + 1)
        fits = bisect_right(lengths, max_bytes, key=lambda length: written(line[:length]))
        part = line[: max(1, fits)]
        sent, further = [part], Next(offset=offset, column=column + len(part))
    shorter: Page = {**page, "lines": sent, "returned": len(sent), "has_more": True, "cut": True, "next": further}
    if "numbers" in shorter:
        shorter["numbers"] = shorter["numbers"][: len(sent)]
    return shorter


def _is_too_much(size: int, max_bytes: int, line: str, count: int) -> bool:
    """Return whether lines must be cut. At least one character is always sent, so that reading makes progress."""
    return size > max_bytes and (count > 1 or len(line) > 1)


def written(line: str) -> int:
    """Return the maximum number of bytes of a line on a page, where it is a quoted string on its own line."""
    if line.isascii() and line.isprintable():
        return len(line) + line.count('"') + line.count("\\") + _AROUND
    plain = sum(map(str.isprintable, line))  # other characters are escaped
    return len(line.encode("utf-8", "surrogatepass")) + plain + _ESCAPE * (len(line) - plain) + _AROUND


def _found_lines(lines: Sequence[str], search: str, fuzzy: bool, count: int) -> Generator[FoundLine]:
    limit = MAX_FUZZY if fuzzy else MAX_SEARCH
    if len(search) > limit:
        raise BadQueryError(f"search must have at most {limit} characters, got {len(search)}")
    if not _searching.acquire(timeout=MAX_SEARCH_S):
        raise ToolFailure("other searches are running and did not finish in time", reason="busy", hints=["try again"])
    try:
        deadline = monotonic() + MAX_SEARCH_S

        def look(line: int) -> None:
            if monotonic() > deadline:
                raise TimeUpError(line, len(lines), fuzzy)

        yield from similar(lines, search, min(count, MAX_SIMILAR), look) if fuzzy else matching(lines, search, look)
    finally:
        _searching.release()
