"""The SQLite file of the index, its tables, and its connections, one per thread.

The file is made anew where it is missing, damaged, somebody else's or of another layout. A new one replaces the old one
under a lock that whoever opens it holds, too. Connections to the old one are used until their next check of the file's
identity. An index in memory has a single connection, which its threads share. After a fork the child opens its own.
"""

import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from threading import RLock, local
from time import time_ns
from weakref import WeakSet

from onetool.core import flock
from onetool.core.os_files import open_no_link, sync_file
from onetool.sources.bundles.errors import UnavailableError
from onetool.sources.bundles.index.waiting import LONG_SECONDS, IndexBusyError, WaitLimit, is_damage, is_gone

APPLICATION = 0x0B0D1E5  # says that a file is ours
LAYOUT = 6

# `no` is a tool's number in here, and nowhere else. Its JSON lies apart, packed, so that what is scanned stays slim.
# `since`: the revision that a row was written at; another one for every other content.
# `live`: a bundle that is neither disabled nor soft-deleted. Built-in rows have no file.
# `gone`: what was here not long ago. The search, which is in memory, follows `since` and this.
_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE bundles (
    id TEXT PRIMARY KEY, live INTEGER NOT NULL, built_in INTEGER NOT NULL, body BLOB NOT NULL, since INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE tools (
    no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, bundle TEXT NOT NULL, slug TEXT NOT NULL, version TEXT NOT NULL,
    enabled INTEGER NOT NULL, built_in INTEGER NOT NULL, function TEXT, UNIQUE (bundle, slug, version)
);
CREATE INDEX tools_of_bundle ON tools (bundle, id);
CREATE INDEX tools_built_in ON tools (no) WHERE built_in;
CREATE TABLE bodies (no INTEGER PRIMARY KEY, body BLOB NOT NULL, since INTEGER NOT NULL);
CREATE INDEX bodies_since ON bodies (since);
CREATE TABLE gone (id TEXT, is_bundle INTEGER, since INTEGER NOT NULL, PRIMARY KEY (id, is_bundle)) WITHOUT ROWID;
CREATE TABLE tags (tag TEXT, id TEXT, no INTEGER NOT NULL, PRIMARY KEY (tag, id)) WITHOUT ROWID;
CREATE INDEX tags_of_tool ON tags (no);
CREATE TABLE files (
    path BLOB PRIMARY KEY, mtime_ns INTEGER NOT NULL, size INTEGER NOT NULL, inode INTEGER NOT NULL,
    bundle TEXT, tool INTEGER, reason TEXT
) WITHOUT ROWID;
CREATE UNIQUE INDEX files_of_bundles ON files (bundle) WHERE bundle IS NOT NULL;
CREATE UNIQUE INDEX files_of_tools ON files (tool) WHERE tool IS NOT NULL;
CREATE INDEX broken_files ON files (path) WHERE reason IS NOT NULL;
"""


def create(database: sqlite3.Connection) -> None:
    """All tables, empty. The revision begins at the time: a file made anew never has a number of the one before."""
    now = time_ns() // 1000
    database.executescript(f"BEGIN; {_TABLES} COMMIT;")
    database.executemany(
        "INSERT INTO meta VALUES (?, ?)",
        [("born", now), ("revision", now), ("filled", 0), ("built_in", ""), ("switches", "")],
    )
    database.execute(f"PRAGMA application_id = {APPLICATION}")
    database.execute(f"PRAGMA user_version = {LAYOUT}")


def is_ours(database: sqlite3.Connection) -> bool:
    """Whether its tables are those of today."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (layout,) = database.execute("PRAGMA user_version").fetchone()
    return (application, layout) == (APPLICATION, LAYOUT)


# The file


Identity = tuple[int, int]

# No commit waits for the disk. A power failure may take the last ones, and their stamps: those files are read again.
# The order is kept, so nothing is ever half there.
# Each thread has a connection: what all of them keep adds up. The system keeps the file's pages in any case.
_READING, _WRITING = "PRAGMA cache_size = -2048", "PRAGMA cache_size = -16384"
_SETTINGS = f"""
{_READING}; PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY;
PRAGMA journal_size_limit = 16777216;
"""


def opened(file: Path, seconds: float = LONG_SECONDS) -> tuple[sqlite3.Connection, Identity]:
    """A connection to it, and which file it is; it waits for others so long, and so does every question to it.

    Raises OSError, sqlite3.Error, UnavailableError.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(file, seconds, shared=True):
        found = _usable(file, seconds)
    if found is None:
        with _locked(file, seconds):
            found = _usable(file, seconds)  # another process may have been first
            if found is None:
                _make(file)
                found = _usable(file, seconds)
    if found is None:
        raise UnavailableError(
            f"{file.name}: the index can't be made: it is gone, or not what was written, right after that"
        )
    return found


def in_memory() -> sqlite3.Connection:
    """One that is nowhere, for a folder that can't be written."""
    database = _connect(":memory:")
    create(database)
    return database


def identity(file: Path) -> Identity | None:
    """(device, inode) of the file, or None. It is not reused as long as the file is open."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def throw_away(file: Path, which: Identity, seconds: float = LONG_SECONDS) -> None:
    """Remove it, unless another one lies there by now."""
    with _locked(file, seconds):
        if identity(file) == which:
            _remove(file)


def _usable(file: Path, seconds: float) -> tuple[sqlite3.Connection, Identity] | None:
    """None for what is not ours. It has read its first page, so that its log is open, too."""
    which = identity(file)
    if which is None or not S_ISREG(os.lstat(file).st_mode):
        return None
    database = None
    try:
        database = _connect(f"{file.absolute().as_uri()}?mode=rw", seconds)
        if is_ours(database):
            database.execute("SELECT value FROM meta WHERE key = 'revision'").fetchone()
            if identity(file) == which:
                return database, which
    except sqlite3.DatabaseError as error:
        if not is_damage(error) and not is_gone(error):
            _close(database)
            raise
    _close(database)
    return None


def _close(database: sqlite3.Connection | None) -> None:
    if database is not None:
        database.close()


def _make(file: Path) -> None:
    """Made beside it, and put in its place when it is whole. An old log must be gone by then: it would count."""
    new = file.with_name(f"{file.name}.new")
    _remove(new)
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(_connect(f"{new.absolute().as_uri()}?mode=rw")) as database:
        database.execute("PRAGMA synchronous = OFF")  # no one else reads it yet; it is synced once, when it is complete
        create(database)
        database.execute("PRAGMA journal_mode = WAL")
    sync_file(new)
    _remove(file)
    os.rename(new, file)


def _remove(file: Path) -> None:
    with suppress(FileNotFoundError):
        if S_ISDIR(os.lstat(file).st_mode):
            raise UnavailableError(f"{file.name} is a folder, and the index should lie there: move it away")
    for end in ("", "-wal", "-shm", "-journal"):
        file.with_name(file.name + end).unlink(missing_ok=True)


def _connect(where: str, seconds: float = LONG_SECONDS) -> sqlite3.Connection:
    """Any thread may close it; connections sees to it that one at a time uses it."""
    database = sqlite3.connect(
        where, timeout=seconds, isolation_level=None, check_same_thread=False, cached_statements=200, uri=True
    )
    try:
        database.executescript(_SETTINGS)
    except BaseException:
        database.close()
        raise
    return database


@contextmanager
def _locked(file: Path, seconds: float, *, shared: bool = False) -> Generator[None]:
    """A shared lock for opening, or an exclusive one for making the file. A deleted lock file is made anew."""
    lock = file.with_name(f"{file.name}.lock")
    opener = partial(open_no_link, flags=os.O_RDWR | os.O_CREAT)
    handle = flock.take_path(lock, opener, seconds, shared=shared)
    if handle is None:
        raise IndexBusyError(f"{lock}: another process has held it for too long; try again")
    try:
        yield
    finally:
        flock.give_back(handle)


# Connections, one per thread


_before_fork: list[object] = []  # kept, so that nothing in a forked child closes them


class IndexConnection:
    """A connection with its lock, and the identity of its file."""

    def __init__(self, database: sqlite3.Connection, file: Identity | None, seconds: float | None = None) -> None:
        self.database = database
        self.file = file
        self._busy_timeout = seconds  # that SQLite was told; None: unknown
        self.lock = RLock()
        self.process = os.getpid()
        self.is_changing = False  # it is in the middle of a change, which may yet be undone
        self.is_filled = False  # whether the index was checked and filled
        self.revision: int | None = None  # of one in memory, which nobody else changes: after its last change

    def is_still_of(self, file: Path) -> bool:
        try:
            return self.database.in_transaction or self.file == identity(file)
        except sqlite3.ProgrammingError:  # it is closed
            return False

    def wait(self, seconds: float) -> None:
        """From now on so long for others."""
        if seconds != self._busy_timeout:
            self.database.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")
            self._busy_timeout = seconds

    def begin(self) -> None:
        """A transaction that writes. Very many rows take room: else their pages would be written again and again."""
        self.database.execute(_WRITING)
        self.database.execute("BEGIN IMMEDIATE")

    def end(self) -> None:
        """After a transaction that wrote, whatever became of it."""
        with suppress(sqlite3.Error):
            self.database.execute(_READING)

    def close(self) -> None:
        with self.lock, suppress(sqlite3.Error):
            self.database.close()

    def __del__(self) -> None:  # its thread has ended
        if self.process == os.getpid():
            self.database.close()
        else:
            _before_fork.append(self.database)


class IndexConnections:
    """Raises OSError, sqlite3.Error and UnavailableError, also when it is made."""

    def __init__(self, file: Path | None, wait_limit: WaitLimit) -> None:
        self._file = file
        self._wait_limit = wait_limit
        self._mine = local()
        self._all: WeakSet[IndexConnection] = WeakSet()
        self._lock = RLock()
        self._is_closed = False
        self._shared = None if file is not None else self._register(IndexConnection(in_memory(), None))
        self.current()

    def current(self) -> IndexConnection:
        """This thread's. One that is in the middle of a transaction stays, whatever became of its file."""
        if self._is_closed:
            raise UnavailableError("the index of the bundles has been closed")
        if self._file is None:
            return self._in_memory()
        connection: IndexConnection | None = getattr(self._mine, "held", None)
        if connection is not None and connection.process == os.getpid():
            if connection.is_still_of(self._file):
                return connection
            self._mine.held = None  # whatever comes of opening another one: this one is never asked again
            connection.close()
        seconds = self._wait_limit.seconds
        self._mine.held = connection = self._register(IndexConnection(*opened(self._file, seconds), seconds))
        return connection

    def give_up(self, connection: IndexConnection, is_damaged: bool) -> None:
        """Close this connection for good; if it is damaged, remove its file."""
        with self._lock:
            if connection is self._shared:
                self._shared = self._register(IndexConnection(in_memory(), None))
        self._mine.held = None
        connection.close()
        if is_damaged and self._file is not None and connection.file is not None:
            throw_away(self._file, connection.file, self._wait_limit.seconds)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            everyone = [connection for connection in self._all if connection.process == os.getpid()]
        for held in everyone:
            held.close()

    def _in_memory(self) -> IndexConnection:
        assert self._shared is not None  # noqa: S101 - made at the beginning
        return self._shared

    def _register(self, held: IndexConnection) -> IndexConnection:
        with self._lock:
            self._all.add(held)
        return held
