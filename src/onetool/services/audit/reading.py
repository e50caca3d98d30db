"""Reading the audit log: backwards from its end, page by page, or on and on as lines come.

Only a block of a file is in memory at a time. A line that is none is skipped and counted: a killed process may have
left half of one. Reading takes no lock, and changes nothing.
"""

import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from onetool.core.folder import OpenFolder
from onetool.core.os_files import NO_WAIT, read_at
from onetool.core.text import wanted_name
from onetool.core.times import read_span, read_time, utc_text_ms
from onetool.services.audit.files import KEY, audit_names, begun_at, read_key
from onetool.services.audit.record import LONGEST_LINE, OK, AuditHasher, AuditKind, AuditRecord

BLOCK = 64 * 1024  # bytes
MOST_SCANNED = 32 * 1024**2  # bytes that are read for one page, however few of its lines are wanted
SLACK = timedelta(minutes=5)  # that lines of several processes, or of a clock that was put right, are out of order

_decode = msgspec.json.Decoder(AuditRecord).decode


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines are wanted; None: all."""

    since: float | None = None  # seconds since 1970
    until: float | None = None
    who: str | None = None  # a name or an owner; empty for the person who runs the process
    kind: AuditKind | None = None
    tool: str | None = None  # a pattern of what was called or changed: web.*
    outcome: str | None = None  # ok, error, a code, a reason, or a status of HTTP
    args: str | None = None  # the hash of the arguments, as `hash_of` gives it

    def test(self) -> Callable[[AuditRecord], bool]:
        """A function that says whether a line is wanted."""
        since, until = _text(self.since), _text(self.until)
        who = None if self.who is None else wanted_name(self.who)

        def wanted(record: AuditRecord) -> bool:
            return (
                (since is None or record.time >= since)
                and (until is None or record.time < until)
                and (who is None or who in (record.who, record.owner or record.who))
                and (self.kind is None or record.kind == self.kind)
                and (self.tool is None or fnmatchcase(record.what, self.tool))
                and (self.outcome is None or _has_outcome(record, self.outcome))
                and (self.args is None or record.args == self.args)
            )

        return wanted


class AuditPosition(NamedTuple):
    """A place in the log: a file, and how many bytes of it come before."""

    name: str
    offset: int


class AuditPage(NamedTuple):
    """The newest lines first. `before` is where to go on; None at the end of the log."""

    records: list[AuditRecord]
    before: AuditPosition | None
    skipped: int  # lines that can't be read


def read_moment(text: str, now: float) -> float | None:
    """A time ago (30m, 2h, 7d) or a date as ISO 8601 has it, in UTC unless it says otherwise; None if it is neither."""
    span = read_span(text)
    return read_time(text) if span is None else now - span


def hash_of(folder: Path, args: Any) -> str | None:
    """The hash that lines of this log have for such arguments; None where there is no key yet. Raises OSError."""
    try:
        with OpenFolder.at(folder, follow=False) as files:
            return AuditHasher(read_key(files, folder / KEY)).of(args)
    except FileNotFoundError:
        return None


def read_page(
    folder: Path,
    wanted: AuditFilter,
    most: int,
    before: AuditPosition | None = None,
    most_scanned: int = MOST_SCANNED,
) -> AuditPage:
    """At most so many lines, from a position backwards. A page may be short, or empty, and still not be the last one.

    Raises OSError; a log that is not there is empty.
    """
    found, skipped, scanned, fits = list[AuditRecord](), 0, 0, wanted.test()
    try:
        opened = OpenFolder.at(folder, follow=False)
    except FileNotFoundError:
        return AuditPage([], None, 0)
    with opened as files:
        for name in _names_backwards(files, wanted, before):
            end = before.offset if before is not None and before.name == name else None
            for line, offset in _lines_backwards(files, name, end):
                record = _read(line)
                scanned += len(line) + 1
                if record is None:
                    skipped += bool(line)
                elif fits(record):
                    found.append(record)
                elif _is_too_old(record, wanted.since):
                    return AuditPage(found, None, skipped)
                if len(found) >= most or scanned >= most_scanned:
                    return AuditPage(found, AuditPosition(name, offset), skipped)
    return AuditPage(found, None, skipped)


def end_of_log(folder: Path) -> AuditPosition | None:
    """Where the next line will be; None where there is no log yet."""
    try:
        with OpenFolder.at(folder, follow=False) as files:
            names = audit_names(files.names())
            return AuditPosition(names[-1], files.stat(names[-1]).st_size) if names else None
    except FileNotFoundError:
        return None


def start_of(folder: Path, since: float | None) -> AuditPosition | None:
    """Where to begin with the lines since then; None: at the first file."""
    try:
        with OpenFolder.at(folder, follow=False) as files:
            names = [*_names_backwards(files, AuditFilter(since=since), None)]
    except FileNotFoundError:
        return None
    return AuditPosition(names[-1], 0) if names else None


def read_on(folder: Path, after: AuditPosition | None) -> Iterator[tuple[AuditRecord | None, AuditPosition]]:
    """The lines that have come since, the oldest first, each with the position behind it; None for one that is none."""
    try:
        opened = OpenFolder.at(folder, follow=False)
    except FileNotFoundError:
        return
    with opened as files:
        for name in audit_names(files.names()):
            if after is None or name >= after.name:
                start = after.offset if after is not None and name == after.name else 0
                for line, offset in _lines_forwards(files, name, start):
                    yield _read(line), AuditPosition(name, offset)


# Files and lines


def _names_backwards(files: OpenFolder, wanted: AuditFilter, before: AuditPosition | None) -> Iterator[str]:
    """The newest first. A file whose next one was begun too early has nothing that is wanted."""
    names = audit_names(files.names())
    later: datetime | None = None
    for name in reversed(names):
        begun = begun_at(name)
        is_too_new = wanted.until is not None and begun - SLACK > _time(wanted.until)
        if (before is None or name <= before.name) and not is_too_new:
            if wanted.since is not None and later is not None and later + SLACK < _time(wanted.since):
                return
            yield name
        later = begun


def _lines_backwards(files: OpenFolder, name: str, end: int | None) -> Iterator[tuple[bytes, int]]:
    """Each line with its offset, the last one first. What has no end yet is left out."""
    with _opened(files, name) as (file, size):
        left = size if end is None else min(end, size)
        rest, has_end = b"", False  # the end of a line that begins further before, and whether that is all of it
        while left > 0:
            start = max(0, left - BLOCK)
            parts = (read_at(file, left - start, start) + rest).split(b"\n")
            offsets = list(accumulate((len(part) + 1 for part in parts), initial=start))
            for part, offset in zip(reversed(parts[1:]), reversed(offsets[1:-1]), strict=True):
                if has_end:
                    yield part, offset
                has_end = True
            rest, left = _bounded(parts[0]), start
        if has_end:
            yield rest, 0


def _lines_forwards(files: OpenFolder, name: str, start: int) -> Iterator[tuple[bytes, int]]:
    """Each line with the offset behind it. What has no end yet is left out."""
    with _opened(files, name) as (file, size):
        rest, at = b"", start
        while at < size:
            block = read_at(file, min(BLOCK, size - at), at)
            if not block:
                return
            *lines, last = block.split(b"\n")
            for line in lines:
                at += len(line) + 1
                yield rest + line, at
                rest = b""
            rest = _bounded(rest + last)
            at += len(last)


@contextmanager
def _opened(files: OpenFolder, name: str) -> Generator[tuple[int, int]]:
    """The file and its size. One that was removed meanwhile is empty."""
    try:
        file = files.open(name, os.O_RDONLY | NO_WAIT)
    except FileNotFoundError:
        yield -1, 0
        return
    try:
        status = os.fstat(file)
        yield file, status.st_size if stat.S_ISREG(status.st_mode) else 0
    finally:
        os.close(file)


def _bounded(line: bytes) -> bytes:
    """A line that is too long is none of ours. Only that is kept of it."""
    return line if len(line) <= LONGEST_LINE else b"?" * LONGEST_LINE


def _read(line: bytes) -> AuditRecord | None:
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# Times and outcomes


def _text(seconds: float | None) -> str | None:
    """As lines have it. Times in this form are in the order of their texts."""
    return None if seconds is None else utc_text_ms(min(max(seconds, 0.0), _LATEST))


_LATEST = 253402300799.0  # the end of the year 9999


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(max(seconds, 86_400.0), _LATEST - 86_400), UTC)


def _is_too_old(record: AuditRecord, since: float | None) -> bool:
    """So that no line before it is wanted either."""
    return since is not None and record.time < (_text(since - SLACK.total_seconds()) or "")


def _has_outcome(record: AuditRecord, wanted: str) -> bool:
    if wanted == "error":
        return record.failed
    if wanted == OK:
        return record.outcome == OK
    return wanted in (record.outcome, record.reason) or wanted == str(record.status)
