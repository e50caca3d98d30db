"""`StatsTables` keeps the stats in the PostgreSQL that replicas share; `StatsMover` moves them there, and back.

Rows have no name. So one that is there counts as moved: of equal rows, as many as there are. Rows of one moment are
always moved together, because a part of them could not be told from another part.
"""

import logging
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import BoundedSemaphore
from typing import Annotated, Any, TypeVar
from uuid import uuid4

import msgspec

from onetool.core.errors import ToolFailure
from onetool.database import ChangeUnknownError, Database, DatabaseAwayError, DatabaseError, LockNumber, Transaction
from onetool.database.moving import LeftBehind, Moved, MoveOptions
from onetool.services.stats.file import NewerFileError, insert, opened, opened_to_read, transaction
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


# Moving


MOVED_AT_ONCE = 5_000  # rows
FILE_BUSY_SECONDS = 30.0  # that we wait for others who write to the file
Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**33)]
Flag = Annotated[int, msgspec.Meta(ge=0, le=1)]
_COLUMN_TYPES = {  # what the columns of a row may hold; a file takes anything
    CALLS: tuple[Finite, str, str, str, str, str | None, Flag, str | None, str | None, Finite, Size, Size, str],
    RUNS: tuple[Finite, str, str, str, Flag, str | None, Finite, Size, Size, str],
    REPLIES: tuple[Finite, str, Size],
    MENUS: tuple[Finite, str, str, Size, Size, str],
    GAPS: tuple[Finite, str, Finite, str],
}


class StatsMover:
    """The stats, as a StoreMover."""

    def count(self, database: Database) -> int:
        """All rows."""
        sums = " + ".join(f"(SELECT count(*) FROM {DIALECT[table]})" for table in COLUMNS)  # noqa: S608 - our own words
        return database.read(lambda work: work.execute(f"SELECT {sums}")[0][0])

    def import_folder(self, home: Path, database: Database, options: MoveOptions) -> Moved:
        file = home / "stats.db"
        if not file.exists():
            return Moved()
        moved, same, left = 0, 0, list[LeftBehind]()
        try:
            with opened_to_read(file, FILE_BUSY_SECONDS) as source:
                source.set_progress_handler(None, 0)  # this may take as long as it does
                source.text_factory = _decoded
                total = sum(source.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in COLUMNS)  # noqa: S608
                for table in COLUMNS:
                    for rows in _batches(source, table):
                        bad = [(row, why) for row in rows if (why := _wrong(table, row))]
                        left += [LeftBehind(f"stats.db: a row of {table}, at {row[0]!r:.40}", why) for row, why in bad]
                        good = [row for row in rows if not _wrong(table, row)] if bad else rows
                        new = database.write(lambda work: _add_missing(work, table, good))  # noqa: B023 - run at once
                        moved, same = moved + new, same + len(good) - new
                        options.progress(moved + same + len(left), total)
        except (OSError, sqlite3.Error, NewerFileError) as error:
            left.append(LeftBehind(str(file), f"it can't be read: {error}"))
        return Moved(moved, same, tuple(left))

    def export_folder(self, database: Database, home: Path, options: MoveOptions) -> Moved:
        """Into a new file, which is made only if there are rows."""
        total, moved, file = self.count(database), 0, home / "stats.db"
        if not total:
            return Moved()
        try:
            with opened(file, FILE_BUSY_SECONDS) as target:
                for table in COLUMNS:
                    for rows in _windows(database, table):
                        with transaction(target):
                            insert(target, table, rows)
                        moved += len(rows)
                        options.progress(moved, total)
        except (OSError, sqlite3.Error, NewerFileError) as error:
            raise ToolFailure(f"{file} can't be written: {error}") from None
        return Moved(moved)


# From the file


def _batches(source: sqlite3.Connection, table: str) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in source.execute(f"SELECT {COLUMNS[table]} FROM {table} ORDER BY at"):  # noqa: S608 - our own words
        if len(batch) >= MOVED_AT_ONCE and row[0] != batch[-1][0]:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _wrong(table: str, row: Row) -> str | None:
    """Why PostgreSQL would not take a row."""
    try:
        msgspec.convert(row, _COLUMN_TYPES[table])
    except msgspec.ValidationError as error:
        return str(error)
    return (
        "it has a text with the character NUL" if any(isinstance(cell, str) and "\0" in cell for cell in row) else None
    )


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _add_missing(work: Transaction, table: str, rows: Sequence[Row]) -> int:
    """Insert those that are not there; gives how many. Two imports at a time would both find them missing."""
    if not rows:
        return 0
    work.execute("SELECT pg_advisory_xact_lock(%s)", (LockNumber.STATS_SWEEP,))
    between = f"SELECT {COLUMNS[table]} FROM {DIALECT[table]} WHERE at BETWEEN %s AND %s"  # noqa: S608 - our own words
    there = Counter(work.execute(between, (rows[0][0], rows[-1][0])))
    missing = list((Counter(rows) - there).elements())
    insert_rows(work, table, missing)
    return len(missing)


# From the database


def _windows(database: Database, table: str) -> Iterator[list[Row]]:
    """All rows, by their times. A window ends after all rows of a moment."""
    of, last = DIALECT[table], float("-inf")
    ends = f"SELECT at FROM {of} WHERE at > %s ORDER BY at OFFSET {MOVED_AT_ONCE - 1} LIMIT 1"  # noqa: S608 - our own words
    wanted = f"SELECT {COLUMNS[table]} FROM {of} WHERE at > %s AND at <= %s ORDER BY at"  # noqa: S608
    while True:
        found = database.read(lambda work: work.execute(ends, (last,)))  # noqa: B023 - run at once
        end = found[0][0] if found else float("inf")
        if rows := database.read(lambda work: work.execute(wanted, (last, end))):  # noqa: B023
            yield rows
        if not found:
            return
        last = end
