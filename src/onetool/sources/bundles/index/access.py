"""`IndexAccess` runs reads and transactions, each on an index that is complete.

Here a damaged file is replaced by a new one: a read is answered from the new one, a transaction fails.
"""

import sqlite3
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import local
from typing import TypeVar

import msgspec

from onetool.sources.bundles.errors import InvalidError, UnavailableError
from onetool.sources.bundles.index.database import IndexConnection, IndexConnections, change_stamp
from onetool.sources.bundles.index.waiting import (
    LONG_SECONDS,
    IndexBusyError,
    IndexDamagedError,
    SingleRunner,
    WaitLimit,
    cannot_open,
    is_damage,
    is_gone,
    unavailable,
)

T = TypeVar("T")

Fill = Callable[[], None]
_TRIES = 5  # of an index that is deleted or damaged again and again
_TURN_SECONDS = 0.5  # seconds that who must not wait waits for its turn, where all threads share a connection


class IndexAccess:
    def __init__(self, file: Path | None, fill: Fill | None) -> None:
        self._file = file
        self._log = f"{file}-wal"
        self._fill = fill
        self._mine = local()
        self._wait_limit = WaitLimit()
        self._runner = SingleRunner("the index of the bundles is being made anew", self._wait_limit)
        try:
            self._connections = IndexConnections(file, self._wait_limit)
        except (OSError, sqlite3.Error) as error:
            raise cannot_open(file, error) from error

    def read(self, question: Callable[[IndexConnection], T], is_single: bool = False) -> T:
        """Run a read in one snapshot (a single statement needs no transaction). Inside a transaction of this thread it
        sees its changes.
        """
        try:
            return self._read_once(question, is_single)
        except IndexBusyError:
            self._wait_limit.spent()
            raise

    def _read_once(self, question: Callable[[IndexConnection], T], is_single: bool) -> T:
        for _ in range(_TRIES):
            connection = self._ready()
            with self._transaction_lock(connection):
                inside = False
                try:
                    connection.wait(self._wait_limit.seconds)
                    inside = connection.database.in_transaction
                    return question(connection) if inside or is_single else _of_one_moment(connection, question)
                except UnicodeEncodeError as error:
                    raise InvalidError(
                        "there is half a character in a text: it can't be the name of anything"
                    ) from error
                except (sqlite3.Error, msgspec.DecodeError) as error:
                    if inside:
                        raise  # whoever began it sees to it
                    self._recover(connection, error)
        raise IndexDamagedError("again and again")

    def revision(self) -> int:
        """Another one after every change. Of an index in memory it is known without a turn."""
        if self._file is None and (known := self._ready().revision) is not None:
            return known
        return self.read(_revision, is_single=True)

    def stamp(self) -> Hashable:
        """Differs after every change. It asks SQLite nothing, and so never blocks; None where only asking tells."""
        if self._file is not None:
            return change_stamp(self._log)
        try:
            connection = self._connections.current()
        except UnavailableError:  # it has been closed
            return None
        return connection.revision if connection.is_filled else None

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """A transaction: all or nothing. The revision is updated if anything has changed."""
        connection = self._begun()
        try:
            database, before = connection.database, connection.database.total_changes
            try:
                connection.is_changing = True
                yield database
                database.execute("UPDATE meta SET value = 1 WHERE key = 'filled' AND value = 0")
                if database.total_changes != before:
                    database.execute("UPDATE meta SET value = value + 1 WHERE key = 'revision'")
                database.execute("COMMIT")
                connection.revision = _revision(connection) if self._file is None else None
            except BaseException:
                _roll_back(database)
                raise
        except (sqlite3.Error, msgspec.DecodeError) as error:
            self._recover(connection, error)
            raise IndexDamagedError(error) from error
        finally:
            connection.is_changing = False
            connection.lock.release()

    def close(self) -> None:
        self._connections.close()

    def _begun(self) -> IndexConnection:
        """A connection with its lock and a transaction."""
        for _ in range(_TRIES):
            connection = self._ready()
            connection.lock.acquire()
            try:
                if connection.database.in_transaction:
                    raise RuntimeError("a change of the index inside of another one")
                connection.wait(LONG_SECONDS)
                connection.database.execute("BEGIN IMMEDIATE")
            except BaseException as error:
                connection.lock.release()
                if not isinstance(error, sqlite3.Error):
                    raise
                self._recover(connection, error)
            else:
                return connection
        raise IndexDamagedError("again and again")

    def _ready(self) -> IndexConnection:
        """This thread's connection. A new index is filled before its first answer."""
        for _ in range(_TRIES):
            connection = self._current()
            if connection.is_filled or self._fill is None or getattr(self._mine, "is_filling", False):
                return connection
            if not self._is_new(connection):
                connection.is_filled = True
                self._wait_limit.answered()
                return connection
            if self._wait_limit.is_short:
                self._runner.do(self._fill_it)
            else:
                self._fill_it()
            connection.is_filled = True  # it has been seen to; another one may lie there by now, though
            self._wait_limit.answered()
        raise UnavailableError("the index of the bundles is made anew all the time: somebody keeps deleting it")

    def _fill_it(self) -> None:
        assert self._fill is not None  # noqa: S101 - else nobody comes here
        self._mine.is_filling = True
        try:
            self._fill()
        finally:
            self._mine.is_filling = False

    def _is_new(self, connection: IndexConnection) -> bool:
        """Whether the index is not filled yet. A damaged one fails in the query itself."""
        with self._transaction_lock(connection), suppress(sqlite3.Error):
            connection.wait(self._wait_limit.seconds)
            return connection.database.execute("SELECT value FROM meta WHERE key = 'filled'").fetchone() == (0,)
        return False

    @contextmanager
    def _transaction_lock(self, connection: IndexConnection) -> Generator[None]:
        if not connection.lock.acquire(timeout=_TURN_SECONDS if self._wait_limit.is_short else -1):
            raise IndexBusyError("the index of the bundles is busy: other threads have it; try again")
        try:
            yield
        finally:
            connection.lock.release()

    def _current(self) -> IndexConnection:
        try:
            return self._connections.current()
        except (OSError, sqlite3.Error) as error:
            raise cannot_open(self._file, error) from error

    def _recover(self, connection: IndexConnection, error: sqlite3.Error | msgspec.DecodeError) -> None:
        """Prepare a retry, or raise."""
        if isinstance(error, sqlite3.Error) and not is_damage(error) and not is_gone(error):
            if not _is_idle(connection):
                self._connections.give_up(connection, is_damaged=False)
            raise unavailable(error) from error
        try:
            self._connections.give_up(connection, is_damaged=not is_gone(error))
        except OSError as problem:
            raise cannot_open(self._file, problem) from error


def _revision(connection: IndexConnection) -> int:
    return connection.database.execute("SELECT value FROM meta WHERE key = 'revision'").fetchone()[0]


def _is_idle(connection: IndexConnection) -> bool:
    """Whether no transaction is open. One that could not be ended would stay for ever."""
    try:
        return not connection.database.in_transaction
    except sqlite3.Error:
        return False


def _of_one_moment(connection: IndexConnection, question: Callable[[IndexConnection], T]) -> T:
    connection.database.execute("BEGIN")
    try:
        return question(connection)
    finally:
        _roll_back(connection.database)


def _roll_back(database: sqlite3.Connection) -> None:
    if database.in_transaction:
        database.execute("ROLLBACK")
