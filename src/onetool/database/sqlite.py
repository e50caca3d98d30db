"""A SQLite file with the interface of `Database`: what the workers of one machine share.

Nobody is notified here: workers tell each other over their sockets.
"""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from onetool.database.connection import DatabaseAwayError, DatabaseError, Params, Row, Transaction

T = TypeVar("T")

BUSY_S = 5.0  # to wait for another process that writes
AWAY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN)


class SqliteTransaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = connection.cursor()

    def execute(self, sql: str, params: Params = ()) -> list[Row]:
        return self._cursor.execute(_with_question_marks(sql), tuple(params)).fetchall()

    def execute_many(self, sql: str, rows: Sequence[Params]) -> None:
        self._cursor.executemany(_with_question_marks(sql), rows)

    @property
    def row_count(self) -> int:
        return self._cursor.rowcount

    def allow(self, seconds: int) -> None:
        """SQLite has no time limit for a statement."""

    def notify(self, topic: str, detail: str = "") -> None:
        pass


class SqliteDatabase:
    """The file is made when it is first used, its folder is there already. Each thread has a connection of its own."""

    clock = "((julianday('now') - 2440587.5) * 86400.0)"
    is_away = False

    def __init__(self, file: Path) -> None:
        self._file = file
        self._own = threading.local()
        self._all: list[sqlite3.Connection] = []
        self._lock = threading.Lock()

    def read(self, job: Callable[[Transaction], T]) -> T:
        return self._run(job, "BEGIN")

    def write(self, job: Callable[[Transaction], T]) -> T:
        return self._run(job, "BEGIN IMMEDIATE")

    def close(self) -> None:
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
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in AWAY:  # the primary code, of an extended one
                raise DatabaseAwayError(f"{self._file}: {error}") from error
            raise DatabaseError(f"{self._file} refused this: {error}") from error
        return result

    def _connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if found is None:
            # Only `close` uses it in another thread, when nobody else does.
            found = sqlite3.connect(self._file, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            found.execute("PRAGMA journal_mode = WAL")
            found.execute("PRAGMA synchronous = NORMAL")
            self._own.connection = found
            with self._lock:
                self._all.append(found)
        return found


def _with_question_marks(sql: str) -> str:
    """SQLite writes parameters as `?`."""
    return sql.replace("%s", "?")
