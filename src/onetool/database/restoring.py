"""Copies what can be read of a damaged SQLite file into a new one, for `onetool db restore`."""

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import msgspec

from onetool.core.os_files import SQLITE_ENDS, private, sync_folder
from onetool.database.connection import Transaction
from onetool.database.migrations import tables
from onetool.database.sqlite import SqliteDatabase, read_empty

MAX_ROWID = 2**62  # of a table whose last row can't be read
DOCUMENTS = "documents"
KEYED = ("counters", "onetool_migrations")  # tables that may lack some of their first rows
Kinds = Counter[str]


class Restored(msgspec.Struct, frozen=True):
    """The number of saved and lost rows of one kind. `lost` is None if nobody can tell how many there were."""

    kind: str
    saved: int
    lost: int | None


def is_sound(file: Path) -> bool:
    """Return whether SQLite finds no damage in a file."""
    try:
        with closing(_open(file)) as connection:
            return connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    except sqlite3.DatabaseError:
        return False


def restore(file: Path) -> tuple[Path, list[Restored]]:
    """Replace a file by a new one with all rows that can be read. Return where the old one is, and what was saved.

    Raises DatabaseError, OSError.
    """
    new = file.with_name(f"{file.name}.new-{os.getpid()}")
    os.close(private(new, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    try:
        found = _copy(file, new)
        with closing(SqliteDatabase(new)) as database:
            database.require()  # creates the tables, or runs the missing migrations
            database.write(_add_first_rows)
            database.shrink()
        kept = set_aside(file)
        os.rename(new, file)
        sync_folder(file.parent)
    finally:
        for suffix in ("", *SQLITE_ENDS):
            Path(f"{new}{suffix}").unlink(missing_ok=True)
    return kept, found


def _add_first_rows(work: Transaction) -> None:
    """Add the rows that every database has from its migrations, such as counters, where they are lost."""
    for table in tables():
        rows = read_empty(lambda empty, table=table: empty.execute(f"SELECT * FROM {table}"))  # noqa: S608 - ours
        if rows and (table in KEYED or not work.execute(f"SELECT 1 FROM {table} LIMIT 1")):  # noqa: S608 - ours
            work.execute_many(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join(['%s'] * len(rows[0]))})", rows)  # noqa: S608


def set_aside(file: Path) -> Path:
    """Rename a file and its logs. Return the new name. Raises OSError."""
    name = f"{file.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    kept = next(path for path in map(file.with_name, names) if not os.path.lexists(path))
    for suffix in (*SQLITE_ENDS, ""):
        with suppress(FileNotFoundError):
            os.rename(f"{file}{suffix}", f"{kept}{suffix}")
    sync_folder(file.parent)
    return kept


def _open(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _copy(file: Path, new: Path) -> list[Restored]:
    """Copy the tables as they are, and what can be read of them."""
    found: list[Restored] = []
    with closing(_open(file)) as old, closing(sqlite3.connect(new, isolation_level=None)) as target:
        try:
            [(version,)] = old.execute("PRAGMA user_version")
            schema = old.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        except sqlite3.DatabaseError:
            return []
        tables = [(name, sql) for type, name, sql in schema if type == "table" and not name.startswith("sqlite_")]
        target.execute("PRAGMA auto_vacuum = INCREMENTAL")
        target.execute("BEGIN")
        totals: dict[str, Kinds | None] = {}
        for name, sql in tables:
            target.execute(sql)
            totals[name] = _count(old, name)
            _copy_table(old, target, name)
        for table, rowid, *_ in target.execute("PRAGMA foreign_key_check").fetchall():  # the row it belongs to is lost
            target.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))  # noqa: S608 - a name of the schema
        for type, _, sql in schema:
            if type == "index":
                target.execute(sql)
        for name, total in totals.items():
            saved = _count(target, name) or Counter()
            found += [
                Restored(kind, saved[kind], None if total is None else max(0, total[kind] - saved[kind]))
                for kind in sorted({*saved, *(total or [name])})
            ]
        target.execute(f"PRAGMA user_version = {int(version)}")
        target.execute("COMMIT")
    return [one for one in found if one.saved or one.lost != 0]


def _count(connection: sqlite3.Connection, table: str) -> Kinds | None:
    """Count the rows of a table, and documents by their kind. None if it can't be read, not even by an index."""
    sql = f"SELECT '{table}', count(*) FROM {table}"  # noqa: S608 - a name of the schema
    if table == DOCUMENTS:
        sql = "SELECT kind, count(*) FROM documents GROUP BY kind ORDER BY kind"
    try:
        return Counter(dict(connection.execute(sql).fetchall()))
    except sqlite3.DatabaseError:
        return None


def _copy_table(old: sqlite3.Connection, target: sqlite3.Connection, table: str) -> None:
    columns = [row[1] for row in target.execute(f"PRAGMA table_info({table})")]
    try:
        [(last,)] = old.execute(f"SELECT max(rowid) FROM {table}")  # noqa: S608 - a name of the schema
    except sqlite3.DatabaseError:
        last = MAX_ROWID
    if last is None:
        return
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    insert = f"INSERT OR IGNORE INTO {table} (rowid, {names}) VALUES (?, {marks})"  # noqa: S608
    for row in _readable(old, f"SELECT rowid, {names} FROM {table} WHERE rowid BETWEEN ? AND ?", last):  # noqa: S608
        target.execute(insert, row)


def _readable(old: sqlite3.Connection, sql: str, last: int) -> Iterator[tuple[object, ...]]:
    """Yield the rows that can be read, some of them twice: of each range with damage, also those of its halves.

    After many rows that can't be read, larger ranges are not halved but read from both ends: the rows of a table whose
    first page is damaged can't be tried one by one.
    """
    missed, ranges = 0, [(0, last)]
    while ranges:
        start, end = ranges.pop()
        try:
            for row in old.execute(sql, (start, end)):
                missed = 0
                yield row
        except sqlite3.DatabaseError:
            middle = (start + end) // 2
            if end - start > missed // 4:
                ranges += [(middle + 1, end), (start, middle)]
                continue
            missed += end - start + 1
            with suppress(sqlite3.DatabaseError):
                for row in old.execute(f"{sql} ORDER BY rowid DESC", (start, end)):
                    missed = 0
                    yield row
