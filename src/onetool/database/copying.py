"""Copies tables between databases, SQLite or PostgreSQL, for `onetool db import` and `export`. A row of a table with a
key is copied together with the rows that refer to it, or not at all.

A table without a key, or with an automatic number as its key, is a list ordered by `at`: missing rows are added until
the target has as many equal rows as the source.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import NamedTuple

from onetool.database.connection import Database, Params, Row, Transaction
from onetool.database.migrations import MAX_SECONDS, tables
from onetool.database.moving import LeftBehind, Moved, Progress
from onetool.database.sqlite import read_empty

BATCH_ROWS = 500
OTHER = "this key already exists with different content"
DAMAGED = "it is damaged"
TYPES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "bigint": (int,),
    "integer": (int,),
    "double precision": (float, int),
    "bytea": (bytes,),
    "text": (str,),
}


class Table(NamedTuple):
    """A table created by the migrations. `number` is the column with automatic numbers, if any."""

    name: str
    columns: tuple[str, ...]  # without `number` and computed ones
    key: tuple[str, ...]
    types: tuple[tuple[type, ...], ...]  # by column
    number: str | None
    parent: str | None  # the referenced table
    refers_by: tuple[str, ...]  # the referring columns

    def select(self, work: Transaction, where: str, params: Params = ()) -> list[Row]:
        sql = f"SELECT {', '.join(self.columns)} FROM {self.name} WHERE {where}"  # noqa: S608 - names of ours
        rows = work.execute(sql, params)
        if not any(bool in types for types in self.types):
            return rows
        # SQLite stores booleans as 0 and 1
        return [
            tuple(bool(one) if bool in types else one for one, types in zip(row, self.types, strict=True))
            for row in rows
        ]

    def select_matching(self, work: Transaction, columns: Sequence[str], values: Sequence[Row]) -> list[Row]:
        """Return the rows with one of these values in these columns."""
        if not values:
            return []
        marks = ", ".join(_marks(columns) for _ in values)
        where = f"({', '.join(columns)}) IN (VALUES {marks}) ORDER BY {', '.join(self.key)}"
        return self.select(work, where, [value for value in values for value in value])

    def insert(self, work: Transaction, rows: Sequence[Row], first_number: int = 0) -> None:
        columns = self.columns
        if self.number is not None:
            columns = (*columns, self.number)
            rows = [(*row, number) for number, row in enumerate(rows, first_number)]
        if rows:
            work.execute_many(f"INSERT INTO {self.name} ({', '.join(columns)}) VALUES {_marks(columns)}", rows)  # noqa: S608

    def is_sound(self, row: Row) -> bool:
        """Return whether all values have the types of their columns: SQLite stores values of any type."""
        return all(isinstance(value, types) for value, types in zip(row, self.types, strict=True))

    def key_of(self, row: Row) -> Row:
        return tuple(row[self.columns.index(name)] for name in self.key)

    def describe(self, row: Row) -> str:
        return f"{self.name} {'/'.join(map(str, self.key_of(row)))}"


def all_tables() -> list[Table]:
    """Return all tables created by the migrations, parents first."""

    def describe(work: Transaction, name: str) -> Table:
        columns = work.execute(f"PRAGMA table_info({name})")  # rows: index, name, type, NOT NULL, …, in the key
        references = work.execute(f"PRAGMA foreign_key_list({name})")  # rows: id, index, table, column, …
        number = next((column[1] for column in columns if column[5] and column[2].lower() == "integer"), None)
        own = [column for column in columns if column[1] != number]
        return Table(
            name,
            columns=tuple(column[1] for column in own),
            key=tuple(column[1] for column in sorted(own, key=lambda column: column[5]) if column[5]),
            types=tuple(TYPES[column[2].lower()] + (() if column[3] or column[5] else (NoneType,)) for column in own),
            number=number,
            parent=references[0][2] if references else None,
            refers_by=tuple(column[3] for column in sorted(references, key=lambda column: column[1])),
        )

    return read_empty(lambda work: [describe(work, name) for name in tables()])


def count_rows(database: Database, name: str) -> int:
    return database.read(lambda work: work.execute(f"SELECT count(*) FROM {name}")[0][0])  # noqa: S608 - names of ours


def copy_table(
    source: Database, target: Database, table: Table, children: Sequence[Table], *, force: bool, progress: Progress
) -> Moved:
    """Copy a table and the `children` that refer to it. With `force`, rows of the source replace those of the target.

    Each batch is a transaction, so copying can be repeated after an error.
    """
    total, done = count_rows(source, table.name), Moved()
    batches = _copy_keyed(source, target, table, children, force) if table.key else _copy_list(source, target, table)
    for batch in batches:
        done += batch
        count = done.moved + done.same + len(done.left)
        progress(count, max(count, total))
    return done


def _copy_keyed(
    source: Database, target: Database, table: Table, children: Sequence[Table], force: bool
) -> Iterator[Moved]:
    """Copy batches in key order. A row with children is a batch of its own, because it may be large."""
    names, limit = ", ".join(table.key), 1 if children else BATCH_ROWS
    where, after = "true", ()

    def read(work: Transaction) -> tuple[list[Row], list[list[Row]]]:
        work.allow(MAX_SECONDS)
        rows = table.select(work, f"{where} ORDER BY {names} LIMIT {limit}", after)
        keys = [table.key_of(row) for row in rows]
        return rows, [child.select_matching(work, child.refers_by, keys) for child in children]

    def write(work: Transaction) -> Moved:
        work.allow(MAX_SECONDS)
        sound = [row for row in rows if table.is_sound(row)]
        if not all(child.is_sound(row) for child, own in zip(children, child_rows, strict=True) for row in own):
            sound = []  # their parent row
        by_key = {table.key_of(row): row for row in sound}
        existing = {table.key_of(row): row for row in table.select_matching(work, table.key, list(by_key))}
        differing = [key for key, row in existing.items() if row != by_key[key]]
        new = [row for key, row in by_key.items() if key not in existing or (force and key in differing)]
        if force and differing:
            equal = " AND ".join(f"{name} = %s" for name in table.key)
            work.execute_many(f"DELETE FROM {table.name} WHERE {equal}", differing)  # noqa: S608 - names of ours
        table.insert(work, new)
        for child, own in zip(children, child_rows, strict=True):
            child.insert(work, own if new else [])
        left = [LeftBehind(table.describe(row), DAMAGED) for row in rows if row not in sound]
        same = len(sound) - len(new)
        if not force:
            left += [LeftBehind(table.describe(by_key[key]), OTHER, True) for key in differing]
            same -= len(differing)
        return Moved(len(new), same, tuple(left))

    while True:
        rows, child_rows = source.read(read, snapshot=True)
        if not rows:
            return
        yield target.write(write, durable=True)
        where, after = f"({names}) > {_marks(table.key)}", table.key_of(rows[-1])


def _copy_list(source: Database, target: Database, table: Table) -> Iterator[Moved]:
    """Copy batches from newest to oldest. They get lower numbers than all rows of the target."""
    place, before = table.columns.index("at"), float("inf")
    order = f"at DESC, {table.number} DESC" if table.number else "at DESC"

    def read(work: Transaction) -> list[Row]:
        """Return a batch with all rows of its oldest time, so that equal rows are counted together."""
        work.allow(MAX_SECONDS)
        rows = table.select(work, f"at < %s ORDER BY {order} LIMIT {BATCH_ROWS}", (before,))
        if len(rows) < BATCH_ROWS:
            return rows
        oldest = rows[-1][place]
        whole = [row for row in rows if row[place] > oldest]
        return whole + table.select(work, f"at = %s ORDER BY {order}", (oldest,))

    def write(work: Transaction) -> Moved:
        work.allow(MAX_SECONDS)
        existing = Counter(table.select(work, "at BETWEEN %s AND %s", (rows[-1][place], rows[0][place])))
        new, left = list[Row](), list[LeftBehind]()
        for row in reversed(rows):
            if not table.is_sound(row):
                left.append(LeftBehind(f"{table.name} at {row[place]}", DAMAGED))
            elif existing[row] > 0:
                existing[row] -= 1
            else:
                new.append(row)
        first = 1
        if table.number:
            first = work.execute(f"SELECT coalesce(min({table.number}), 1) FROM {table.name}")[0][0]  # noqa: S608
        table.insert(work, new, first - len(new))
        return Moved(len(new), len(rows) - len(new) - len(left), tuple(left))

    while rows := source.read(read, snapshot=True):
        yield target.write(write, durable=True)
        before = rows[-1][place]


def _marks(columns: Sequence[str]) -> str:
    return f"({', '.join(['%s'] * len(columns))})"
