"""`EventTable`: the journal in the database, which all processes and replicas append to.

Transactions append one at a time, so numbers become visible in order and readers that follow the journal miss no rows.
All methods block, and raise DatabaseError.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from re import findall, sub
from threading import BoundedSemaphore
from typing import Any, TypeVar

from onetool.core.errors import ToolFailure
from onetool.core.limits import DAY
from onetool.database import Database, DatabaseAwayError, DatabaseError, LockNumber, Row, Transaction
from onetool.database.connection import CALL_WAIT_S
from onetool.services.journal.row import COLUMNS, JournalRow
from onetool.services.journal.takeover import Takeover

T = TypeVar("T")

MAX_WAIT_S = 2.0  # for another process that writes
ROWS_AT_ONCE = 16  # per statement: while their values are bound, this thread holds the GIL
MAX_SWEPT = 1_000  # rows per transaction
MAX_QUERY_S = 50  # per statement of a reader or sweep
MAX_READS = 4  # at the same time: reads can be slow, and all services share the connections
SAMPLE = 1_000  # rows whose size is measured
ROW_BYTES = 150  # of a row without its texts, with its entries in the indexes
_TEXTS = ("tool", "what", "source", "via", "client", "who", "owner", "address", "run", "id", "args", "made", "trace")
_PERCENTILES = ", ".join(
    f"'p{percent}', percentile_disc(0.{percent}) WITHIN GROUP (ORDER BY ms)" for percent in (90, 95, 99)
)
DIALECTS: Mapping[str, Mapping[str, str]] = {
    "SQLite": {
        "spread": "spread(ms)",
        "bucket": "CAST(at / :bucket AS integer)",
        "latest_source": "source",  # SQLite takes this from the row with max(at)
        "unordered": "NOT INDEXED",  # a table scan is faster than following an index
        "by_tool": "+tool",
        "names": "SELECT value FROM json_each(:names)",
    },
    "PostgreSQL": {
        "spread": "CAST(json_build_object('p50', percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), "
        f"{_PERCENTILES}, 'max', max(ms)) AS text)",
        "bucket": "CAST(floor(at / :bucket) AS bigint)",
        "latest_source": "(array_agg(source ORDER BY at DESC))[1]",
        "unordered": "",
        "by_tool": "tool",
        "names": "SELECT jsonb_array_elements_text(CAST(:names AS jsonb))",
    },
}


class UnreadableError(ToolFailure):
    """Stats that exist but can't be read."""

    def __init__(self, error: DatabaseError) -> None:
        reason = "database_away" if isinstance(error, DatabaseAwayError) else "source_unavailable"
        super().__init__(f"stats can't be read: {error}", reason=reason)


class Query:
    """A reader of the stats that runs queries on one snapshot.

    A query has parameters like `:name`, and `{…}` where SQLite and PostgreSQL differ:

        {spread}          percentiles of ms, as JSON for `read_spread`
        {bucket}          the number of the interval of `:bucket` seconds that contains `at`
        {latest_source}   the source of the latest call of a group
        {unordered}       follows a table that is read completely
        {by_tool}         the column `tool`, without using its index
        {names}           the names of the JSON list `:names`, as a subquery
    """

    def __init__(self, work: Transaction, dialect: str) -> None:
        self._work = work
        self._dialect = dialect

    def rows(self, query: str, asked: Mapping[str, Any]) -> list[Row]:
        sql, names = _translated(query, self._dialect)
        return self._work.execute(sql, [asked[name] for name in names])


