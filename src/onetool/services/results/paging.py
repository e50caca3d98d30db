"""Reads a page of a text: some of its lines, or of the lines that match a search.

A line that is too long can be read in parts. Searches use an engine with linear time, and have a time limit.
"""

import sys
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain, groupby, islice, pairwise
from operator import itemgetter
from threading import Semaphore
from time import monotonic
from typing import Any, NamedTuple, TypedDict, TypeGuard

from onetool.core.call import Next, Page
from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.text import lazy_pattern, replace_all_surrogates


class BadQueryError(BadArguments, ValueError):
    """An offset, limit or search that can't be used."""


# Lines, read piece by piece

PIECE = 64_000  # characters
LONG = 16 * PIECE  # a longer line is never searched as a whole


def lines_of(text: str) -> list[str]:
    """Return the lines of a text. A line break at the end does not start another line."""
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces that end with a line break where possible."""
    start = 0
    while len(text) - start > PIECE:
        # Two characters further: no piece may begin with "\n" or "\r\n", which would end a line of the piece before.
        end = text.rfind("\n", start, start + PIECE + 2) + 1 or start + PIECE
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


class Piece(NamedTuple):
    """A part of a text, with the line and column at which it begins. Both count from 0."""

    line: int
    column: int
    text: str


def placed_pieces(text: str) -> Iterator[Piece]:
    line = column = 0
    for part in pieces(text):
        yield Piece(line, column, part)
        breaks = part.count("\n")
        line += breaks
        column = len(part) - part.rfind("\n") - 1 if breaks else column + len(part)


class Chunk(NamedTuple):
    """Some whole lines, or a part of a very long line."""

    first: int
    text: str
    is_part: bool


class TextLines:
    """The lines of a stored text. `read` yields its pieces, from the piece with a given line and column on."""

    def __init__(self, total: int, read: Callable[[int, int], Iterator[Piece]]) -> None:
        self.total = total
        self._read = read

    def since(self, line: int, column: int = 0, limit: int | None = None) -> Iterator[str]:
        """Yield the lines from `line` on, the first of them from `column` on; both count from 0.

        A line with more than `limit` characters may be cut there, and the rest is not read.
        """
        if line >= self.total:
            return
        pieces = self._read(line, column)
        first = next(pieces)
        skipped = line - first.line
        before = column if skipped else column - first.column
        lines = islice(_joined(chain([first], pieces), None if limit is None else limit + before), skipped, None)
        yield next(lines)[before:]
        yield from lines

    def chunks(self) -> Iterator[Chunk]:
        """Yield the whole text in lines. Lines longer than LONG are in parts that overlap by one piece."""
        held: list[str] = []
        is_part = False
        for piece, following in pairwise(chain(self._read(0, 0), [None])):
            assert piece is not None  # noqa: S101 - for the type checker
            held.append(piece.text)
            if following is None or following.column == 0:
                text, others = "".join(held), ""
                if is_part:  # more lines may follow the last part of a long line
                    text, _, others = text.partition("\n")
                    text = text.removesuffix("\r")
                yield Chunk(piece.line, text, is_part)
                if others:
                    yield Chunk(piece.line + 1, others, is_part=False)
                held, is_part = [], False
            elif sum(map(len, held)) > LONG:
                yield Chunk(piece.line, "".join(held), is_part=True)
                held, is_part = held[-1:], True


def _joined(pieces: Iterable[Piece], limit: int | None) -> Iterator[str]:
    """Yield the lines of pieces. The first may be the rest of a line."""
    parts: list[str] = []
    is_cut = False  # the rest of the line is skipped
    for piece in pieces:
        *ended, rest = piece.text.split("\n")
        for text in ended:
            if not is_cut:
                yield "".join((*parts, text)).removesuffix("\r")
            parts, is_cut = [], False
        if rest and not is_cut:
            parts.append(rest)
            if limit is not None and sum(map(len, parts)) >= limit:
                is_cut = True
                yield "".join(parts)
    if parts and not is_cut:
        yield "".join(parts)


# Searching lines

SIMILAR = 70.0  # of 100: lower scores are chance
MAX_PATTERN_BYTES = 256 * 1024  # of a compiled pattern
MAX_FOUND = 32 * 1024 * 1024  # characters of a found line: the limit of a page
_OFTEN = 8  # comparisons between two checks of the clock
_WINDOW = 2_000  # characters of a line compared at once
_LOOKS_AROUND = lazy_pattern(r"[\^$]|\\[AbBGzZ<>]")

OnProgress = Callable[[int], None]
FoundLine = tuple[int, str]  # the number of a line, from 0, and the line


def matching(lines: TextLines, search: str, look: OnProgress) -> Iterator[FoundLine]:
    """Yield the lines that contain a match.

    Most pieces of a large text have no match, which a single test per piece shows. It tests the piece's text if the
    pattern doesn't depend on the text around a match, and otherwise all its lines at once.
    """
    fits = _accepts({"pattern": search}, search)
    none_fits = _accepts({"items": {"not": {"pattern": search}}}, search)
    fits_within = None if _LOOKS_AROUND.search(search) else fits
    last = -1  # the last very long line that matched
    for first, text, is_part in lines.chunks():
        look(first)
        if is_part:
            if first != last and fits(text):
                last = first
                yield first, _line(lines, first)
        elif fits_within is None or fits_within(text):
            some = lines_of(text)
            if not none_fits(some):
                yield from ((number, line) for number, line in enumerate(some, first) if fits(line))


def _line(lines: TextLines, number: int) -> str:
    return next(lines.since(number, limit=MAX_FOUND))


def _accepts(schema: dict[str, object], search: str) -> Callable[[str | list[str]], bool]:
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

    def accepts(value: str | list[str]) -> bool:
        try:
            return is_valid(value)
        except UnicodeEncodeError:  # a lone surrogate
            return is_valid(replace_all_surrogates(value))

    return accepts


def similar(lines: TextLines, search: str, count: int, look: OnProgress) -> Iterator[FoundLine]:
    """Return at most `count` similar lines, ignoring case: the best first, equal ones in order."""
    from heapq import heappush, heappushpop

    best: list[tuple[float, int, str]] = []
    for number, scored in groupby(_scored(lines, search.lower(), look), itemgetter(0)):
        _, score, line = max(scored)
        if score:
            (heappush if len(best) < count else heappushpop)(best, (score, -number, line))
    best.sort(reverse=True)
    return ((-number, line or _line(lines, -number)) for _, number, line in best)


def _scored(lines: TextLines, search: str, look: OnProgress) -> Iterator[tuple[int, float, str]]:
    """Yield number, similarity (0 to 100) and text of each line. Very long lines occur several times, without text."""
    from rapidfuzz import fuzz

    for first, text, is_part in lines.chunks():
        for number, line in [(first, text)] if is_part else enumerate(lines_of(text), first):
            if len(line) > _WINDOW:
                yield number, _best_window(search, line, lambda at=number: look(at)), "" if is_part else line
                continue
            if number % _OFTEN == 0:
                look(number)
            # Compare parts of the line with all of the search, never the reverse: the line "c" must not match "config".
            measure = fuzz.partial_ratio if len(line) >= len(search) else fuzz.ratio
            yield number, measure(search, line.lower(), score_cutoff=SIMILAR), "" if is_part else line


def _best_window(search: str, line: str, look: Callable[[], None]) -> float:
    """Return the similarity of a long line, compared in windows that overlap by the length of the search."""
    from rapidfuzz import fuzz

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
    lines: TextLines,
    offset: int,
    limit: int,
    search: str | None,
    fuzzy: bool,
    max_bytes: int = MAX_BYTES,
    column: int = 1,
) -> Page:
    """Return at most `limit` lines from `offset` (the first is 1); with a search, only lines that match.

    `search` is a regular expression; with `fuzzy`, a phrase that lines must resemble, and the best lines come first.
    The first line begins at `column`. A page of more than `max_bytes` is cut. If a search takes too long, the page has
    the lines found by then.
    """
    check_query(offset, limit, column)
    if search:
        found = _found_lines(lines, search, fuzzy, offset + limit)
        skipped, first_column = min(offset - 1, sys.maxsize), column
    else:
        found = (line for line in enumerate(lines.since(offset - 1, column - 1, max_bytes + 1), offset - 1))
        skipped, first_column = 0, 1
    with closing(found):
        page, has_more = _taken(islice(found, skipped, None), limit, max_bytes, first_column)
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
    return fitting(whole, max_bytes)


def _taken(found: Iterator[FoundLine], limit: int, max_bytes: int, column: int) -> tuple[list[FoundLine], bool]:
    """Return at most `limit` lines, the first from `column` on, and whether there are more. Stop at `max_bytes`."""
    page: list[FoundLine] = []
    size = 0
    try:
        for number, line in found:
            if len(page) == limit:
                return page, True
            if not page:
                line = line[column - 1 :]
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


def _found_lines(lines: TextLines, search: str, fuzzy: bool, count: int) -> Generator[FoundLine]:
    limit = MAX_FUZZY if fuzzy else MAX_SEARCH
    if len(search) > limit:
        raise BadQueryError(f"search must have at most {limit} characters, got {len(search)}")
    if not _searching.acquire(timeout=MAX_SEARCH_S):
        raise ToolFailure("other searches are running and did not finish in time", reason="busy", hints=["try again"])
    try:
        deadline = monotonic() + MAX_SEARCH_S

        def look(line: int) -> None:
            if monotonic() > deadline:
                raise TimeUpError(line, lines.total, fuzzy)

        yield from similar(lines, search, min(count, MAX_SIMILAR), look) if fuzzy else matching(lines, search, look)
    finally:
        _searching.release()
