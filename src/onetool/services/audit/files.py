"""AuditFiles: the files of the audit log in one folder. Several processes append to the same file.

    audit/2026-11-16T170318.123Z.jsonl    the name says when it was begun
    audit/key                             of the hashes
    audit/.lock                           held while a file is written

A new file begins with a day (UTC), and when the current one is full. Whoever writes holds the lock for as long as one
write takes: so a file has one writer at a time, and what a full disk or a killed process has left of a line is seen
and does not spoil the next one. Nothing is opened through a link.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex

from onetool.core.flock import locked_folder
from onetool.core.os_files import HAS_OWNERS, NO_WAIT, OpenFolder, read_at
from onetool.services.audit.storage import AuditSettings

KEY = "key"
KEY_BYTES = 32
PATIENCE_S = 2.0  # for another process that writes; it may have been stopped
AT_ONCE = 64 * 1024  # bytes of one write
_FORMAT = "%Y-%m-%dT%H%M%S.%f"
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}\.\d{3}Z\.jsonl", re.ASCII)


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
