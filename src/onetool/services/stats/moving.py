"""Moves the stats between the file of a home and a database.

Rows have no name. So one that is there counts as moved: of equal rows, as many as there are. Rows of one moment are
always moved together, because a part of them could not be told from another part.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from onetool.core.errors import ToolFailure
from onetool.database import Database, LockNumber, Transaction
from onetool.database.moving import LeftBehind, Moved, MoveOptions
from onetool.services.stats.file import NewerFileError, insert, opened, opened_to_read, transaction
from onetool.services.stats.storage import CALLS, COLUMNS, GAPS, MENUS, REPLIES, RUNS, Row
from onetool.services.stats.tables import DIALECT, insert_rows

AT_ONCE = 5_000  # rows
BUSY_SECONDS = 30.0  # that we wait for others who write to the file
Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**33)]
Flag = Annotated[int, msgspec.Meta(ge=0, le=1)]
_TYPES = {  # what the columns of a row may hold; a file takes anything
    CALLS: tuple[Finite, str, str, str, str, str | None, Flag, str | None, str | None, Finite, Size, Size, str],
    RUNS: tuple[Finite, str, str, str, Flag, str | None, Finite, Size, Size, str],
    REPLIES: tuple[Finite, str, Size],
    MENUS: tuple[Finite, str, str, Size, Size, str],
    GAPS: tuple[Finite, str, Finite, str],
}


def count(database: Database) -> int:
    """All rows."""
    sums = " + ".join(f"(SELECT count(*) FROM {DIALECT[table]})" for table in COLUMNS)  # noqa: S608 - our own words
    return database.read(lambda work: work.execute(f"SELECT {sums}")[0][0])


def import_folder(home: Path, database: Database, options: MoveOptions) -> Moved:
    file = home / "stats.db"
    if not file.exists():
        return Moved()
    moved, same, left = 0, 0, list[LeftBehind]()
    try:
        with opened_to_read(file, BUSY_SECONDS) as source:
            source.set_progress_handler(None, 0)  # this may take as long as it does
            source.text_factory = _text
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


def export_folder(database: Database, home: Path, options: MoveOptions) -> Moved:
    """Into a new file, which is made only if there are rows."""
    total, moved, file = count(database), 0, home / "stats.db"
    if not total:
        return Moved()
    try:
        with opened(file, BUSY_SECONDS) as target:
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
        if len(batch) >= AT_ONCE and row[0] != batch[-1][0]:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _wrong(table: str, row: Row) -> str | None:
    """Why PostgreSQL would not take a row."""
    try:
        msgspec.convert(row, _TYPES[table])
    except msgspec.ValidationError as error:
        return str(error)
    return (
        "it has a text with the character NUL" if any(isinstance(cell, str) and "\0" in cell for cell in row) else None
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _add_missing(work: Transaction, table: str, rows: Sequence[Row]) -> int:
    """Insert those that are not there; gives how many. Two imports at a time would both find them missing."""
    if not rows:
        return 0
    work.execute("SELECT pg_advisory_xact_lock(%s)", (LockNumber.STATS_IMPORT,))
    between = f"SELECT {COLUMNS[table]} FROM {DIALECT[table]} WHERE at BETWEEN %s AND %s"  # noqa: S608 - our own words
    there = Counter(work.execute(between, (rows[0][0], rows[-1][0])))
    missing = list((Counter(rows) - there).elements())
    insert_rows(work, table, missing)
    return len(missing)


# From the database


def _windows(database: Database, table: str) -> Iterator[list[Row]]:
    """All rows, by their times. A window ends after all rows of a moment."""
    of, last = DIALECT[table], float("-inf")
    ends = f"SELECT at FROM {of} WHERE at > %s ORDER BY at OFFSET {AT_ONCE - 1} LIMIT 1"  # noqa: S608 - our own words
    wanted = f"SELECT {COLUMNS[table]} FROM {of} WHERE at > %s AND at <= %s ORDER BY at"  # noqa: S608
    while True:
        found = database.read(lambda work: work.execute(ends, (last,)))  # noqa: B023 - run at once
        end = found[0][0] if found else float("inf")
        if rows := database.read(lambda work: work.execute(wanted, (last, end))):  # noqa: B023
            yield rows
        if not found:
            return
        last = end
