"""`StatsStore` stores the rows of the stats, and runs queries on them.

A query has parameters like `:name`, and `{…}` where SQLite and PostgreSQL differ:

    {spread}          percentiles of duration_ms, as JSON for `read_spread`
    {bucket}          the number of the interval of `:bucket` seconds that contains `at`
    {latest_source}   the source of the latest call of a group
    {unordered}       follows a table that is read completely
    {tool}            the column `tool`, without using its index
    {names}           the names of the JSON list `:names`, as a subquery
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from threading import BoundedSemaphore
from typing import Any, TypeVar
from uuid import uuid4

import msgspec

from onetool.core.errors import ToolFailure
from onetool.database import Database, DatabaseAwayError, DatabaseError, LockNumber, Transaction

log = logging.getLogger("onetool.stats")
T = TypeVar("T")
Row = tuple[Any, ...]
Batch = Mapping[str, Sequence[Row]]  # rows by their table

CALLS, RUNS, REPLIES, MENUS, GAPS = "calls", "runs", "replies", "menus", "gaps"
COLUMNS = {  # the database computes tokens
    CALLS: "at, tool, source, door, client, run, ok, code, reason, duration_ms, bytes_in, bytes_out, caller",
    RUNS: "at, id, door, client, ok, code, duration_ms, calls, bytes_in, caller",
    REPLIES: "at, run, bytes_out",
    MENUS: "at, client, door, full_bytes, sent_bytes, caller",
    GAPS: "at, client, duration_ms, caller",
}

MAX_QUERY_SECONDS = 50  # per statement of a read or sweep
MAX_READS = 4  # at the same time: reads can be slow, and all services share the connections
WRITER_SECONDS = 7 * 86_400  # how long the number of a writer's last batch is kept
MAX_FORGOTTEN = 20_000  # rows per transaction

_PERCENTILES = ", ".join(
    f"'p{percent}', percentile_disc(0.{percent}) WITHIN GROUP (ORDER BY duration_ms)" for percent in (90, 95, 99)
)
DIALECTS: Mapping[str, Mapping[str, str]] = {
    "SQLite": {
        "spread": "spread(duration_ms)",
        "bucket": "CAST(at / :bucket AS integer)",
        "latest_source": "source",  # SQLite takes this from the row with max(at)
        "unordered": "NOT INDEXED",  # a table scan is faster than following an index
        "tool": "+tool",
        "names": "SELECT value FROM json_each(:names)",
    },
    "PostgreSQL": {
        "spread": "CAST(json_build_object('p50', percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_ms), "
        f"{_PERCENTILES}, 'max', max(duration_ms)) AS text)",
        "bucket": "CAST(floor(at / :bucket) AS bigint)",
        "latest_source": "(array_agg(source ORDER BY at DESC))[1]",
        "unordered": "",
        "tool": "tool",
        "names": "SELECT jsonb_array_elements_text(CAST(:names AS jsonb))",
    },
}


class UnreadableError(ToolFailure):
    """Stats that exist but can't be read."""

    def __init__(self, error: DatabaseError) -> None:
        reason = "database_away" if isinstance(error, DatabaseAwayError) else "source_unavailable"
        super().__init__(f"stats can't be read: {error}", reason=reason)


class StatsReader:
    """A reader that runs queries on one snapshot."""

    def __init__(self, work: Transaction, dialect: str) -> None:
        self._work = work
        self._dialect = dialect

    def rows(self, query: str, asked: Mapping[str, Any]) -> list[Row]:
        sql, names = _translated(query, self._dialect)
        return self._work.execute(sql, [asked[name] for name in names])


class StatsStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._dialect = database.dialect["name"]
        self._id = uuid4().hex  # of this writer
        self._reading = BoundedSemaphore(MAX_READS)
        self.max_rows = 0  # of each kind; 0: any number

    def write(self, number: int, rows: Batch, max_wait: float, sweep_before: float | None) -> None:
        """Write all rows or none, and delete rows older than `sweep_before`. Raises DatabaseError.

        A batch with the same number is written only once, however often this is called.
        """

        def job(work: Transaction) -> None:
            # Each batch has a higher number than the one before.
            sql = (
                f"INSERT INTO stats_writers (id, batch, at) VALUES (%s, %s, {self._database.clock}) ON CONFLICT (id) "  # noqa: S608
                "DO UPDATE SET batch = excluded.batch, at = excluded.at WHERE stats_writers.batch < excluded.batch"
            )
            work.execute(sql, (self._id, number))
            if work.row_count == 1:
                for table, some in rows.items():
                    work.insert(f"stats_{table}", COLUMNS[table], some)

        self._database.write(job, max_wait=max_wait)
        if sweep_before is not None:
            try:
                self._forget(sweep_before, max_wait)
            except DatabaseError as error:  # the rows were written; sweep next time
                log.debug("old stats can't be deleted yet: %s", error)

    def read(self, ask: Callable[[StatsReader], T]) -> T:
        """Run queries on one snapshot. Raises UnreadableError."""

        def job(work: Transaction) -> T:
            work.allow(MAX_QUERY_SECONDS)
            return ask(StatsReader(work, self._dialect))

        try:
            with self._reading:
                return self._database.read(job, snapshot=True)
        except DatabaseError as error:
            raise UnreadableError(error) from None

    def _forget(self, before: float, max_wait: float) -> None:
        """Delete old rows, in small transactions because other stores write to the same file.

        Runs are deleted first, because the calls of a run stay as long as the run. If a table has more than `max_rows`,
        older rows are deleted from all tables, so that all figures begin at the same time.
        """
        before = max([before, *map(self._oldest_kept, COLUMNS)]) if self.max_rows else before
        for table in (RUNS, MENUS, GAPS, REPLIES, CALLS):
            start = 0.0
            while start < before:
                job = partial(_forget_part, table=table, start=start, before=before)
                start = self._database.write(job, max_wait=max_wait)
        sql = f"DELETE FROM stats_writers WHERE at < {self._database.clock} - %s"  # noqa: S608 - our own words
        self._database.write(lambda work: work.execute(sql, (WRITER_SECONDS,)), max_wait=max_wait)

    def _oldest_kept(self, table: str) -> float:
        """Return the time of the oldest row to keep; 0 if there are at most `max_rows`."""
        sql = f"SELECT at FROM stats_{table} ORDER BY at DESC LIMIT 1 OFFSET %s"  # noqa: S608 - our own words

        def find(work: Transaction) -> float:
            work.allow(MAX_QUERY_SECONDS)
            found = work.execute(sql, (self.max_rows - 1,))
            return found[0][0] if found else 0.0

        return self._database.read(find)


def read_nothing(ask: Callable[[StatsReader], T]) -> T:
    """Return the result of a query on an empty store."""
    from onetool.database.sqlite import read_empty

    return read_empty(lambda work: ask(StatsReader(work, "SQLite")))


@lru_cache(maxsize=256)
def _translated(query: str, dialect: str) -> tuple[str, list[str]]:
    """Return the SQL for a dialect, and the names of its parameters in order."""
    tables = {table: f"stats_{table}" for table in COLUMNS}
    sql = query.format_map({**tables, **DIALECTS[dialect]})
    return re.sub(r":(\w+)", "%s", sql), re.findall(r":(\w+)", sql)


def _forget_part(work: Transaction, table: str, start: float, before: float) -> float:
    """Delete some rows from `start` on, and return where the rest begins. Only one replica at a time does this."""
    if not work.try_lock(LockNumber.STATS_SWEEP):
        return before
    work.allow(MAX_QUERY_SECONDS)
    sql = f"SELECT at FROM stats_{table} WHERE at >= %s AND at < %s ORDER BY at LIMIT 1 OFFSET %s"  # noqa: S608
    found = work.execute(sql, (start, before, MAX_FORGOTTEN))
    end: float = found[0][0] if found and found[0][0] > start else before
    sql = f"DELETE FROM stats_{table} WHERE at >= %s AND at < %s"  # noqa: S608 - our own words
    if table in (REPLIES, CALLS):
        sql += f" AND NOT EXISTS (SELECT 1 FROM stats_runs WHERE id = stats_{table}.run)"  # noqa: S608
    work.execute(sql, (start, end))
    return end


# {spread}: percentiles of durations


class Spread(msgspec.Struct, frozen=True):
    """Percentiles of durations in milliseconds; all None if there were no calls."""

    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


def read_spread(text: str | None) -> Spread:
    """Return the value of `{spread}` in a query result."""
    found = {} if text is None else msgspec.json.decode(text, type=dict[str, float | None])
    return Spread(**{name: None if value is None else round(value, 3) for name, value in found.items()})
