"""`Index` is derived from a folder of bundles: lists without opening a file. Delete it, and it comes back.

The search is in memory, and follows the index. Safe for several threads and processes.

    database    the SQLite file, its tables, and a connection per thread
    waiting     how long a caller waits, and the errors of the index
    rows        bundles and tools as rows, and lists by id
    changes     what is written, in one transaction
    stamps      what files looked like, folder by folder
    feed        what is in memory follows it: the search, and all tools

`IndexAccess` runs reads and transactions, each on an index that is complete. There a damaged file is replaced by a new
one: a read is answered from the new one, a transaction fails.
"""

import os
import sqlite3
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from threading import local
from time import time_ns
from typing import TYPE_CHECKING, TypeVar

import msgspec

from onetool.core.errors import Mistake
from onetool.sources.bundles.errors import InvalidError, UnavailableError
from onetool.sources.bundles.index import rows
from onetool.sources.bundles.index.changes import IndexTransaction, PathTakenError, Stamp, read_note
from onetool.sources.bundles.index.database import IndexConnection, IndexConnections
from onetool.sources.bundles.index.feed import NAME, FunctionOf, IndexedSearch, KeptRows, changes_since, no_function
from onetool.sources.bundles.index.rows import path_out
from onetool.sources.bundles.index.stamps import FileStamps, read_stamps
from onetool.sources.bundles.index.waiting import (
    LONG_SECONDS,
    IndexBusyError,
    IndexDamagedError,
    IndexUnwritableError,
    SingleRunner,
    WaitLimit,
    cannot_open,
    is_damage,
    is_gone,
    unavailable,
)
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.store import Rank, SearchHit, SeenRevision, ToolChanges

if TYPE_CHECKING:
    from onetool.services.search.postings import Words

T = TypeVar("T")

Fill = Callable[[], None]
TICK_NS = 20_000_000  # no file system that SQLite's log works on has a coarser clock
_TRIES = 5  # of an index that is deleted or damaged again and again
_TURN_SECONDS = 0.5  # seconds that who must not wait waits for its turn, where all threads share a connection


class IndexAccess:
    def __init__(self, file: Path | None, fill: Fill | None) -> None:
        self._file = file
        self.wal = f"{file}-wal"
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
        """Differs after every change by anybody. It asks SQLite nothing, and so never blocks.

        It is that of the write-ahead log: an index that is made anew has a new log, too. None where only asking tells:
        the clock of a file system ticks every few ms, so that a commit right after this look could leave the same time.
        """
        try:
            if self._file is None:
                connection = self._connections.current()
                return connection.revision if connection.is_filled else None
            found = os.stat(self.wal)
        except (OSError, UnavailableError):  # there is none, or it has been closed
            return None
        is_recent = time_ns() - found.st_mtime_ns < TICK_NS
        return None if is_recent else (found.st_ino, found.st_mtime_ns, found.st_size)

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
            connection.end()
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
                connection.begin()
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


