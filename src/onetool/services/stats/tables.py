"""`StatsTables` keeps the stats in the PostgreSQL that replicas share."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from threading import BoundedSemaphore
from typing import Any, TypeVar
from uuid import uuid4

from onetool.database import ChangeUnknownError, Database, DatabaseAwayError, DatabaseError, LockNumber, Transaction
from onetool.services.stats.storage import (
    CALLS,
    COLUMNS,
    GAPS,
    MENUS,
    REPLIES,
    RUNS,
    Batch,
    Row,
    StatsReader,
    StorageBusyError,
    StorageRefusedError,
    UnreadableError,
)

log = logging.getLogger("onetool.stats")

T = TypeVar("T")

MOST_SECONDS = 50  # that a statement of a read may take, or of a sweep
MOST_READS = 4  # at the same time: they can be slow, and the connections are for all
WRITERS_KEPT = 7 * 86_400  # seconds

_PERCENTILES = ", ".join(
    f"'p{percent}', percentile_disc(0.{percent}) WITHIN GROUP (ORDER BY duration_ms)" for percent in (90, 95, 99)
)
DIALECT = {
    **{table: f"stats_{table}" for table in COLUMNS},
    "spread": "CAST(json_build_object('p50', percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_ms), "
    f"{_PERCENTILES}, 'max', max(duration_ms)) AS text)",
    "bucket": "CAST(floor(at / :bucket) AS bigint)",
    "latest_source": "(array_agg(source ORDER BY at DESC))[1]",
    "unordered": "",
    "tool": "tool",
    "names": "SELECT jsonb_array_elements_text(CAST(:names AS jsonb))",
}


class StatsTables:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._id = uuid4().hex  # of this writer
        self._reading = BoundedSemaphore(MOST_READS)

    def write(self, number: int, rows: Batch, timeout: float, sweep_before: float | None) -> None:
        """The database has time-outs of its own, so that `timeout` is not needed."""

        def job(work: Transaction) -> None:
            if _is_next(work, self._id, number, self._database.clock):
                for table, some in rows.items():
                    insert_rows(work, table, some)

        try:
            self._database.write(job)
        except DatabaseAwayError as error:
            raise StorageBusyError(str(error)) from None
        except ChangeUnknownError as error:
            raise StorageBusyError(str(error), is_unknown=True) from None
        except DatabaseError as error:
            raise StorageRefusedError(str(error), is_final=False) from None
        if sweep_before is not None:
            self._sweep(sweep_before)

    def read(self, ask: Callable[[StatsReader], T], is_patient: bool) -> T:
        def job(work: Transaction) -> T:
            work.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")  # all of it is of one moment
            _allow_time(work)
            return ask(TablesReader(work))

        try:
            with self._reading:
                return self._database.read(job)
        except DatabaseAwayError as error:
            raise UnreadableError(str(error), reason="database_away") from None
        except DatabaseError as error:
            raise UnreadableError(str(error)) from None

    def _sweep(self, before: float) -> None:
        """Rows have been written: so whatever goes wrong here waits for the next time."""
        try:
            self._database.write(lambda work: _forget(work, before, self._database.clock))
        except DatabaseError as error:
            log.debug("old stats are not forgotten yet: %s", error)


class TablesReader:
    def __init__(self, work: Transaction) -> None:
        self._work = work

    def rows(self, query: str, asked: Mapping[str, Any]) -> list[Row]:
        sql, names = _translated(query)
        return self._work.execute(sql, [asked[name] for name in names])


@lru_cache(maxsize=256)
def _translated(query: str) -> tuple[str, list[str]]:
    """The SQL, and the names of its parameters in their order."""
    sql = query.format_map(DIALECT)
    return re.sub(r":(\w+)", "%s", sql), re.findall(r":(\w+)", sql)


def insert_rows(work: Transaction, table: str, rows: Sequence[Row]) -> None:
    columns = COLUMNS[table]
    places = ", ".join(["%s"] * len(columns.split()))
    sql = f"INSERT INTO {DIALECT[table]} ({columns}) VALUES ({places})"  # noqa: S608 - our own words only
    work.execute_many(sql, rows)


def _is_next(work: Transaction, writer: str, number: int, clock: str) -> bool:
    """Whether this batch has not been written yet. Each has a higher number than the one before."""
    sql = (
        f"INSERT INTO stats_writers (id, batch, at) VALUES (%s, %s, {clock}) ON CONFLICT (id) "  # noqa: S608
        "DO UPDATE SET batch = excluded.batch, at = excluded.at WHERE stats_writers.batch < excluded.batch"
    )
    work.execute(sql, (writer, number))
    return work.row_count == 1


def _forget(work: Transaction, before: float, clock: str) -> None:
    """Forget what is too old, as one replica at a time. The calls of a run stay as long as the run."""
    if not work.execute("SELECT pg_try_advisory_xact_lock(%s)", (LockNumber.STATS_SWEEP,))[0][0]:
        return
    _allow_time(work)
    for table in (RUNS, MENUS, GAPS):
        work.execute(f"DELETE FROM {DIALECT[table]} WHERE at < %s", (before,))  # noqa: S608 - our own words only
    for table in (REPLIES, CALLS):
        work.execute(
            f"DELETE FROM {DIALECT[table]} AS old WHERE at < %s "  # noqa: S608
            "AND NOT EXISTS (SELECT 1 FROM stats_runs WHERE id = old.run)",
            (before,),
        )
    work.execute(f"DELETE FROM stats_writers WHERE at < {clock} - %s", (WRITERS_KEPT,))  # noqa: S608


def _allow_time(work: Transaction) -> None:
    work.allow(MOST_SECONDS)
