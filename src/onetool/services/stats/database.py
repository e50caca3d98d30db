"""The SQLite file of the stats: its tables and migrations, and the thread that writes rows.

It uses a rollback journal and not a write-ahead log: with a connection for each batch that is as quick, and it works on
network drives and can be read where nothing can be written.
"""

import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Lock, Thread, get_ident
from time import monotonic
from typing import Any

MOST_SECONDS = 50.0  # that a read may take: who waits for it has no longer
BUSY_SECONDS = 1.0
READ_SECONDS = 10.0  # that a person who asks for the stats waits for those who are writing
VERSION = 1

CALLS, RUNS, REPLIES, MENUS, GAPS = "calls", "runs", "replies", "menus", "gaps"
COLUMNS = {  # as rows have them; tokens are computed by the file
    CALLS: "at, tool, source, door, client, run, ok, code, reason, duration_ms, bytes_in, bytes_out, caller",
    RUNS: "at, id, door, client, ok, code, duration_ms, calls, bytes_in, caller",
    REPLIES: "at, run, bytes_out",
    MENUS: "at, client, door, full_bytes, sent_bytes, caller",
    GAPS: "at, client, duration_ms, caller",
}
_AT_ONCE = 500  # rows of one statement

# The table of calls as it was first; `source` was the door.
_FIRST_SCHEMA = """
CREATE TABLE IF NOT EXISTS calls (
    at REAL NOT NULL, tool TEXT NOT NULL, source TEXT NOT NULL,
    ok INTEGER NOT NULL, code TEXT, duration_ms REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS calls_by_tool ON calls (tool, at)
"""
_CURRENT_SCHEMA = """
ALTER TABLE calls RENAME COLUMN source TO door;
ALTER TABLE calls ADD COLUMN source TEXT NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN client TEXT NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN run TEXT;
ALTER TABLE calls ADD COLUMN reason TEXT;
ALTER TABLE calls ADD COLUMN bytes_in INTEGER NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN bytes_out INTEGER NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN tokens_in INTEGER AS ((bytes_in + 3) / 4);
ALTER TABLE calls ADD COLUMN tokens_out INTEGER AS ((bytes_out + 3) / 4);
CREATE INDEX calls_by_time ON calls (at);
CREATE INDEX calls_by_run ON calls (run) WHERE run IS NOT NULL;
CREATE TABLE runs (
    at REAL NOT NULL, id TEXT NOT NULL, door TEXT NOT NULL, client TEXT NOT NULL, ok INTEGER NOT NULL, code TEXT,
    duration_ms REAL NOT NULL, calls INTEGER NOT NULL, bytes_in INTEGER NOT NULL,
    tokens_in INTEGER AS ((bytes_in + 3) / 4)
);
CREATE INDEX runs_by_id ON runs (id);
CREATE TABLE replies (
    at REAL NOT NULL, run TEXT NOT NULL, bytes_out INTEGER NOT NULL, tokens_out INTEGER AS ((bytes_out + 3) / 4)
);
CREATE INDEX replies_by_run ON replies (run);
CREATE TABLE menus (
    at REAL NOT NULL, client TEXT NOT NULL, door TEXT NOT NULL,
    full_bytes INTEGER NOT NULL, sent_bytes INTEGER NOT NULL,
    full_tokens INTEGER AS ((full_bytes + 3) / 4), sent_tokens INTEGER AS ((sent_bytes + 3) / 4)
);
CREATE TABLE gaps (at REAL NOT NULL, client TEXT NOT NULL, duration_ms REAL NOT NULL)
"""
# Columns that came later. A OneTool that does not know them goes on with the file: they have a default.
_CALLERS = tuple(
    f"ALTER TABLE {table} ADD COLUMN caller TEXT NOT NULL DEFAULT ''" for table in (CALLS, RUNS, MENUS, GAPS)
)


class NewerFileError(Exception):
    """A file that a later version of ours has written."""


@contextmanager
def opened(file: Path, timeout: float = BUSY_SECONDS) -> Generator[sqlite3.Connection]:
    """The file, to be written; made, where there is none. Raises OSError, sqlite3.Error, NewerFileError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise OSError(f"{file} is no regular file")
    with closing(sqlite3.connect(file, timeout=timeout, isolation_level=None)) as database:
        if not _is_ready(database):
            _brought_up(database)
        yield database


@contextmanager
def opened_to_read(file: Path, timeout: float = BUSY_SECONDS) -> Generator[sqlite3.Connection]:
    """The same file, to be read, also where it can't be written."""
    if not file.is_file():  # opening a pipe would wait for who writes to it
        raise OSError(f"{file} is no regular file")
    where = f"{file.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(where, timeout=timeout, isolation_level=None, uri=True)) as database:
        try:
            is_ready = _is_ready(database)
        except sqlite3.OperationalError:  # a writer was killed: only who may write can put the file right
            is_ready = False
        if is_ready:
            deadline = monotonic() + MOST_SECONDS
            database.set_progress_handler(lambda: monotonic() > deadline, 100_000)
            yield database
            return
    with opened(file, timeout) as database:
        yield database


