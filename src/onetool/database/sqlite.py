"""A SQLite file with the interface of `Database`: `state.db`, which all processes of a state folder share.

The file is made, private to its owner, when something is first written. Until then, reading finds empty tables. Where
the file system has no shared memory, SQLite keeps a rollback journal instead of a write-ahead log. Where the folder is
read-only, the file can still be read. A damaged file is renamed and replaced by an empty one: from then on,
`has_lost` says so.
"""

import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlencode

from onetool.core import flock
from onetool.core.os_files import HAS_OWNERS, make_private, sync_folder
from onetool.core.state_folders import make_home
from onetool.database.connection import (
    BUSY_S,
    DamagedDatabaseError,
    DatabaseAwayError,
    DatabaseError,
    Forget,
    Params,
    Row,
    StorageError,
    Transaction,
)
from onetool.database.percentiles import SpreadAggregate
from onetool.database.sqlite_processes import FULL_FIX, READ_ONLY_FIX, Listeners, SqliteLock, fix_text, system_fix

log = logging.getLogger("onetool.database")

T = TypeVar("T")

MAX_IDLE = 8  # connections that stay open
VACUUM_PAGES = 1_000  # to give back at once: others can't write meanwhile
BUSY_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
READ_ONLY_CODES = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
FIXES = {  # by SQLite's code
    sqlite3.SQLITE_READONLY: READ_ONLY_FIX,
    sqlite3.SQLITE_CANTOPEN: READ_ONLY_FIX,
    sqlite3.SQLITE_FULL: FULL_FIX,
    sqlite3.SQLITE_IOERR: "check the disk",
}
DIALECT = {
    "name": "SQLite",
    "identity": "integer PRIMARY KEY AUTOINCREMENT",
    "bytewise": "",  # the usual order of SQLite
    "random_id": "lower(hex(randomblob(16)))",
    "random_key": "randomblob(32)",
}
FULL_SYNC, USUAL_SYNC = "PRAGMA synchronous = FULL", "PRAGMA synchronous = NORMAL"


class SqliteTransaction:
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

    def lock(self, number: int, timeout: float | None = None) -> None:
        pass

    def try_lock(self, number: int) -> bool:
        return True

    def allow(self, seconds: int) -> None:
        deadline = time.monotonic() + seconds
        self._connection.set_progress_handler(lambda: time.monotonic() > deadline, 100_000)

    def notify(self, topic: str, detail: str = "") -> None:
        self.notices.append((topic, detail))


