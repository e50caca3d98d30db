"""`Database`, the interface that all stores use: transactions in SQL that PostgreSQL and SQLite both support.

Placeholders are `%s`. The drivers hide the differences: `Transaction.lock`, `Database.clock`, `on_change`, and the
words in braces in migrations. All methods block, may be called from any thread, and raise DatabaseError.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from time import time
from typing import Any, Final, Protocol, TypeVar

from onetool.core.errors import OneToolError

T = TypeVar("T")
Row = tuple[Any, ...]
Params = Sequence[Any]
Forget = Callable[[], None]
BUSY_S = 10.0  # wait for other processes that write
CALL_WAIT_S = 1.0  # the same if a call is waiting, or the next attempt is soon
NEWEST = 19  # the number of the last migration
MAX_INSERTED = 256  # rows per statement


class Transaction(Protocol):
    """A transaction. When the job returns, the transaction is committed; if the job raises, it is rolled back."""

    keeps_statements: bool = False  # the connection keeps the statements that it has compiled

    def execute(self, sql: str, params: Params = ()) -> list[Row]:
        """Run a statement and return its rows, if it has any."""
        ...

    def execute_many(self, sql: str, rows: Sequence[Params]) -> None: ...

    def insert(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        """Insert rows in this order, with few statements: each acquires the GIL again.

        Where connections keep compiled statements, which take up to a megabyte each, the number of rows per statement
        is a power of two, so that there are few different statements.
        """
        marks = f"({', '.join(['%s'] * (columns.count(',') + 1))})"
        start = 0
        while left := len(rows) - start:
            count = min(left, MAX_INSERTED)
            if self.keeps_statements:
                count = 1 << (count.bit_length() - 1)
            cells = [*chain.from_iterable(rows[start : start + count])]
            self.execute(f"INSERT INTO {table} ({columns}) VALUES {', '.join([marks] * count)}", cells)  # noqa: S608 - names of ours
            start += count

    @property
    def row_count(self) -> int:
        """The number of rows found or changed by the last statement."""
        ...

    def lock(self, number: int, timeout: float | None = None) -> None:
        """Hold one of the locks in `LockNumber` until the transaction ends. SQLite allows only one writing transaction,
        so it needs no locks.
        """

    def try_lock(self, number: int) -> bool:
        """Take a lock unless another transaction holds it. Return whether it is held now."""
        return True

    def allow(self, seconds: int) -> None:
        """Set the time limit for each later statement of this transaction. The default is ten seconds."""

    def notify(self, topic: str, detail: str = "") -> None:
        """Notify listeners (`Database.on_change`) of a change once it is committed.

        This is too slow for every tool call.
        """


Job = Callable[[Transaction], T]


class DatabaseLock(Protocol):
    """A named lock among all processes that use the database. No transaction is open while it is held."""

    def take(self) -> bool:
        """Return whether the lock is held now. Doesn't wait for another holder. Raises DatabaseError."""
        ...

    def check(self) -> None:
        """Raise DatabaseAwayError if the lock was lost together with its connection. File locks can't be lost."""

    def release(self) -> None:
        """Release the lock. Never raises."""


class Database(Protocol):
    """PostgreSQL (`database:` in the config) or a SQLite file (`state.db` in the state folder)."""

    clock: str
    """SQL for the seconds since 1970, as a float: one clock for all replicas."""

    ahead: float = 0.0
    """Seconds that this clock is ahead of the machine's. Each heartbeat measures them again."""

    dialect: Mapping[str, str]
    """The driver's `name`, and the words in braces that migrations use."""

    is_shared: bool
    """Whether other people than this machine's user may read the database: then secrets are encrypted."""

    is_away: bool
    """Whether the last attempt to reach the database failed."""

    def read(self, job: Callable[[Transaction], T], *, snapshot: bool = False) -> T:
        """Run `job` in a read-only transaction. The job may run twice. With `snapshot`, all of its statements see the
        same state.
        """
        ...

    def write(self, job: Job[T], *, durable: bool = False, max_wait: float | None = None, apart: bool = False) -> T:
        """Run `job` in a transaction. The job runs twice if the connection is lost before the commit, so it must change
        nothing outside of the database. After DatabaseAwayError nothing has changed; see ChangeUnknownError. With
        `durable`, the change also survives a power failure once this returns. `max_wait` is the number of seconds to
        wait for other processes that lock a SQLite file, or for PostgreSQL to answer a statement. With `apart`,
        PostgreSQL commits each statement separately: for jobs that may stop after any statement.
        """
        ...

    def now(self) -> float:
        """Return the seconds since 1970 by the database's clock. Never blocks."""
        return time() + self.ahead

    def stamp(self) -> Hashable:
        """Return a value that differs after every commit by any process.

        None if no such value is cheap; use `on_change` then.
        """
        return None

    def peek(self, sql: str, params: Params = ()) -> list[Row]:
        """Return the rows of one SELECT, which has a `?` for each parameter; none if the database has no stamps."""
        return []

    def on_change(self, topic: str, call: Callable[[str], None]) -> Forget:
        """Call a function, in a thread, with the detail of each `notify` of the topic, and with "" when something may
        have changed without a notification, at most once a second. Return a function that unregisters it.
        """
        ...

    def lock(self, name: str) -> DatabaseLock:
        """Return a lock, not yet taken, which is released when the process ends."""
        ...

    def pool_usage(self) -> dict[str, int]:
        """Return the number of open and idle connections and of waiting threads; empty if there is no pool."""
        return {}

    def describe(self) -> str:
        """Return the name of the database for messages, without its address."""
        ...

    def spare_bytes(self) -> int:
        """Return the number of bytes on disk without rows: free pages, and the write-ahead log. 0 for PostgreSQL."""
        return 0

    def shrink(self) -> None:
        """Return unused bytes to the system, in small steps, as PostgreSQL does by itself.

        Don't call this after every change.
        """

    def close(self) -> None: ...


