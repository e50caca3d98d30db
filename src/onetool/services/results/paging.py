"""Reads a page of a text: some of its lines, or of the lines that match a search.

A line that is too long counts as several, so that it can be read in parts. Searches run on an engine that is linear in
time, and end when they take too long.
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
from onetool.core.text import lazy_pattern


class BadQueryError(BadArguments, ValueError):
    """An offset, limit or search that can't be used."""


# Lines, read piece by piece


PIECE = 64_000  # characters
LONG = 16 * PIECE  # a line of more characters is never searched as a whole


def lines_of(text: str) -> list[str]:
    """The lines of a text. The line break at its end begins no further line."""
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def pieces(text: str) -> Iterator[str]:
    """The text, cut after the last line break that a piece has room for."""
    start = 0
    while len(text) - start > PIECE:
        # Two characters further: where the piece ends, there must be neither "\n" nor "\r\n", for they begin no line.
        end = text.rfind("\n", start, start + PIECE + 2) + 1 or start + PIECE
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


class Piece(NamedTuple):
    """A part of a text, and the line and the column at which it begins. Both count from 0."""

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
    """Some whole lines, or a part of one that is very long."""

    first: int
    text: str
    is_part: bool


class TextLines:
    """The lines of a text, wherever it is. `read` gives its pieces, from the one on that has a line and column."""

    def __init__(self, total: int, read: Callable[[int, int], Iterator[Piece]]) -> None:
        self.total = total
        self._read = read

    def since(self, line: int, column: int = 0, longest: int | None = None) -> Iterator[str]:
        """The lines from this one on, the first of them from that column on; both count from 0.

        Of a line with more than `longest` characters at least so many come, and what follows them is not read.
        """
        if line >= self.total:
            return
        pieces = self._read(line, column)
        first = next(pieces)
        skipped = line - first.line
        before = column if skipped else column - first.column
        lines = islice(_joined(chain([first], pieces), None if longest is None else longest + before), skipped, None)
        yield next(lines)[before:]
        yield from lines

    def chunks(self) -> Iterator[Chunk]:
        """All of the text in whole lines; a line of more than LONG characters in parts that overlap by a piece."""
        held: list[str] = []
        is_part = False
        for piece, following in pairwise(chain(self._read(0, 0), [None])):
            assert piece is not None  # noqa: S101 - for the type checker
            held.append(piece.text)
            if following is None or following.column == 0:
                yield from _ended(piece.line, "".join(held), is_part)
                held, is_part = [], False
            elif sum(map(len, held)) > LONG:
                yield Chunk(piece.line, "".join(held), is_part=True)
                held, is_part = held[-1:], True


def _joined(pieces: Iterable[Piece], longest: int | None) -> Iterator[str]:
    """The lines of pieces. The first may be the rest of a line."""
    parts: list[str] = []
    is_told = False  # the line was long enough, and the rest of it is skipped
    for piece in pieces:
        *ended, rest = piece.text.split("\n")
        for text in ended:
            if not is_told:
                yield "".join((*parts, text)).removesuffix("\r")
            parts, is_told = [], False
        if rest and not is_told:
            parts.append(rest)
            if longest is not None and sum(map(len, parts)) >= longest:
                is_told = True
                yield "".join(parts)
    if parts and not is_told:
        yield "".join(parts)


def _ended(first: int, text: str, is_part: bool) -> Iterator[Chunk]:
    """The end of a chunk. After the last part of a long line there may be other lines in the same piece."""
    if not is_part:
        yield Chunk(first, text, is_part=False)
        return
    part, _, others = text.partition("\n")
    yield Chunk(first, part.removesuffix("\r"), is_part=True)
    if others:
        yield Chunk(first + 1, others, is_part=False)


# Searching lines


SIMILAR = 70.0  # of 100: less is chance
_SIZE = 256 * 1024  # of a compiled pattern: a stranger's may be small programs only
_OFTEN = 8  # lines between two looks at the clock, where each may take some hundredths of a second
_WINDOW = 2_000  # characters of a line that are compared at once
LONGEST_FOUND = 32 * 1024 * 1024  # characters of a line that was found: no page holds more
_LOOKS_AROUND = lazy_pattern(r"[\^$]|\\[AbBGzZ<>]")

OnProgress = Callable[[int], None]
FoundLine = tuple[int, str]  # a line, and before it which it is; the first is 0


def matching(lines: TextLines, search: str, look: OnProgress) -> Iterator[FoundLine]:
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


def _line(lines: TextLines, number: int) -> str:
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
            return is_valid(
                _without_surrogates(value) if isinstance(value, str) else list(map(_without_surrogates, value))
            )

    return accepts


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def similar(lines: TextLines, search: str, most: int, look: OnProgress) -> Iterator[FoundLine]:
    """The lines that hold something like it, in any case: the best first, equals in their order, at most so many."""
    from heapq import heappush, heappushpop

    best: list[tuple[float, int, str]] = []
    for number, scored in groupby(_scored(lines, search.lower(), look), itemgetter(0)):
        _, score, line = max(scored)
        if score:
            (heappush if len(best) < most else heappushpop)(best, (score, -number, line))
    best.sort(reverse=True)
    return ((-number, line or _line(lines, -number)) for _, number, line in best)


def _scored(lines: TextLines, wanted: str, look: OnProgress) -> Iterator[tuple[int, float, str]]:
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


# Pages


LONGEST_SEARCH = 1_000
LONGEST_FUZZY = 100  # what a line takes grows with the square of it: half a millisecond here, forty for a thousand
MOST_BYTES = 32 * 1024 * 1024  # of a page, also for code
BEST = 1_000  # lines that resemble a search; more are not useful
MOST_SECONDS = 5.0
_AROUND = 16  # quotes, a mark and spaces before it, and the number of a line that was searched for
_ESCAPE = 10  # bytes, of \\U0001f600 for example
_SHOWN = 200  # characters of a line inside a message


# One at a time: comparing holds up all other threads of the process, as long as a line or a piece takes.
_searching = Semaphore(1)


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
    lines: TextLines,
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
    found = _found_lines(lines, search, fuzzy, offset + limit) if search else _read(lines, offset, column, most_bytes)
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


def _read(lines: TextLines, offset: int, column: int, most_bytes: int) -> Generator[FoundLine]:
    yield from enumerate(lines.since(offset - 1, column - 1, most_bytes + 1), offset - 1)


def _from(found: Iterator[FoundLine], column: int) -> Iterator[FoundLine]:
    """The same lines, the first of them from that column on."""
    for number, line in islice(found, 1):
        yield number, line[column - 1 :]
    yield from found


def _taken(found: Iterator[FoundLine], limit: int, most_bytes: int) -> tuple[list[FoundLine], bool]:
    """As many as were asked for, and whether there are more. No more are read than it takes to have too much."""
    page: list[FoundLine] = []
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


def _found_lines(lines: TextLines, search: str, fuzzy: bool, most: int) -> Generator[FoundLine]:
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