class SqliteDatabase:
    """Connections are opened as threads need them, and kept for the next one."""

    clock = "unix_time()"  # SQLite's own has milliseconds only, in which several rows are written
    is_away = is_shared = False
    dialect: Mapping[str, str] = DIALECT
    vfs: str | None = None  # of SQLite; None: the usual one

    def __init__(self, file: Path, *, makes_folder: bool = False) -> None:
        self.file = file
        self._makes_folder = makes_folder
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._inode: tuple[int, int] | None = None  # of the file that the connections have open
        self._watching: sqlite3.Connection | None = None
        self._seen: Hashable = None  # the last stamp
        self._listeners = Listeners(self.stamp)
        self._process = os.urandom(8).hex()
        self._alive: SqliteLock | None = None  # held for as long as this process lives
        self.is_incomplete = False  # not all of the version before could be taken over

    def read(self, job: Callable[[Transaction], T], *, snapshot: bool = False) -> T:
        if self._file_id() is None:
            return read_empty(job)
        return self._run(job, "BEGIN", durable=False, max_wait=BUSY_S)

    def write(self, job: Callable[[Transaction], T], *, durable: bool = False, max_wait: float | None = None) -> T:
        return self._run(job, "BEGIN IMMEDIATE", durable, BUSY_S if max_wait is None else max_wait)

    def stamp(self) -> Hashable:
        file = self._file_id()
        if file is None:
            return None, 0
        with self._lock, self._translated():
            if self._watching is None or file != self._inode:
                self._watching = self._open()
                self._watching.execute("PRAGMA busy_timeout = 0")
            try:
                self._seen = file, self._watching.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in BUSY_CODES:  # while another process locks it, nothing changes
                    raise
            return self._seen

    def on_change(self, topic: str, call: Callable[[str], None]) -> Forget:
        return self._listeners.add(topic, call)

    def lock(self, name: str) -> "SqliteLock":
        return SqliteLock(self.file, name)

    def process_name(self) -> str:
        if self._alive is None:
            lock = self.lock(f"process {self._process}")
            if lock.take():  # else another thread was quicker
                self._alive = lock
        return self._process

    def find_process(self, name: str) -> str | None:
        return "this process" if name == self._process else self.lock(f"process {name}").find_holder()

    def require(self) -> None:
        """Raise DatabaseError if the file is there and can't be read."""
        self.read(lambda work: work.execute("SELECT max(number) FROM onetool_migrations"))

    @property
    def has_lost(self) -> bool:
        """Whether this file replaces a damaged one, or lacks state of the version before."""
        if self.is_incomplete or any(self.file.parent.glob(f"{self.file.name}.damaged-*")):
            return True  # the file set aside counts alone: a full disk may have kept the row from being written
        return bool(self.read(lambda work: work.execute("SELECT 1 FROM counters WHERE name = 'damaged'")))

    @property
    def size(self) -> int:
        """Bytes on the disk, with the log."""
        return sum(one.stat().st_size for one in (self.file, Path(f"{self.file}-wal")) if one.exists())

    @property
    def is_read_only(self) -> bool:
        return any(one.exists() and not _can_write(one) for one in (self.file, self.file.parent))

    def describe(self) -> str:
        return str(self.file)

    def shrink(self) -> None:
        if self._file_id() is not None:
            with self._translated(), closing(self._take()) as connection:
                before = None
                while (free := connection.execute("PRAGMA freelist_count").fetchone()[0]) and free != before:
                    before = free
                    connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")  # `execute`: one page
                connection.execute("PRAGMA busy_timeout = 100")  # others can't write while this waits for readers
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def spare_bytes(self) -> int:
        sql = "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size"
        [(free,)] = self.read(lambda work: work.execute(sql))
        try:
            return free + os.stat(f"{self.file}-wal").st_size
        except OSError:  # there is none
            return free

    def close(self) -> None:
        self._listeners.close()
        with self._lock:
            self._drop_connections()
            alive, self._alive = self._alive, None
        if alive is not None:
            alive.remove()

    # Connections

    def _run(self, job: Callable[[Transaction], T], begin: str, durable: bool, max_wait: float) -> T:
        with self._translated():
            connection = self._take()
            work = SqliteTransaction(connection)
            try:
                connection.execute(f"PRAGMA busy_timeout = {max_wait * 1000:.0f}")
                if durable:
                    connection.execute(FULL_SYNC)
                connection.execute(begin)
                result = job(work)
                connection.execute("COMMIT")
            except BaseException as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    connection.close()
                else:
                    self._give_back(connection, durable)
                raise
            self._give_back(connection, durable)
        if work.notices:
            self._listeners.tell(work.notices)
        return result

    def _take(self) -> sqlite3.Connection:
        with self._lock:
            if self._idle and self._file_id() == self._inode:
                return self._idle.pop()
            return self._open()

    def _give_back(self, connection: sqlite3.Connection, durable: bool) -> None:
        connection.set_progress_handler(None, 0)
        if durable:
            connection.execute(USUAL_SYNC)
        with self._lock:
            if len(self._idle) < MAX_IDLE and not isinstance(connection, _ImmutableConnection):
                self._idle.append(connection)
                return
        connection.close()

    def _open(self) -> sqlite3.Connection:
        """Open the file; make it, and its tables, where they are missing. Raises OSError, sqlite3.Error."""
        if self._makes_folder:
            make_home(self.file.parent)
        self._check_file()
        make_private(self.file)
        connection = self._connect()
        if self._file_id() != self._inode:  # another process has replaced it
            self._drop_connections()
            self._inode = self._file_id()
        return connection

    def _connect(self) -> sqlite3.Connection:
        from onetool.database.migrations import migrate_connection

        connection = self._connect_with()
        try:
            if not connection.execute("PRAGMA page_count").fetchone()[0]:
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # which writes, and counts for a new file only
            _use_log(connection)
            connection.execute(USUAL_SYNC)
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            migrate_connection(connection, SqliteTransaction(connection), self)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in READ_ONLY_CODES:
                return self._connect_immutable(error)
            raise
        return connection

    def _connect_immutable(self, error: sqlite3.OperationalError) -> sqlite3.Connection:
        """Open a file of a read-only folder, where SQLite can't make the files beside it that it needs for its log.

        Raises `error` if there is something in the log: SQLite would read the file without it.
        """
        from onetool.database.migrations import migrate_connection

        log_file = Path(f"{self.file}-wal")
        if _can_write(self.file.parent) or (log_file.exists() and log_file.stat().st_size):
            raise error
        connection = self._connect_with(immutable="1")
        migrate_connection(connection, SqliteTransaction(connection), self)
        return connection

    def _connect_with(self, **options: str) -> sqlite3.Connection:
        if self.vfs:
            options["vfs"] = self.vfs
        connection = sqlite3.connect(
            f"{self.file.absolute().as_uri()}?{urlencode(options)}",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,  # a connection is used by one thread at a time
            factory=_ImmutableConnection if "immutable" in options else sqlite3.Connection,
        )
        return _add_functions(connection)

    def _file_id(self) -> tuple[int, int] | None:
        try:
            found = os.lstat(self.file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def _check_file(self) -> None:
        """Raise DatabaseError for a file that somebody else could have put there."""
        with suppress(FileNotFoundError, NotADirectoryError):
            found = os.lstat(self.file)
            if not stat.S_ISREG(found.st_mode):
                what = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "not a regular file"
                raise DatabaseError(f"{self.file} is not used: it is {what} (fix: remove it, or set ONETOOL_HOME)")
            if HAS_OWNERS and found.st_uid != os.geteuid():
                raise DatabaseError(
                    f"{self.file} is not used: it belongs to another user (fix: chown it, or set ONETOOL_HOME)"
                )
            if HAS_OWNERS and found.st_mode & 0o022:
                raise DatabaseError(f"{self.file} is not used: other users can write it (fix: chmod 600 {self.file})")

    def _drop_connections(self) -> None:
        for connection in [*self._idle, *([self._watching] if self._watching else [])]:
            connection.close()
        self._idle.clear()
        self._watching = None

    @contextmanager
    def _translated(self) -> Generator[None]:
        """Raise what SQLite or the system says as a DatabaseError."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code
            if code in BUSY_CODES:
                raise DatabaseAwayError(str(error), f"{self.file} is locked by another process") from error
            if code in DAMAGE_CODES:
                self._set_aside()
                raise DamagedDatabaseError(f"{self.file} is damaged ({error}); it was set aside") from error
            kind = StorageError if code in FIXES else DatabaseError
            raise kind(f"{self.file} can't be used: {error}{fix_text(FIXES.get(code))}") from error
        except OSError as error:
            fix = system_fix(error)
            raise StorageError(f"{self.file} can't be used: {error.strerror or error}{fix}") from error

    def _set_aside(self) -> None:
        """Rename a damaged file, and make an empty one that knows of it."""
        with flock.lock_beside(self.file):
            if not _is_damaged(self.file):  # another process was quicker
                return
            aside = self.file.with_name(f"{self.file.name}.damaged-{time.time_ns() // 10**9}")
            for suffix in ("-wal", "-shm", "-journal", ""):
                with suppress(FileNotFoundError):
                    os.rename(f"{self.file}{suffix}", f"{aside}{suffix}")
            sync_folder(self.file.parent)
            log.error("%s is damaged; it is now called %s, and an empty one takes its place", self.file, aside.name)
            fresh = SqliteDatabase(self.file)
            fresh.write(lambda work: work.execute("INSERT INTO counters VALUES ('damaged', 1)"), durable=True)
            fresh.close()


class _ImmutableConnection(sqlite3.Connection):
    """A connection that notices no change of its file. It is used once."""


def _use_log(connection: sqlite3.Connection) -> None:
    """Use a write-ahead log where the file system can: it lets others read while one writes."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            code = error.sqlite_errorcode & 0xFF
            if code in BUSY_CODES and time.monotonic() < deadline:
                time.sleep(0.01)  # SQLite doesn't wait here for others that do the same
            elif code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
                return
            else:
                raise


def _is_damaged(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(file, timeout=BUSY_S, isolation_level=None)) as connection:
            return connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",)
    except sqlite3.Error as error:
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE_CODES


def _can_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _add_functions(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.create_function("unix_time", 0, time.time)
    connection.create_aggregate("spread", 1, SpreadAggregate)  # pyright: ignore[reportArgumentType] - its stub wants more methods
    return connection


_empty: Final = threading.local()


def read_empty(job: Callable[[Transaction], T]) -> T:
    """Run a job over empty tables: those of a file that isn't there yet."""
    from onetool.database.migrations import migrate_connection

    connection: sqlite3.Connection | None = getattr(_empty, "connection", None)
    if connection is None:
        connection = _add_functions(sqlite3.connect(":memory:", isolation_level=None))
        migrate_connection(connection, SqliteTransaction(connection), SqliteDatabase(Path("memory")))
        _empty.connection = connection
    connection.execute("BEGIN")
    try:
        return job(SqliteTransaction(connection))
    finally:
        connection.execute("ROLLBACK")
