"""A SQLite file with the interface of `Database`: `state.db`, shared by all processes of a state folder.

The file is created on the first write, private to its owner. Until then, the tables appear empty. On file systems
without shared memory, SQLite uses a rollback journal instead of a write-ahead log. A damaged file is an error, until
`onetool db restore` has copied what can be read.
"""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlencode

from onetool.core.os_files import SQLITE_ENDS, make_private
from onetool.core.state_folders import make_home
from onetool.database.connection import (
    BUSY_S,
    NEWEST,
    Database,
    DatabaseAwayError,
    DatabaseError,
    Forget,
    Job,
    Params,
    ReplacedDatabaseError,
    Row,
    Transaction,
)
from onetool.database.sqlite_errors import (
    BUSY_CODES,
    RESTORE_FIX,
    SOURCE_FIX,
    as_database_error,
    hide_folder,
    primary_code,
)
from onetool.database.sqlite_processes import (
    FileIds,
    PollingListeners,
    SqliteLock,
    add_functions,
    prevent_checkpoint,
    require_own_file,
    use_log,
)

log = logging.getLogger("onetool.database")
T = TypeVar("T")

READ_S = 2.0  # wait for a process with an exclusive lock; writers don't block readers
RETRY_S = 0.01  # between two attempts to open a locked file
MAX_IDLE = 8  # connections that stay open
VACUUM_PAGES = 1_000  # returned at once; this blocks writers
DIALECT = {
    "name": "SQLite",
    "identity": "integer PRIMARY KEY AUTOINCREMENT",
    "bytewise": "",  # SQLite's default order
    "random_id": "lower(hex(randomblob(16)))",
    "start_of_body": "CAST(substr(body, 1, 14) AS text)",
    "random_key": "randomblob(32)",
}
# Only tables and indexes are expected: a view or trigger could run endlessly.
_IS_OURS = """SELECT count(*) FILTER (WHERE name = 'onetool_migrations')
AND NOT count(*) FILTER (WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%') FROM sqlite_master"""
FULL_SYNC, USUAL_SYNC = "PRAGMA synchronous = FULL", "PRAGMA synchronous = NORMAL"


class SqliteTransaction(Transaction):
    keeps_statements = True

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self.notices: list[tuple[str, str]] = []

    def execute(self, sql: str, params: Params = ()) -> list[Row]:
        return self._cursor.execute(sql.replace("%s", "?"), params).fetchall()

    def execute_many(self, sql: str, rows: Sequence[Params]) -> None:
        self._cursor.executemany(sql.replace("%s", "?"), rows)

    @property
    def row_count(self) -> int:
        return self._cursor.rowcount

    def allow(self, seconds: int) -> None:
        deadline = time.monotonic() + seconds
        self._connection.set_progress_handler(lambda: time.monotonic() > deadline, 100_000)

    def notify(self, topic: str, detail: str = "") -> None:
        self.notices.append((topic, detail))


