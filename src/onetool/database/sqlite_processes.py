"""Detects when other processes replace, damage or change a SQLite file; also locks, and the setup of connections."""

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from onetool.core import flock
from onetool.core.os_files import SQLITE_ENDS, private
from onetool.core.state_folders import make_home
from onetool.database.connection import (
    NEWEST,
    DatabaseError,
    DatabaseLock,
    Forget,
    StorageError,
    UnsafeDatabaseError,
)
from onetool.database.listeners import Listeners
from onetool.database.percentiles import SpreadAggregate
from onetool.database.sqlite_errors import hide_folder, system_fix

POLL_S = 1.0  # between two polls for changes by other processes


class FileIds(NamedTuple):
    """The identity of a file and its log, with their owners and modes."""

    file: tuple[int, int]
    log: tuple[int, int] | None
    access: tuple[int, ...]  # mode and owner of each
    is_empty: bool

    @classmethod
    def of(cls, file: str) -> "FileIds | None":
        try:
            status = os.lstat(file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        own, access, is_empty = (status.st_dev, status.st_ino), (status.st_mode, status.st_uid), not status.st_size
        try:
            log = os.lstat(f"{file}-wal")
        except FileNotFoundError:
            return cls(own, None, access, is_empty)
        return cls(own, (log.st_dev, log.st_ino), (*access, log.st_mode, log.st_uid), is_empty)


def require_own_file(file: Path) -> None:
    """Raise UnsafeDatabaseError if other users could have written the file or one that SQLite reads with it."""
    for path in (str(file), *(f"{file}{suffix}" for suffix in SQLITE_ENDS)):
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not stat.S_ISREG(status.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
            why = f"it is {kind} (fix: remove it, or set ONETOOL_HOME)"
        elif status.st_uid != os.geteuid():
            why = "it belongs to another user (fix: chown it, or set ONETOOL_HOME)"
        elif status.st_mode & 0o022:
            why = f"other users can write it (fix: chmod 600 {path})"
        else:
            continue
        raise UnsafeDatabaseError(f"{path} is not used: {why}")


def prevent_checkpoint(connection: sqlite3.Connection) -> None:
    """Keep SQLite from writing a deleted log, or one that others could have written, to the file when the last
    connection is closed, and from deleting the log that is there now.
    """
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA user_version = {NEWEST}")  # makes SQLite try to write
    connection.interrupt()  # makes it give up


class SqliteLock(DatabaseLock):
    """A lock file next to the database, one for each name. It is never deleted: a new file would be another lock."""

    def __init__(self, database: Path, name: str) -> None:
        from hashlib import sha256  # loads OpenSSL, which commands without locks don't need

        self._path = database.with_name(f".{database.name}.{sha256(name.encode()).hexdigest()[:16]}.lock")
        self._file: int | None = None

    def take(self) -> bool:
        if self._file is None:
            try:
                make_home(self._path.parent)
                file = private(self._path, os.O_RDWR | os.O_CREAT)
                if flock.take(file):
                    self._file = file
                else:
                    os.close(file)
            except OSError as error:
                failure = StorageError(f"{self._path} can't be locked: {error.strerror or error}{system_fix(error)}")
                hide_folder(failure, self._path)
                raise failure from error
        return self._file is not None

    def release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            flock.give_back(file)

    def remove(self) -> None:
        """Release the lock and delete its file, if the name is never used again. Never raises."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                flock.remove(self._path, file)

    def find_holder(self) -> str | None:
        """Describe the process that holds the lock. If there is none, remove the lock file."""
        if not os.path.lexists(self._path):
            return None
        with suppress(DatabaseError):
            if self.take():
                self.remove()
                return None
        return flock.holder(self._path) or flock.UNKNOWN


class PollingListeners(Listeners):
    """Listeners that are called immediately for changes by this process. A thread polls for changes by others."""

    def __init__(self, stamp: Callable[[], Hashable]) -> None:
        """Create listeners. `stamp` is a function whose result differs after every change."""
        super().__init__()
        self._stamp = stamp
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, topic: str, call: Callable[[str], None]) -> Forget:
        forget = super().add(topic, call)
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="onetool-state", daemon=True)
            self._thread.start()
        return forget

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        seen: Hashable = None
        while not self._closed.wait(POLL_S):
            with suppress(DatabaseError):
                stamp = self._stamp()
                if stamp != seen:
                    seen = stamp
                    self.tell(None)


def use_log(connection: sqlite3.Connection) -> None:
    """Use a write-ahead log if the file system supports it, so that others can read during writes."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
            raise


def add_functions(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.create_function("unix_time", 0, time.time)
    connection.create_aggregate("spread", 1, SpreadAggregate)  # pyright: ignore[reportArgumentType] - its stub wants an int
    return connection
