"""`StatsFile` keeps the stats in a SQLite file, which all processes of a home share: its tables and migrations.

It uses a rollback journal and not a write-ahead log: with a connection for each batch that is as quick, and it works on
network drives and can be read where nothing can be written.
"""

import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from onetool.core.os_files import make_private
from onetool.core.state_folders import make_home
from onetool.services.stats.storage import (
    BUSY_SECONDS,
    CALLS,
    COLUMNS,
    GAPS,
    MENUS,
    REPLIES,
    RUNS,
    Batch,
    Row,
    SpreadOfSqlite,
    StatsReader,
    StorageBusyError,
    StorageRefusedError,
    UnreadableError,
)

T = TypeVar("T")

MOST_SECONDS = 50.0  # that a read may take: who waits for it has no longer
READ_SECONDS = 10.0  # that a person who asks for the stats waits for those who are writing
VERSION = 1
DIALECT = {
    **{table: table for table in COLUMNS},
    "spread": "spread(duration_ms)",
    "bucket": "CAST(at / :bucket AS INTEGER)",
    "latest_source": "source",  # SQLite takes it from the row that has max(at)
    "unordered": "NOT INDEXED",  # row after row is quicker than in the order of an index
    "tool": "+tool",
    "names": "SELECT value FROM json_each(:names)",
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


class StatsFile:
    """It is made with the first row. A file that is not there counts as empty."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, number: int, rows: Batch, timeout: float, sweep_before: float | None) -> None:
        """What fails here has written nothing: so no batch comes twice, and `number` is not needed."""
        try:
            with opened(self._file, timeout) as database, transaction(database):
                for table, some in rows.items():
                    insert(database, table, some)
                if sweep_before is not None:
                    sweep(database, sweep_before)
        except NewerFileError as error:
            raise StorageRefusedError(f"{self._file}: {error}", is_final=True) from None
        except (OSError, sqlite3.Error) as error:
            if is_busy(error):
                raise StorageBusyError(f"{self._file}: {error}") from None
            raise StorageRefusedError(f"{self._file}: {error}; if the file is broken, delete it", True) from None

    def read(self, ask: Callable[[StatsReader], T], is_patient: bool) -> T:
        if not self._file.exists():
            return read_empty(ask)
        try:
            with opened_to_read(self._file, READ_SECONDS if is_patient else BUSY_SECONDS) as database:
                return _ask(database, ask)
        except NewerFileError as error:
            why = f"{self._file}: {error}"
            raise UnreadableError(why, never=why) from None
        except (OSError, sqlite3.Error, ValueError, TypeError, OverflowError) as error:  # a row may hold anything
            advice = "" if "interrupted" in str(error) else "; if the file is broken, delete it"
            raise UnreadableError(f"{self._file}: {error}{advice}") from None


class SqliteReader:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def rows(self, query: str, asked: Mapping[str, Any]) -> list[Row]:
        return self._database.execute(query.format_map(DIALECT), asked).fetchall()


def read_empty(ask: Callable[[StatsReader], T]) -> T:
    """What a file gives in which nothing is."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        _brought_up(database)
        return _ask(database, ask)


def _ask(database: sqlite3.Connection, ask: Callable[[StatsReader], T]) -> T:
    database.create_aggregate("spread", 1, SpreadOfSqlite)  # pyright: ignore[reportArgumentType] - its stub wants a class of its own
    database.execute("BEGIN")  # all of it is of one moment
    return ask(SqliteReader(database))


@contextmanager
def opened(file: Path, timeout: float = BUSY_SECONDS) -> Generator[sqlite3.Connection]:
    """The file, to be written; made, where there is none. Raises OSError, sqlite3.Error, NewerFileError."""
    make_home(file.parent)
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise OSError(f"{file} is no regular file")
    make_private(file)
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
