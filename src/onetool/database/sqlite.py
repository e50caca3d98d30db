"""A SQLite file with the interface of `Database`: `state.db`, shared by all processes of a state folder.

The file is created on the first write, private to its owner. Until then, the tables appear empty. On file systems
without shared memory, SQLite uses a rollback journal instead of a write-ahead log. In a read-only folder, the file can
still be read.

A file that is damaged, or was deleted or emptied while in use, is renamed and replaced by an empty one; `has_lost`
reports the loss.
"""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, TypeVar
from urllib.parse import urlencode

from onetool.core import flock
from onetool.core.os_files import SQLITE_ENDS, make_private, sync_folder
from onetool.core.state_folders import make_home
from onetool.database.connection import (
    BUSY_S,
    NEWEST,
    DamagedDatabaseError,
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
    as_database_error,
    hide_folder,
    is_damage,
    primary_code,
    system_fix,
)
from onetool.database.sqlite_processes import (
    FileIds,
    PollingListeners,
    SqliteLock,
    add_functions,
    can_write,
    change_times,
    is_damaged,
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
READ_ONLY_CODES = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
SETTLED = 2  # the value of the counter of a loss once settled; 1 before
Loss = Literal["none", "open", "settled"]
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
        """Open a file. A damaged file is set aside, except for the source of a copy: it may be the only backup."""
        self.file, self._name = file, str(file)
        self._makes_folder = makes_folder
        self._is_source = is_source
        self._idle: list[sqlite3.Connection] = []
        self._taken = 0  # connections in use
        self._lock = threading.Lock()
        self._files: FileIds | None = None  # the files that the connections have open
        self._watching: sqlite3.Connection | None = None
        self._watches = 0  # how often the watching connection was opened
        self._opened_at: tuple[int, ...] = ()  # the previous result of `change_times`
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
                if isinstance(self._watching, _ImmutableConnection) and self._opened_at != change_times(self.file):
                    self._watching.close()  # it would not see changes, which are possible if the folder is writable
                    self._watching = None
                if self._watching is None:
                    self._opened_at = change_times(self.file)
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
    def has_lost(self) -> bool:
        """Whether this file replaces a lost one."""
        return self.loss != "none"

    @property
    def loss(self) -> Loss:
        """Whether this file replaces a lost one. A backup, new tokens or `settle_loss` settle the loss."""
        sql = "SELECT max(value) FROM counters WHERE name = 'damaged'"
        [(value,)] = self.read(lambda work: work.execute(sql))
        if value is None and not self.set_aside_files():  # the row may be missing because the disk was full
            return "none"
        has_tokens = self.read(lambda work: work.execute("SELECT 1 FROM documents WHERE kind = 'tokens'"))
        return "settled" if value == SETTLED or has_tokens else "open"

    def settle_loss(self) -> None:
        sql = "INSERT INTO counters VALUES ('damaged', %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        if self.loss == "open":
            self.write(lambda work: work.execute(sql, (SETTLED,)), durable=True)

    def set_aside_files(self) -> list[str]:
        """Return the names of the damaged files that were set aside, without logs."""
        files = self.file.parent.glob(f"{self.file.name}.damaged-*")
        return sorted(file.name for file in files if not file.name.endswith(SQLITE_ENDS))

    @property
    def size(self) -> int:
        """The size of the file and its log in bytes."""
        return sum(path.stat().st_size for path in (self.file, Path(f"{self.file}-wal")) if path.exists())

    @property
    def is_read_only(self) -> bool:
        return any(path.exists() and not can_write(path) for path in (self.file, self.file.parent))

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
        is_kept = not isinstance(connection, _ImmutableConnection) and len(self._idle) < MAX_IDLE
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
        when it is reopened.

        Replace a lost file. Raises ReplacedDatabaseError while connections are in use, and the exceptions of
        `_set_aside`.
        """
        if self._files is None:
            return
        if self._taken:
            raise ReplacedDatabaseError(message=f"{self.file} or its log was replaced")
        old = self._files
        self._close_connections(is_replaced=True)
        if current is None or current.is_empty:
            if self.file.parent.is_dir():
                self._set_aside()
        elif current.file != old.file and current.log is not None and current.log == old.log:  # the log of the old file
            for suffix in ("-wal", "-shm"):
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
        connection = self._connect_with()
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
        except BaseException as error:
            connection.close()
            if not isinstance(error, sqlite3.OperationalError) or primary_code(error) not in READ_ONLY_CODES:
                raise
            connection = self._connect_immutable(error)
        self._files = FileIds.of(self._name)
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if connection.execute("PRAGMA user_version").fetchone() != (NEWEST,):
            from onetool.database.migrations import migrate_connection

            migrate_connection(connection, SqliteTransaction(connection), self)

    def _connect_immutable(self, error: sqlite3.OperationalError) -> sqlite3.Connection:
        """Open a file in a read-only folder, where SQLite can't create the files for its log.

        Raises `error` if the log has content, which SQLite would ignore.
        """
        log_file = Path(f"{self.file}-wal")
        if can_write(self.file.parent) or (log_file.exists() and log_file.stat().st_size):
            raise error
        connection = self._connect_with(immutable="1")
        self._require_ours(connection)
        self._migrate(connection)
        return connection

    def _require_ours(self, connection: sqlite3.Connection) -> None:
        """Raise DatabaseError if the source of a copy is not a `state.db`."""
        if self._is_source and not connection.execute(_IS_OURS).fetchone()[0]:
            raise DatabaseError(f"{self.file} is not a state.db of OneTool (fix: name a backup)")

    def _connect_with(self, **options: str) -> sqlite3.Connection:
        if self.vfs:
            options["vfs"] = self.vfs
        connection = sqlite3.connect(
            f"{self.file.absolute().as_uri()}?{urlencode(options)}",
            uri=True,
            timeout=0,  # for beginning a transaction
            isolation_level=None,
            check_same_thread=False,  # a connection is used by one thread at a time
            factory=_ImmutableConnection if "immutable" in options else _Connection,
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
        translated = self._damaged(str(error)) if is_damage(error) else as_database_error(error, self.file)
        hide_folder(translated, self.file)
        return translated

    def _damaged(self, why: str) -> DatabaseError:
        """Set a damaged file aside and return the error that reports this."""
        if self._is_source:
            return DamagedDatabaseError(f"{self.file} is damaged ({why}) (fix: use another copy)")
        try:
            if not self._set_aside():
                return DatabaseAwayError(why, f"{self.file} could not be read, but is not damaged")
            outcome = f"it was renamed (fix: {RESTORE_FIX})"
        except OSError as error:
            outcome = f"it can't be renamed: {error.strerror or error}{system_fix(error)}"
        except DatabaseError as error:
            outcome = f"it was renamed, but a new one can't be created: {error}"
        return DamagedDatabaseError(f"{self.file} is damaged ({why}); {outcome}")

    def _set_aside(self) -> bool:
        """Rename what remains of a damaged or lost file, and create an empty file that records the loss.

        Return False if no file is damaged. Raises OSError, DatabaseError.
        """
        with flock.lock_beside(self.file):
            if not is_damaged(self.file):
                return bool(self.set_aside_files())  # another process has done it
            aside = self.file.with_name(f"{self.file.name}.damaged-{time.time_ns() // 10**9}")
            for suffix in (*SQLITE_ENDS, ""):
                with suppress(FileNotFoundError):
                    os.rename(f"{self.file}{suffix}", f"{aside}{suffix}")
            sync_folder(self.file.parent)
            event = f"is damaged and was renamed to {aside.name}" if aside.exists() else "was deleted"
            log.error("%s %s; an empty file replaces it (fix: %s)", self.file, event, RESTORE_FIX)
            with closing(SqliteDatabase(self.file)) as fresh:
                fresh.write(lambda work: work.execute("INSERT INTO counters VALUES ('damaged', 1)"), durable=True)
            return True


class _Connection(sqlite3.Connection):
    """A connection that is closed with its last reference: since Python 3.13, sqlite3 warns if it has to do that."""

    def __del__(self) -> None:
        with suppress(sqlite3.Error):  # it could not be opened
            self.close()


class _ImmutableConnection(_Connection):
    """A connection that does not notice changes to its file. It is used once."""


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
