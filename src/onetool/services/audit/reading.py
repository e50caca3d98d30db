"""AuditFolder reads the files of the audit log: backwards from its end, page by page, or on and on as lines come.

Only a block of a file is in memory at a time. A line that is none is skipped and counted: a killed process may have
left half of one. Reading takes no lock, and changes nothing.
"""

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

from onetool.core.os_files import NO_WAIT, OpenFolder, read_at
from onetool.services.audit.files import KEY, audit_names, begun_at, read_key
from onetool.services.audit.reader import (
    MOST_SCANNED,
    SLACK,
    AuditFilter,
    AuditPage,
    AuditPosition,
    is_too_old,
    moment,
    read_line,
)
from onetool.services.audit.record import LONGEST_LINE, AuditHasher, AuditRecord

BLOCK = 64 * 1024  # bytes


class AuditFolder:
    """An AuditReader of one folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def describe(self) -> str:
        return str(self.path)

    def hash_of(self, args: Any) -> str | None:
        try:
            with OpenFolder.at(self.path, follow=False) as files:
                return AuditHasher(read_key(files, self.path / KEY)).of(args)
        except FileNotFoundError:
            return None

    def page(
        self, wanted: AuditFilter, most: int, before: AuditPosition | None = None, most_scanned: int = MOST_SCANNED
    ) -> AuditPage:
        found, skipped, scanned, fits = list[AuditRecord](), 0, 0, wanted.test()
        try:
            opened = OpenFolder.at(self.path, follow=False)
        except FileNotFoundError:
            return AuditPage([], None, 0)
        with opened as files:
            for name in _names_backwards(files, wanted, before):
                end = before.offset if before is not None and before.name == name else None
                for line, offset in _lines_backwards(files, name, end):
                    record = read_line(line)
                    scanned += len(line) + 1
                    if record is None:
                        skipped += bool(line)
                    elif fits(record):
                        found.append(record)
                    elif is_too_old(record, wanted.since):
                        return AuditPage(found, None, skipped)
                    if len(found) >= most or scanned >= most_scanned:
                        return AuditPage(found, AuditPosition(name, offset), skipped)
        return AuditPage(found, None, skipped)

    def end(self) -> AuditPosition | None:
        try:
            with OpenFolder.at(self.path, follow=False) as files:
                names = audit_names(files.names())
                return AuditPosition(names[-1], files.stat(names[-1]).st_size) if names else None
        except FileNotFoundError:
            return None

    def start(self, since: float | None) -> AuditPosition | None:
        try:
            with OpenFolder.at(self.path, follow=False) as files:
                names = [*_names_backwards(files, AuditFilter(since=since), None)]
        except FileNotFoundError:
            return None
        return AuditPosition(names[-1], 0) if names else None

    def read_on(self, after: AuditPosition | None) -> Iterator[tuple[AuditRecord | None, AuditPosition]]:
        for line, behind in self.lines(after):
            yield read_line(line), behind

    def lines(self, after: AuditPosition | None = None) -> Iterator[tuple[bytes, AuditPosition]]:
        """The same, as they are in the files."""
        try:
            opened = OpenFolder.at(self.path, follow=False)
        except FileNotFoundError:
            return
        with opened as files:
            for name in audit_names(files.names()):
                if after is None or name >= after.name:
                    start = after.offset if after is not None and name == after.name else 0
                    for line, offset in _lines_forwards(files, name, start):
                        yield line, AuditPosition(name, offset)


# Files and lines


def _names_backwards(files: OpenFolder, wanted: AuditFilter, before: AuditPosition | None) -> Iterator[str]:
    """The newest first. A file whose next one was begun too early has nothing that is wanted."""
    names = audit_names(files.names())
    later: datetime | None = None
    for name in reversed(names):
        begun = begun_at(name)
        is_too_new = wanted.until is not None and begun - SLACK > moment(wanted.until)
        if (before is None or name <= before.name) and not is_too_new:
            if wanted.since is not None and later is not None and later + SLACK < moment(wanted.since):
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
