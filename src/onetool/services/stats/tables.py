"""The file: which tables it has, how an older one becomes one of today, and rows on their way into it.

A rollback journal and not a write-ahead log: with a connection for each batch it is as quick, and it works on network
drives and can be read where nothing can be written. Every connection is short, and waits for others a bounded time.
"""

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

MOST_SECONDS = 50.0  # that a read may take: who waits for it has no longer
BUSY_SECONDS = 1.0
VERSION = 1

CALLS, RUNS, REPLIES, MENUS, GAPS = "calls", "runs", "replies", "menus", "gaps"
COLUMNS = {  # as rows have them; tokens are computed by the file
    CALLS: "at, tool, source, door, client, run, ok, code, reason, duration_ms, bytes_in, bytes_out",
    RUNS: "at, id, door, client, ok, code, duration_ms, calls, bytes_in",
    REPLIES: "at, run, bytes_out",
    MENUS: "at, client, door, full_bytes, sent_bytes",
    GAPS: "at, client, duration_ms",
}
_AT_ONCE = 500  # rows of one statement

# The table of calls as it was first; `source` was the door.
_FIRST = """
CREATE TABLE IF NOT EXISTS calls (
    at REAL NOT NULL, tool TEXT NOT NULL, source TEXT NOT NULL,
    ok INTEGER NOT NULL, code TEXT, duration_ms REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS calls_by_tool ON calls (tool, at)
"""
_TODAY = """
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


class NewerFile(Exception):  # noqa: N818 - nothing is wrong with it
    """A file that a later version of ours has written."""


@contextmanager
def opened(file: Path, patience: float = BUSY_SECONDS) -> Generator[sqlite3.Connection]:
    """The file, to be written; made, where there is none. Raises OSError, sqlite3.Error, NewerFile."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise OSError(f"{file} is no regular file")
    with closing(sqlite3.connect(file, timeout=patience, isolation_level=None)) as database:
        if _version(database) != VERSION:
            _brought_up(database)
        yield database


@contextmanager
def opened_to_read(file: Path) -> Generator[sqlite3.Connection]:
    """The same file, to be read, also where it can't be written."""
    if not file.is_file():  # opening a pipe would wait for who writes to it
        raise OSError(f"{file} is no regular file")
    where = f"{file.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(where, timeout=BUSY_SECONDS, isolation_level=None, uri=True)) as database:
        try:
            is_ready = _version(database) == VERSION
        except sqlite3.OperationalError:  # a writer was killed: only who may write can put the file right
            is_ready = False
        if is_ready:
            deadline = monotonic() + MOST_SECONDS
            database.set_progress_handler(lambda: monotonic() > deadline, 100_000)
            yield database
            return
    with opened(file) as database:
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
        raise NewerFile(f"it is of version {version}, and this OneTool knows {VERSION}")
    return version


def _brought_up(database: sqlite3.Connection) -> None:
    """All or nothing, and once: others may be about to do the same."""
    with transaction(database):
        if _version(database) == 0:
            for statement in f"{_FIRST};{_TODAY}".split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {VERSION}")