class LockNumber:
    """The numbers of the locks for `Transaction.lock`. A number never changes."""

    MIGRATIONS: Final = 7_307_199_513_280_411  # one replica creates tables at a time
    JOURNAL_APPEND: Final = 7_307_199_513_280_505  # one replica appends at a time
    JOURNAL_SWEEP: Final = 7_307_199_513_280_506


class DatabaseError(OneToolError):
    """A database error. The message is shown to callers: it contains neither the address, which may have a password,
    nor the folder of a file.

    `reason` is the reason for a tool's failure. `is_damaged` means that the content is unreadable, so it may be
    overwritten.
    """

    reason: str | None = None
    is_damaged = False
    path: Path | None = None  # of the file in the message
    advice = ""  # the end of the message

    @property
    def what(self) -> str:
        """The message without the advice, which is about the change in the database alone."""
        return str(self).removesuffix(self.advice)

    @property
    def full_text(self) -> str:
        """The message with the folder of the file, for the user of this process."""
        return with_folder(str(self), self)


def with_folder(text: str, error: BaseException | None) -> str:
    """Return the message of an error or its cause, with the folder added to the name of the file."""
    while error is not None:
        if isinstance(error, DatabaseError) and error.path is not None:
            return text if str(error.path) in text else text.replace(error.path.name, str(error.path))
        error = error.__cause__ or error.__context__
    return text


class DatabaseAwayError(DatabaseError):
    """The database can't be reached or is locked. Nothing has changed. The message is shown to clients. `why` is for
    the server's log and may name the host and the role.
    """

    reason = "database_away"
    advice = "; nothing has changed, try again"

    def __init__(self, why: str = "", message: str = "the database can't be reached") -> None:
        super().__init__(f"{message}{self.advice}")
        self.why = why


class ReplacedDatabaseError(DatabaseAwayError):
    """The file, or its log, was replaced while connections to the old one are in use. Cached content is invalid."""


class UnsafeDatabaseError(DatabaseError):
    """The file is a link, or other users could have written it. Cached content is invalid."""


class StorageError(DatabaseError):
    """The disk is full, broken or read-only. Nothing has changed."""


class DamagedDatabaseError(DatabaseError):
    """The file is not a database, or is damaged."""

    is_damaged = True


class NewerDatabaseError(DatabaseError):
    """The tables were created by a later version of OneTool."""

    def __init__(self, place: str, schema: int, known: int) -> None:
        super().__init__(
            f"{place} was changed by a later version of OneTool (schema {schema}; this version knows {known}): "
            "update OneTool"
        )


class TablesMissingError(DatabaseError):
    """The database lacks tables that this version needs."""

    def __init__(self, missing: list[str], has_none: bool) -> None:
        super().__init__(
            "the database has no tables: run `onetool db init`"
            if has_none
            else f"the database lacks tables of this version ({', '.join(missing)}): run `onetool db migrate`"
        )


class OlderReplicasError(DatabaseError):
    """Replicas of an older version run, which need the old tables."""

    def __init__(self, running: list[str]) -> None:
        which = ", ".join(running)
        super().__init__(
            f"this version can't run beside older replicas: stop all of them first, then try again ({which})"
        )


class ChangeUnknownError(DatabaseError):
    """The connection was lost during the commit, so the change may or may not have happened. Repeating it is safe."""

    reason = "change_unknown"
    advice = "; check, or try again"

    def __init__(self) -> None:
        message = "the connection to the database was lost during the change, which may or may not have happened"
        super().__init__(f"{message}{self.advice}")
