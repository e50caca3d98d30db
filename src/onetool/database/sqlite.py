"""A SQLite file with the interface of `Database`: what the workers of one machine share.

Nobody is notified here: workers tell each other over their sockets, and `on_change` calls every second.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from onetool.core import flock
from onetool.core.private_file import private
from onetool.database.connection import Forget, Params, Row, Transaction
from onetool.database.errors import DatabaseAwayError, DatabaseError

T = TypeVar("T")

BUSY_S = 5.0
EVERY_S = 1.0


class SqliteTransaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = connection.cursor()

    def execute(self, sql: str, params: Params = ()) -> list[Row]:
        return self._cursor.execute(_own(sql), tuple(params)).fetchall()

    def execute_many(self, sql: str, rows: Sequence[Params]) -> None:
        self._cursor.executemany(_own(sql), rows)

    @property
    def row_count(self) -> int:
        return self._cursor.rowcount

    def allow(self, seconds: int) -> None:
        """A statement takes as long as it takes."""

    def notify(self, topic: str, detail: str = "") -> None:
        pass


class FileLock:
    """A lock on a file beside the database. The system takes it from nobody who lives."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._held: int | None = None

    def take(self) -> bool:
        if self._held is None:
            try:
                self._held = flock.take_path(self._file, lambda file: private(file, os.O_RDWR | os.O_CREAT), 0.0)
            except OSError as error:
                raise DatabaseAwayError(f"{self._file}: {error.strerror}") from error
        return self._held is not None

    def check(self) -> None:
        pass

    def release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            flock.give_back(held)


class SqliteDatabase:
    """The file is made when it is first used. Each thread has a connection of its own."""

    clock = "((julianday('now') - 2440587.5) * 86400.0)"
    is_away = False

    def __init__(self, file: Path) -> None:
        self._file = file
        self._own = threading.local()
        self._all: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def read(self, job: Callable[[Transaction], T]) -> T:
        return self._run(job, "BEGIN")

    def write(self, job: Callable[[Transaction], T]) -> T:
        return self._run(job, "BEGIN IMMEDIATE")

    def on_change(self, topic: str, call: Callable[[str], None]) -> Forget:
        ended = threading.Event()

        def look() -> None:
            while not (ended.wait(EVERY_S) or self._closed.is_set()):
                call("")

        threading.Thread(target=look, name="onetool-look", daemon=True).start()
        return ended.set

    def lock(self, name: str) -> "FileLock":
        digest = sha256(name.encode()).hexdigest()[:32]
        return FileLock(self._file.with_name(f".{self._file.name}.{digest}.lock"))

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            for connection in self._all:
                connection.close()
            self._all.clear()

    def _run(self, job: Callable[[Transaction], T], begin: str) -> T:
        try:
            connection = self._connection()
            connection.execute(begin)
            try:
                result = job(SqliteTransaction(connection))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.OperationalError as error:
            raise DatabaseAwayError(f"{self._file}: {error}") from error
        except sqlite3.Error as error:
            raise DatabaseError(f"{self._file} refused this: {error}") from error
        return result

    def _connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if found is None:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Only `close` uses it in another thread, when nobody else does.
            found = sqlite3.connect(self._file, BUSY_S, isolation_level=None, check_same_thread=False)
            found.execute("PRAGMA journal_mode = WAL")
            found.execute("PRAGMA synchronous = NORMAL")
            self._own.connection = found
            with self._lock:
                self._all.append(found)
        return found


def _own(sql: str) -> str:
    return sql.replace("%s", "?")
