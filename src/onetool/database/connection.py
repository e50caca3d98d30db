"""`Database` is what stores are written against: transactions in SQL that PostgreSQL and SQLite both understand.

Placeholders are `%s`. `Database.clock` is SQL for the seconds since 1970 on the database's own clock: replicas whose
clocks differ agree on it. All methods block, and may be called from any thread. What they raise is a `DatabaseError`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from onetool.core.errors import OneToolError

T = TypeVar("T")
Row = tuple[Any, ...]
Params = Sequence[Any]
Forget = Callable[[], None]


class Transaction(Protocol):
    """One transaction. It ends with the function that got it: committed, or rolled back if that raised."""

    def execute(self, sql: str, params: Params = ()) -> list[Row]:
        """Run a statement; gives its rows, if it has any."""
        ...

    def execute_many(self, sql: str, rows: Sequence[Params]) -> None: ...

    @property
    def row_count(self) -> int:
        """How many rows the last statement found or changed."""
        ...

    def allow(self, seconds: int) -> None:
        """Let each further statement of this transaction take so long. Without this they have ten seconds."""
        ...

    def notify(self, topic: str, detail: str = "") -> None:
        """Tell all replicas when this is committed: `ReplicaDatabase.on_change` of that topic.

        For changes, never per call.
        """
        ...


class DatabaseLock(Protocol):
    """A lock by its name, among all who use the database. It is held by a connection of its own."""

    def take(self) -> bool:
        """Whether it is held now. It does not wait for who holds it. Raises DatabaseAwayError."""
        ...

    def check(self) -> None:
        """Raises DatabaseAwayError if it was lost, because its connection was."""
        ...

    def release(self) -> None:
        """Never raises."""
        ...


class Database(Protocol):
    """What PostgreSQL and SQLite both have."""

    clock: str
    """SQL for the seconds since 1970, as a float."""

    def read(self, job: Callable[[Transaction], T]) -> T:
        """Run `job` in a transaction that changes nothing. It may run twice. Raises DatabaseAwayError."""
        ...

    def write(self, job: Callable[[Transaction], T]) -> T:
        """Run `job` in a transaction. It may run twice, when the connection was lost before anything counted: so it
        changes nothing outside of it. Raises DatabaseAwayError (nothing has changed) or ChangeUnknownError.
        """
        ...

    @property
    def is_away(self) -> bool:
        """Whether it was not reached when it was last needed. It never blocks."""
        ...

    def close(self) -> None: ...


class ReplicaDatabase(Database, Protocol):
    """What only PostgreSQL has, beside: the database of `database:` in the config."""

    def on_change(self, topic: str, call: Callable[[str], None]) -> Forget:
        """Call it, in a thread, with the detail of each `notify` of that topic by anybody; and with "" every second,
        and after the connection was lost: notifications can get lost, so whoever listens looks for itself then.
        """
        ...

    def lock(self, name: str) -> DatabaseLock:
        """A lock that nobody holds yet. It ends with its process, or when its process does not answer for long."""
        ...


class LockNumber:
    """Numbers of advisory locks (`pg_advisory_xact_lock`): each means one thing in the whole database.

    A number never changes: replicas of another version use the same ones.
    """

    MIGRATIONS: Final = 7_307_199_513_280_411  # one replica makes tables at a time
    STATS_SWEEP: Final = 7_307_199_513_280_412
    STATS_IMPORT: Final = 7_307_199_513_280_413
    RESULTS_ROOM: Final = 7_307_199_513_280_503  # one replica makes room at a time
    AUDIT_APPEND: Final = 7_307_199_513_280_505  # one appends at a time
    AUDIT_SWEEP: Final = 7_307_199_513_280_506


class DatabaseError(OneToolError):
    """The database refused something, or can't be used. No message has its address: that may hold a password.

    `reason` is that of a tool's failure, where a tool lets it through. `is_damaged`: what was read is of no use to
    anybody, so that it may be written over.
    """

    reason: str | None = None
    is_damaged = False


class DatabaseAwayError(DatabaseError):
    """Nobody reaches the database now. Nothing has changed. Callers read this: it does not say `why`, which is for the
    log of the server and names its host and role.
    """

    reason = "database_away"

    def __init__(self, why: str = "") -> None:
        super().__init__("the database can't be reached; nothing has changed, try again")
        self.why = why


class TablesMissingError(DatabaseError):
    """The database is reached, and does not have the tables that this version needs."""

    def __init__(self, missing: list[str], has_none: bool) -> None:
        super().__init__(
            "the database has no tables: run `onetool db init`"
            if has_none
            else f"the database lacks tables of this version ({', '.join(missing)}): run `onetool db migrate`"
        )


class ChangeUnknownError(DatabaseError):
    """The connection was lost while a change was being confirmed: it may have happened. Repeating it is safe."""

    reason = "change_unknown"

    def __init__(self) -> None:
        super().__init__(
            "the connection to the database was lost while the change was being written: "
            "nobody knows whether it happened; read it again, or repeat it"
        )
