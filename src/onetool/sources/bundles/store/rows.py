"""The table of files: the truth in a database that replicas share, and over a folder a mirror that can be thrown away.

Each change has the next revision, and every row that it touches gets it; a removed file stays as a row without a body.
So others read what has changed since the revision that they know.
"""

import os
import sqlite3
import stat
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple, TypeVar

from onetool.core.os_files import make_private
from onetool.database import Database, Transaction
from onetool.database.sqlite import SqliteTransaction
from onetool.sources.bundles.store.contents import FileRow
from onetool.sources.bundles.store.paths import BUNDLE

T = TypeVar("T")
TOPIC = "bundles"


class Position(NamedTuple):
    """The identity of a table, and a revision."""

    born: str
    revision: int


class RowChanges(NamedTuple):
    """The changes until a position. With `is_whole`, they are all rows, and whatever else is known is outdated."""

    to: Position
    rows: list[FileRow]
    gone: list[str]
    is_whole: bool


def read_position(work: Transaction, *, lock: bool = False) -> Position:
    """Return the current position. With `lock`, it stays the current one until the transaction ends."""
    sql = "SELECT born, revision FROM bundle_store"
    ((born, revision),) = work.execute(f"{sql} FOR UPDATE" if lock else sql)
    return Position(born, revision)


def read_changes(work: Transaction, seen: Position | None, to: Position) -> RowChanges:
    if seen == to:
        return RowChanges(to, [], [], is_whole=False)
    is_whole = seen is None or seen.born != to.born or seen.revision > to.revision
    since = -1 if seen is None or is_whole else seen.revision
    found = work.execute("SELECT path, body, stamp FROM bundle_files WHERE revision > %s", (since,))
    rows = [FileRow(path, bytes(body), stamp) for path, body, stamp in found if body is not None]
    return RowChanges(to, rows, [path for path, body, _ in found if body is None], is_whole)


def write_rows(work: Transaction, at: Position, rows: Iterable[FileRow], gone: Iterable[str]) -> Position:
    """Write a change after the position `at`, which is the current one. Return the next position."""
    to = at._replace(revision=at.revision + 1)
    cells = [(row.path, row.body, row.stamp, to.revision) for row in rows]
    cells += [(path, None, 0, to.revision) for path in gone]
    work.execute_many(
        "INSERT INTO bundle_files (path, body, stamp, revision) VALUES (%s, %s, %s, %s) ON CONFLICT (path) DO UPDATE "
        "SET body = excluded.body, stamp = excluded.stamp, revision = excluded.revision",
        cells,
    )
    work.execute("UPDATE bundle_store SET revision = %s", (to.revision,))
    work.notify(TOPIC, str(to.revision))
    return to


def count_bundles(database: Database) -> int:
    sql = "SELECT count(*) FROM bundle_files WHERE body IS NOT NULL AND path LIKE %s"
    return database.read(lambda work: work.execute(sql, (f"%/{BUNDLE}",)))[0][0]


# The mirror of a folder

_TABLES = """
CREATE TABLE IF NOT EXISTS bundle_files (path text PRIMARY KEY, body blob, stamp integer, revision integer);
CREATE INDEX IF NOT EXISTS bundle_files_by_revision ON bundle_files (revision);
CREATE TABLE IF NOT EXISTS bundle_store
    (is_only boolean PRIMARY KEY CHECK (is_only), born text NOT NULL, revision bigint NOT NULL, key blob NOT NULL);
INSERT OR IGNORE INTO bundle_store VALUES (true, lower(hex(randomblob(16))), 0, randomblob(32));
"""
BUSY_S = 1.0  # writers hold the lock of the folder, so others are only met while they open the file


class Mirror:
    """The table of a folder, in a SQLite file of its own.

    It makes starts quick, and tells the processes of a machine what others have written. If it is damaged, it is
    replaced; if it can't be written, the files are read instead. The methods raise OSError and sqlite3.Error.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._log = f"{file}-wal"
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._inode = 0

    def stamp(self) -> Hashable:
        """Return a value that differs after every commit of any process. It costs one system call."""
        try:
            status = os.stat(self._log)
        except OSError:
            try:
                status = os.stat(self.file)
            except OSError:
                return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def run(self, job: Callable[[Transaction], T], *, makes: bool = False) -> T | None:
        """Run a job in a transaction. Return None if the file is missing, unless the job `makes` it."""
        with self._lock:
            for is_last in (False, True):
                try:
                    connection = self._open(makes)
                    if connection is None:
                        return None
                    with connection:
                        connection.execute("BEGIN IMMEDIATE" if makes else "BEGIN")
                        return job(SqliteTransaction(connection))
                except sqlite3.DatabaseError as error:
                    is_busy = isinstance(error, sqlite3.OperationalError)  # or the disk is full
                    self._close()
                    if is_last or is_busy or not makes:
                        raise
                    self._remove()
        return None

    def remove(self) -> None:
        """Throw the mirror away: the processes read the files instead."""
        with self._lock:
            self._close()
            self._remove()

    def close(self) -> None:
        with self._lock:
            self._close()

    def _open(self, makes: bool) -> sqlite3.Connection | None:
        try:
            status = os.lstat(self.file)
        except FileNotFoundError:
            inode = 0
        else:
            if not stat.S_ISREG(status.st_mode):
                raise sqlite3.DatabaseError("it is not a regular file")
            inode = status.st_ino
        if self._connection is not None and inode != self._inode:  # thrown away
            self._close()
        if self._connection is None and (inode or makes):
            make_private(self.file)
            connection = sqlite3.connect(self.file, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            self._connection = connection
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA journal_size_limit = 0")  # else the size of the log doesn't grow with a commit
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.executescript(_TABLES)
            self._inode = os.stat(self.file).st_ino
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _remove(self) -> None:
        for end in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self.file}{end}")