class EventTable:
    """The table `events` of a database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.takeover = Takeover(database)
        self._reading = BoundedSemaphore(MAX_READS)

    # Reading. A missing database is empty, and isn't created.

    def read(self, ask: Callable[[Query], T]) -> T:
        """Run queries of the stats on one snapshot. Raises UnreadableError."""

        def job(work: Transaction) -> T:
            work.allow(MAX_QUERY_S)
            return ask(Query(work, self.database.dialect["name"]))

        try:
            self.takeover.finish()
            with self._reading:
                return self.database.read(job, snapshot=True)
        except DatabaseError as error:
            raise UnreadableError(error) from None

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        def job(work: Transaction) -> list[Row]:
            work.allow(MAX_QUERY_S)
            return work.execute(sql, params)

        return self.database.read(job)

    # Writing

    def append(self, rows: Sequence[JournalRow], max_wait: float = MAX_WAIT_S) -> None:
        """Append all rows or none, in this order."""

        def job(work: Transaction) -> None:
            work.lock(LockNumber.JOURNAL_APPEND, max_wait)
            for start in range(0, len(rows), ROWS_AT_ONCE):
                work.insert("events", COLUMNS, rows[start : start + ROWS_AT_ONCE])

        self.database.write(job, max_wait=max_wait)

    def key(self, *, creates: bool = False) -> bytes:
        """Return the key of the hashes, which all processes share. With `creates`, a missing database is created."""
        if creates:
            return self.database.write(_read_key, max_wait=MAX_WAIT_S)
        return self.database.read(_read_key)

    def sweep(self, now: float, retention_days: int, max_rows: int, max_mb: int) -> int:
        """Remove expired rows, then the oldest rows beyond the limits. Return the number of the latter."""
        too_old = self._remove_before(now - retention_days * DAY)
        oldest = self._oldest_kept(max_rows, max_mb)
        too_many = 0 if oldest is None else self._remove_before(oldest)
        if too_old or too_many:
            with suppress(DatabaseError):
                self.database.shrink()
        return too_many

    def _oldest_kept(self, max_rows: int, max_mb: int) -> float | None:
        """Return the time before which rows are beyond the limits; None if there are fewer rows."""
        texts = " + ".join(f"coalesce(length({text}), 0)" for text in _TEXTS)
        newest = f"SELECT {texts} AS size FROM events ORDER BY at DESC, number DESC LIMIT {SAMPLE}"  # noqa: S608 - ours
        [(size,)] = self.rows(f"SELECT avg(size) FROM ({newest}) AS newest")  # noqa: S608 - ours
        if size is None:
            return None
        fitting = min(max_rows, int(max_mb * 1024**2 / (ROW_BYTES + float(size))))
        found = self.rows("SELECT at FROM events ORDER BY at DESC, number DESC LIMIT 1 OFFSET %s", (fitting - 1,))
        return found[0][0] if found else None

    def _remove_before(self, at: float) -> int:
        """Remove rows in small transactions, to let other processes write. Only one replica at a time does this."""
        some = f"SELECT number FROM events WHERE at < %s ORDER BY at LIMIT {MAX_SWEPT}"  # noqa: S608 - ours
        removed = 0

        def job(work: Transaction) -> int:
            if not work.try_lock(LockNumber.JOURNAL_SWEEP):
                return 0
            work.allow(MAX_QUERY_S)
            work.execute(f"DELETE FROM events WHERE number IN ({some})", (at,))  # noqa: S608 - ours
            return work.row_count

        try:
            while count := self.database.write(job, max_wait=CALL_WAIT_S):
                removed += count
        except DatabaseError:
            if not removed:
                raise
        return removed  # also after an error: the removal must be logged


def read_nothing(ask: Callable[[Query], T]) -> T:
    """Return the result of a query on an empty database."""
    from onetool.database.sqlite import read_empty

    return read_empty(lambda work: ask(Query(work, "SQLite")))


@lru_cache(maxsize=256)
def _translated(query: str, dialect: str) -> tuple[str, list[str]]:
    """Return the SQL for a dialect, and the names of its parameters in order."""
    sql = query.format_map(DIALECTS[dialect])
    return sub(r":(\w+)", "%s", sql), findall(r":(\w+)", sql)


def _read_key(work: Transaction) -> bytes:
    rows = work.execute("SELECT key FROM audit_key")
    if not rows:
        raise DatabaseError("the table audit_key is empty, but must hold the key of the audit log: restore it")
    return bytes(rows[0][0])
