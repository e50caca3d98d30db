"""AuditFiles writes the files of the audit log in one folder; AuditFolder reads them.

    audit/2026-11-16T170318.123Z.jsonl    the name says when it was begun
    audit/key                             of the hashes
    audit/.lock                           held while a file is written

Several processes append to the same file. A new file begins with a day (UTC), and when the current one is full. Whoever
writes holds the lock for as long as one write takes: so a file has one writer at a time, and what a full disk or a
killed process has left of a line is seen and does not spoil the next one. Nothing is opened through a link.

Reading goes backwards from the end, page by page, or on and on as lines come. Only a block of a file is in memory at a
time. A line that is none is skipped and counted: a killed process may have left half of one. Reading takes no lock, and
changes nothing.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from secrets import token_hex
from typing import Any

from onetool.core.flock import locked_folder
from onetool.core.os_files import HAS_OWNERS, NO_WAIT, OpenFolder, read_at
from onetool.services.audit.record import (
    LONGEST_LINE,
    MOST_SCANNED,
    SLACK,
    AuditFilter,
    AuditHasher,
    AuditPage,
    AuditPosition,
    AuditRecord,
    AuditSettings,
    is_too_old,
    moment,
    read_line,
)

KEY = "key"
KEY_BYTES = 32
PATIENCE_S = 2.0  # for another process that writes; it may have been stopped
AT_ONCE = 64 * 1024  # bytes of one write
_FORMAT = "%Y-%m-%dT%H%M%S.%f"
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}\.\d{3}Z\.jsonl", re.ASCII)

BLOCK = 64 * 1024  # bytes


class AuditFiles:
    """An AuditStorage: appends lines to files. Called by one thread at a time."""

    def __init__(self, path: Path, settings: AuditSettings, clock: Callable[[], float]) -> None:
        self.path = path
        self.settings = settings
        self._clock = clock
        self._current: str | None = None  # the name of the file that was written to last

    def describe(self) -> str:
        return str(self.path)

    def append(self, lines: Sequence[bytes]) -> tuple[int, OSError | None]:
        """Append whole lines; gives how many were written, and why the others were not."""
        written = 0
        try:
            with self._locked() as folder:
                while written < len(lines):
                    some = _first_of(lines[written:])
                    count, error = self._append(folder, some)
                    written += count
                    if error is not None:
                        return written, error
        except OSError as error:
            return written, error
        return written, None

    def key(self, new: bytes | None = None) -> bytes:
        """The key of the hashes. Where there is none, one is made: this one, or any. Raises OSError."""
        with self._locked() as folder:
            with suppress(FileNotFoundError):
                return read_key(folder, self.path / KEY)
            draft = f".{KEY}.{token_hex(8)}"
            file = folder.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                with os.fdopen(file, "w") as stream:
                    stream.write(token_hex(KEY_BYTES) if new is None else new.hex())
                    stream.flush()
                    os.fsync(stream.fileno())
                folder.rename(draft, KEY)
            except BaseException:
                with suppress(OSError):
                    folder.unlink(draft)
                raise
            return read_key(folder, self.path / KEY)

    def sweep(self) -> None:
        """Remove the files whose last line is older than the retention. The current one stays. Raises OSError."""
        oldest = datetime.fromtimestamp(self._clock(), UTC) - timedelta(days=self.settings.retention_days)
        with self._locked() as folder:
            for name in audit_names(folder.names())[:-1]:
                if _end_of_day(name) <= oldest:
                    folder.unlink(name)

    # How

    def _locked(self) -> AbstractContextManager[OpenFolder]:
        return locked_folder(self.path, PATIENCE_S)

    def _append(self, folder: OpenFolder, lines: Sequence[bytes]) -> tuple[int, OSError | None]:
        """Append in one write. What was written of a line beyond the last whole one is taken back."""
        file = self._open(folder)
        try:
            size = os.fstat(file).st_size
            torn = size > 0 and read_at(file, 1, size - 1) != b"\n"  # a process was killed while it wrote
            data = (b"\n" if torn else b"") + b"".join(lines)
            done = os.write(file, data)
            if done == len(data):
                return len(lines), None
            whole = data.rfind(b"\n", 0, done) + 1
            os.ftruncate(file, size + whole)
            return data.count(b"\n", 0, whole) - torn * (whole > 0), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)

    def _open(self, folder: OpenFolder) -> int:
        """The current file, or a new one if that is full or of another day."""
        if self._current is not None and self._is_of_today(self._current):
            with suppress(FileNotFoundError):
                file = self._opened(folder, self._current, os.O_RDWR | os.O_APPEND)
                if os.fstat(file).st_size < self.settings.max_mb * 1024**2:
                    return file
                os.close(file)
        names = audit_names(folder.names())
        newest = names[-1] if names else None
        if newest is not None and newest != self._current and self._is_of_today(newest):
            self._current = newest  # another process has begun it
            return self._open(folder)
        self._current = self._new_name(newest)
        return self._opened(folder, self._current, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)

    def _opened(self, folder: OpenFolder, name: str, flags: int) -> int:
        file = folder.open(name, flags | NO_WAIT)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is no regular file", str(self.path / name))
            if HAS_OWNERS and status.st_mode & 0o077:
                os.fchmod(file, 0o600)
        except BaseException:
            os.close(file)
            raise
        return file

    def _is_of_today(self, name: str) -> bool:
        """Or of a later day, which it is after the clock was put back."""
        return name[:10] >= datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%d")

    def _new_name(self, newest: str | None) -> str:
        """A name after all others, so that the order of names is that of lines."""
        now = datetime.fromtimestamp(self._clock(), UTC)
        if newest is not None:
            now = max(now, begun_at(newest) + timedelta(milliseconds=1))
        return f"{now.strftime(_FORMAT)[:-3]}Z.jsonl"


def audit_names(names: Sequence[str]) -> list[str]:
    """Those that are files of the log, the oldest first."""
    return sorted(name for name in names if _NAME.fullmatch(name) and _is_time(name))


def begun_at(name: str) -> datetime:
    return datetime.strptime(name.removesuffix("Z.jsonl"), _FORMAT).replace(tzinfo=UTC)


def _is_time(name: str) -> bool:
    try:
        begun_at(name)
    except ValueError:
        return False
    return True


def _end_of_day(name: str) -> datetime:
    return begun_at(name).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def _first_of(lines: Sequence[bytes]) -> list[bytes]:
    """As many as fit into one write; at least one."""
    taken, size = list[bytes](), 0
    for line in lines:
        size += len(line)
        if taken and size > AT_ONCE:
            break
        taken.append(line)
    return taken


def read_key(folder: OpenFolder, path: Path) -> bytes:
    """The key of the hashes. Raises OSError; FileNotFoundError where there is none."""
    file = folder.open(KEY, os.O_RDONLY | NO_WAIT)
    try:
        text = read_at(file, 4 * KEY_BYTES, 0).decode("ascii", "replace").strip()
    finally:
        os.close(file)
    if not re.fullmatch(rf"[0-9a-f]{{{2 * KEY_BYTES}}}", text):
        raise OSError(errno.EINVAL, "it is no key of the audit log; without it a new one is made", str(path))
    return bytes.fromhex(text)


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