class Index:
    """`file` None keeps it in memory: for a folder that can't be written, which raises UnavailableError.

    The files are the truth. `fill` brings all of them in, within one `changing()`. It is called before the first answer
    of an index that nobody has filled: the first one, or one made anew because the old one was deleted or damaged. That
    happens in the thread that asks, in each that asks meanwhile, and again after it has failed.
    """

    def __init__(self, file: Path | None, fill: Fill | None = None) -> None:
        self._access = IndexAccess(file, fill)
        self.stamp = self._access.stamp
        self._search = IndexedSearch(None if file is None else file.with_name(NAME), self._access.wal)
        self._bundles = KeptRows(rows.bundles_of_ids)

    # Writing

    @contextmanager
    def changing(self) -> Generator[IndexTransaction]:
        """One transaction: all or nothing. Raises UnavailableError; IndexDamagedError, if the index must be rebuilt."""
        with self._access.transaction() as database:
            yield IndexTransaction(database)

    # Reading: see Store

    def bundle(self, id: str) -> Bundle | None:
        return self._access.read(lambda connection: rows.bundle(connection.database, id), is_single=True)

    def bundles(
        self, ids: Iterable[str] = (), include_disabled: bool = False, after: str | None = None, limit: int = 100
    ) -> list[Bundle]:
        wanted = set(ids)
        return self._access.read(
            lambda connection: rows.bundles(connection.database, wanted, include_disabled, after, limit)
        )

    def bundles_of(self, ids: Iterable[str]) -> Mapping[str, Bundle]:
        wanted = list(ids)
        return self._access.read(lambda connection: self._bundles.of(connection, wanted))

    def tool(self, bundle_id: str, slug: str, version: str) -> Tool | None:
        return self._access.read(
            lambda connection: rows.tool(connection.database, bundle_id, slug, version), is_single=True
        )

    def versions(self, bundle_id: str, slug: str) -> list[Tool]:
        return self._access.read(lambda connection: rows.versions(connection.database, bundle_id, slug))

    def tools(
        self,
        tags: Iterable[str] = (),
        bundle_ids: Iterable[str] = (),
        include_disabled: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Tool]:
        some, of = set(tags), set(bundle_ids)
        return self._access.read(
            lambda connection: rows.tools(connection.database, some, of, include_disabled, after, limit)
        )

    def search(
        self,
        query: str,
        include_disabled: bool = False,
        after: Rank | None = None,
        limit: int = 100,
        function: FunctionOf = no_function,
    ) -> list[SearchHit]:
        def question(connection: IndexConnection) -> list[SearchHit]:
            return self._search.search(connection, query, include_disabled, after, limit, function)

        return self._access.read(question)

    def searched(self, function: FunctionOf = no_function) -> "Words":
        """Return the words of all tools, in step with the index and with the functions that they inherit from."""
        return self._access.read(lambda connection: self._search.current(connection, function).words)

    def everything(self) -> tuple[list[Bundle], Iterator[Tool]]:
        """All bundles and tools in one snapshot."""

        def question(connection: IndexConnection) -> tuple[list[Bundle], list[Tool]]:
            found = changes_since(connection, None)
            known = sorted((one for rows in found.everything for one in rows.tools()), key=attrgetter("id"))
            return found.bundles, [one.tool() for one in known]

        bundles, tools = self._access.read(question)
        return bundles, iter(tools)

    def changes(self, seen: SeenRevision | None) -> ToolChanges:
        return self._access.read(lambda connection: changes_since(connection, seen))

    def path_of(self, tool_id: str) -> str | None:
        asked = "SELECT path FROM files JOIN tools ON tool = no WHERE id = ?"
        found = self._access.read(lambda connection: connection.database.execute(asked, (tool_id,)).fetchone())
        return None if found is None else path_out(found[0])

    def mistakes(self) -> list[Mistake]:
        asked = "SELECT path, reason FROM files WHERE reason IS NOT NULL ORDER BY path"
        found = self._access.read(lambda connection: connection.database.execute(asked).fetchall())
        return [Mistake(file=path_out(path), message=reason) for path, reason in found]

    def switches(self) -> str:
        """What `IndexTransaction.built_in` was given as `others`."""
        asked = "SELECT value FROM meta WHERE key = 'switches'"
        return self._access.read(lambda connection: connection.database.execute(asked).fetchone()[0], is_single=True)

    def built_in_mark(self) -> str:
        """Another one where the built-in bundles, or what is set of them, are others."""
        asked = "SELECT value FROM meta WHERE key = 'built_in'"
        return self._access.read(lambda connection: connection.database.execute(asked).fetchone()[0], is_single=True)

    def noted(self, key: str) -> str | None:
        """What `IndexTransaction.note` was given last."""
        return self._access.read(lambda connection: read_note(connection.database, key), is_single=True)

    # Keeping in step

    def stamps(self) -> FileStamps:
        """The stamps of all known files, broken ones included."""
        return self._access.read(lambda connection: read_stamps(connection.database))

    def state(self) -> int:
        """A number that grows with every change by any process, and when the index is made anew."""
        return self._access.revision()

    def close(self) -> None:
        self._access.close()


__all__ = [
    "FileStamps",
    "Index",
    "IndexBusyError",
    "IndexDamagedError",
    "IndexTransaction",
    "IndexUnwritableError",
    "PathTakenError",
    "Stamp",
]