@contextmanager
def empty() -> Generator[sqlite3.Connection]:
    """A file in which nothing is, and that is nowhere."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        _brought_up(database)
        yield database


@contextmanager
def transaction(database: sqlite3.Connection) -> Generator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def insert(database: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Many rows in one statement: a statement for each would take and give back the interpreter's lock as often."""
    columns = COLUMNS[table]
    one = f"({', '.join('?' * len(columns.split()))})"
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        values = ", ".join([one] * len(part))
        database.execute(
            f"INSERT INTO {table} ({columns}) VALUES {values}",  # noqa: S608 - our own words only
            [cell for row in part for cell in row],
        )


def sweep(database: sqlite3.Connection, before: float) -> None:
    """Forget what is too old. The calls of a run stay as long as the run: it is summed up as a whole."""
    for table in (RUNS, MENUS, GAPS):
        database.execute(f"DELETE FROM {table} WHERE at < ?", (before,))  # noqa: S608 - our own words only
    for table in (REPLIES, CALLS):
        database.execute(
            f"DELETE FROM {table} WHERE at < ? AND (run IS NULL OR run NOT IN (SELECT id FROM runs))",  # noqa: S608
            (before,),
        )


def is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def _version(database: sqlite3.Connection) -> int:
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise NewerFileError(f"it is of version {version}, and this OneTool knows {VERSION}")
    return version


def _is_ready(database: sqlite3.Connection) -> bool:
    return _version(database) == VERSION and _has_callers(database)


def _has_callers(database: sqlite3.Connection) -> bool:
    return database.execute("SELECT 1 FROM pragma_table_info('calls') WHERE name = 'caller'").fetchone() is not None


def _brought_up(database: sqlite3.Connection) -> None:
    """All or nothing, and once: others may be about to do the same."""
    with transaction(database):
        if _version(database) == 0:
            for statement in f"{_FIRST_SCHEMA};{_CURRENT_SCHEMA}".split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {VERSION}")
        if not _has_callers(database):
            for statement in _CALLERS:
                database.execute(statement)


# The thread that writes rows


log = logging.getLogger("onetool.stats")

GATHER_SECONDS = 2.0  # that a row waits at most, where the file can be written
LAST_WAIT = 3.0  # seconds, for who is writing when everything ends
_FULL = 2_000  # rows of a table that are not kept waiting for others
_MOST = 10_000  # rows of a table that wait, however long the file can't be written
_SWEEP_SECONDS = 3600.0  # between two looks for what is too old: each walks over the whole file

Row = tuple[Any, ...]


class Writer:
    """Writes rows in a thread; adding only appends to a list. A file that can't be written is logged once, and never
    fails a call.
    """

    def __init__(
        self, file: Path, retention_seconds: float, now: Callable[[], float], redact: Callable[[Any], Any]
    ) -> None:
        """`redact` masks secrets in rows: names of tools, clients and reasons come from anywhere."""
        self._file = file
        self._redact = redact
        self._retention = retention_seconds
        self._now = now
        self._waiting: dict[str, deque[Row]] = {table: deque() for table in COLUMNS}
        self._writing = Lock()
        self._writer: int | None = None  # the thread that is at it
        self._starting = Lock()
        self._thread: Thread | None = None
        self._full = Event()
        self._next_sweep = 0.0
        self.is_off = False

    def add(self, table: str, row: Row) -> None:
        waiting = self._waiting[table]
        waiting.append(row)
        if self._thread is None:
            self._start()
        elif len(waiting) % _FULL == 0:
            self._full.set()

    def flush(self, timeout: float = BUSY_SECONDS) -> None:
        """Write what waits. A file that another process holds is tried again later, for a bounded number of rows."""
        with self._writing:
            self._writer = get_ident()
            try:
                self._flush(timeout)
            finally:
                self._writer = None

    def flush_in_finalizer(self) -> None:
        """The same, for a finalizer: the garbage collector may run it while the writer thread is writing."""
        if self._writer != get_ident() and self._writing.acquire(timeout=LAST_WAIT):
            try:
                self._flush(BUSY_SECONDS)
            finally:
                self._writing.release()

    def _flush(self, timeout: float) -> None:
        taken = {table: _all_of(waiting) for table, waiting in self._waiting.items() if waiting}
        if not taken or self.is_off:
            return
        try:
            self._write(taken, timeout)
        except (OSError, sqlite3.Error, NewerFileError) as error:
            if is_busy(error):
                for table, rows in taken.items():
                    self._waiting[table].extendleft(reversed(rows[-_MOST:]))
                return
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """Nothing more is written. Said once."""
        if not self.is_off:
            self.is_off = True
            advice = "" if isinstance(error, NewerFileError) else "; if the file is broken, delete it"
            log.warning("stats are not kept: %s: %s%s", self._file, error, advice)

    def _write(self, rows: dict[str, list[Row]], timeout: float) -> None:
        with opened(self._file, timeout) as database, transaction(database):
            for table, some in rows.items():
                insert(database, table, self._redact(some))
            if self._now() >= self._next_sweep:
                self._next_sweep = self._now() + _SWEEP_SECONDS
                sweep(database, self._now() - self._retention)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self.is_off:
                self._thread = Thread(target=self._gather, name="onetool-stats", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # the process is about to end: it is written with the rest
                    self._thread = None

    def _gather(self) -> None:
        """One batch. Whatever has come meanwhile, or could not be written, is the next one's."""
        self._full.wait(GATHER_SECONDS)
        self._full.clear()
        self.flush()
        self._thread = None
        if any(self._waiting.values()):
            self._start()


def _all_of(waiting: deque[Row]) -> list[Row]:
    return [waiting.popleft() for _ in range(len(waiting))]  # others append meanwhile