class SqliteDatabase(Database):
    """A SQLite database.

    Connections are opened on demand and reused. Connections of one process share state about the log, so if the log was
    deleted or replaced, all of them are closed before a new one is opened.
    """

    clock = "unix_time()"  # SQLite's own clock has only milliseconds, too coarse for the order of rows
    is_away = is_shared = False
    dialect: Mapping[str, str] = DIALECT
    vfs: str | None = None  # SQLite's VFS; None: the default

    def __init__(self, file: Path, *, makes_folder: bool = False, is_source: bool = False) -> None:
        """Use a file, which is opened when needed. With `is_source`, it is the source of a copy: any file."""
        self.file, self._name = file, str(file)
        self._makes_folder = makes_folder
        self._is_source = is_source
        self._idle: list[sqlite3.Connection] = []
        self._taken = 0  # connections in use
        self._lock = threading.Lock()
        self._files: FileIds | None = None  # the files that the connections have open
        self._watching: sqlite3.Connection | None = None
        self._watches = 0  # how often the watching connection was opened
        self._seen: Hashable = None  # the last stamp
        self._listeners = PollingListeners(self.stamp)

    def read(self, job: Callable[[Transaction], T], *, snapshot: bool = False) -> T:
        if self._is_absent():
            return read_empty(job)
        return self._run(job, "BEGIN", durable=False, max_wait=READ_S)

    def write(self, job: Job[T], *, durable: bool = False, max_wait: float | None = None, apart: bool = False) -> T:
        return self._run(job, "BEGIN IMMEDIATE", durable, BUSY_S if max_wait is None else max_wait)

    def stamp(self) -> Hashable:
        """Return the stamp. Never waits for other processes, because event loops call this."""
        try:
            rows = self.peek("PRAGMA data_version")
        except DatabaseAwayError as error:
            cause = error.__cause__
            if self._watching is None or not isinstance(cause, sqlite3.OperationalError) or not _is_busy(cause):
                raise
            return self._seen  # while the file is locked, nothing changes
        self._seen = (self._watches, rows[0][0]) if rows else (None, 0)
        return self._seen

    def peek(self, sql: str, params: Params = ()) -> list[Row]:
        """Return the rows of one SELECT, none if the file is missing. Never waits, and needs no transaction."""
        if self._files is None and not os.path.lexists(self.file):
            return []
        with self._lock:
            try:  # no context manager, for speed: called for every request
                if (current := FileIds.of(self._name)) != self._files:
                    self._close_replaced(current)
                if self._watching is None:
                    self._watching = self._open()
                    self._watches += 1
                return self._watching.execute(sql, params).fetchall()
            except DatabaseError as error:
                hide_folder(error, self.file)
                raise
            except (sqlite3.Error, OSError) as error:
                raise self._translated(error) from error

    def on_change(self, topic: str, call: Callable[[str], None]) -> Forget:
        return self._listeners.add(topic, call)

    def lock(self, name: str) -> "SqliteLock":
        return SqliteLock(self.file, name)

    def require(self) -> None:
        """Raise DatabaseError if the file exists and can't be read."""
        self.read(lambda work: work.execute("SELECT max(number) FROM onetool_migrations"))

    @property
    def size(self) -> int:
        """The size of the file and its log in bytes."""
        return sum(path.stat().st_size for path in (self.file, Path(f"{self.file}-wal")) if path.exists())

    def describe(self) -> str:
        return str(self.file)

    def shrink(self) -> None:
        if not self._is_absent():
            with self._translating(), self._connection(READ_S) as connection:
                before = None
                while (free := connection.execute("PRAGMA freelist_count").fetchone()[0]) and free != before:
                    before = free
                    connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")  # `execute`: one page
                connection.execute("PRAGMA busy_timeout = 100")  # blocks writers while waiting for readers
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def spare_bytes(self) -> int:
        sql = "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size"
        [(free,)] = self.read(lambda work: work.execute(sql))
        try:
            return free + os.stat(f"{self.file}-wal").st_size
        except OSError:  # no such file
            return free

    def close(self) -> None:
        self._listeners.close()
        with self._lock:
            self._close_connections()

    # Connections

    def _run(self, job: Callable[[Transaction], T], begin: str, durable: bool, max_wait: float) -> T:
        with self._translating(), self._connection(max_wait) as connection:
            work = SqliteTransaction(connection)
            connection.execute(f"PRAGMA busy_timeout = {max_wait * 1000:.0f}")
            connection.execute(FULL_SYNC if durable else USUAL_SYNC)
            connection.execute(begin)
            try:
                result = job(work)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        for topic, detail in work.notices:
            self._listeners.tell(topic, detail)
        return result

    @contextmanager
    def _connection(self, max_wait: float) -> Generator[sqlite3.Connection]:
        """Lend a connection, which is reused unless SQLite fails."""
        connection = self._take(max_wait)
        is_kept = len(self._idle) < MAX_IDLE
        try:
            yield connection
        except sqlite3.Error:
            is_kept = False
            raise
        finally:
            connection.set_progress_handler(None, 0)
            if not is_kept:
                connection.close()
            with self._lock:
                self._taken -= 1
                if is_kept:
                    self._idle.append(connection)

    def _take(self, max_wait: float) -> sqlite3.Connection:
        """Return a connection. Waiting for other processes, or for connections that have to be closed first, does not
        block other threads.
        """
        deadline = time.monotonic() + max_wait
        while True:
            try:
                with self._lock:
                    if (current := FileIds.of(self._name)) != self._files:
                        self._close_replaced(current)
                    connection = self._idle.pop() if self._idle else self._open()
                    self._taken += 1
                    return connection
            except (ReplacedDatabaseError, sqlite3.OperationalError) as error:
                if not _is_busy(error) or time.monotonic() >= deadline:
                    raise
            time.sleep(RETRY_S)

    def _close_replaced(self, current: FileIds | None) -> None:
        """Close all connections if the file or its log was replaced, or has another owner or mode, which is checked
        when it is reopened. Raises ReplacedDatabaseError while connections are in use.
        """
        if self._files is None:
            return
        if self._taken:
            raise ReplacedDatabaseError(message=f"{self.file} or its log was replaced")
        old = self._files
        self._close_connections(is_replaced=True)
        if current is None or (current.file != old.file and current.log is not None and current.log == old.log):
            for suffix in SQLITE_ENDS:  # the log of the old file
                Path(f"{self.file}{suffix}").unlink(missing_ok=True)

    def _close_connections(self, *, is_replaced: bool = False) -> None:
        for connection in [*self._idle, *([self._watching] if self._watching else [])]:
            if is_replaced:
                prevent_checkpoint(connection)
            connection.close()
        self._idle.clear()
        self._watching = self._files = None

    def _open(self) -> sqlite3.Connection:
        """Open the file. Create the file and tables if missing.

        Doesn't wait for other processes. Raises DatabaseError, OSError, sqlite3.Error.
        """
        if self._makes_folder:
            make_home(self.file.parent)
        require_own_file(self.file)
        make_private(self.file)
        connection = self._connect()
        try:
            connection.execute(USUAL_SYNC)
            if not connection.execute("PRAGMA page_count").fetchone()[0]:
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # writes, and is effective only in a new file
            else:
                self._require_ours(connection)
            use_log(connection)
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        self._files = FileIds.of(self._name)
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if connection.execute("PRAGMA user_version").fetchone() != (NEWEST,):
            from onetool.database.migrations import migrate_connection

            migrate_connection(connection, SqliteTransaction(connection), self)

    def _require_ours(self, connection: sqlite3.Connection) -> None:
        """Raise DatabaseError if the source of a copy is not a `state.db`."""
        if self._is_source and not connection.execute(_IS_OURS).fetchone()[0]:
            raise DatabaseError(f"{self.file} is not a state.db of OneTool (fix: name a backup)")

    def _connect(self) -> sqlite3.Connection:
        options = {"vfs": self.vfs} if self.vfs else {}
        connection = sqlite3.connect(
            f"{self.file.absolute().as_uri()}?{urlencode(options)}",
            uri=True,
            timeout=0,  # for beginning a transaction
            isolation_level=None,
            check_same_thread=False,  # a connection is used by one thread at a time
            factory=_Connection,
        )
        return add_functions(connection)

    def _is_absent(self) -> bool:
        """Return whether the file does not exist, and did not exist while this process used it."""
        return self._files is None and not os.path.lexists(self.file)

    @contextmanager
    def _translating(self) -> Generator[None]:
        try:
            yield
        except DatabaseError as error:
            hide_folder(error, self.file)
            raise
        except (sqlite3.Error, OSError) as error:
            raise self._translated(error) from error

    def _translated(self, error: sqlite3.Error | OSError) -> DatabaseError:
        """Convert an error from SQLite or the system to a DatabaseError that may be shown to callers."""
        translated = as_database_error(error, self.file, SOURCE_FIX if self._is_source else RESTORE_FIX)
        hide_folder(translated, self.file)
        return translated


class _Connection(sqlite3.Connection):
    """A connection that is closed with its last reference: since Python 3.13, sqlite3 warns if it has to do that."""

    def __del__(self) -> None:
        with suppress(sqlite3.Error):  # it could not be opened
            self.close()


def _is_busy(error: sqlite3.OperationalError | ReplacedDatabaseError) -> bool:
    return isinstance(error, ReplacedDatabaseError) or primary_code(error) in BUSY_CODES


_empty: Final = threading.local()


def read_empty(job: Callable[[Transaction], T]) -> T:
    """Run a job on empty tables, for a file that does not exist yet."""
    from onetool.database.migrations import migrate_connection

    connection: sqlite3.Connection | None = getattr(_empty, "connection", None)
    if connection is None:
        # Another thread may be the one that drops the connection of a thread that has ended.
        empty = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=_Connection)
        connection = add_functions(empty)
        migrate_connection(connection, SqliteTransaction(connection), SqliteDatabase(Path("memory")))
        _empty.connection = connection
    connection.execute("BEGIN")
    try:
        return job(SqliteTransaction(connection))
    finally:
        connection.execute("ROLLBACK")
