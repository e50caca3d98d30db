"""Copies tables from one database to another, whatever is behind them: `onetool db import` and `export`.

A row of a table with a key brings the rows that refer to it along, all of them or none. A table without a key, or whose
key is only a number in order, is a list ordered by `at`: rows that the target lacks are added, and of equal rows as
many as the source has.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from onetool.database.connection import Database, Params, Row, Transaction
from onetool.database.migrations import MAX_SECONDS, tables
from onetool.database.moving import LeftBehind, Moved, Progress
from onetool.database.sqlite import read_empty

BATCH_ROWS = 500
OTHER = "something else is there under this key"


class Table(NamedTuple):
    """A table, as the migrations make it. `number` is a column with numbers that the database gives out."""

    name: str
    columns: tuple[str, ...]  # without `number`, and without those that are computed
    key: tuple[str, ...]
    booleans: frozenset[int]  # places of columns: SQLite has 0 and 1 there
    number: str | None
    parent: str | None  # the table that it refers to
    refers_by: tuple[str, ...]  # columns

    def select(self, work: Transaction, where: str, params: Params = ()) -> list[Row]:
        sql = f"SELECT {', '.join(self.columns)} FROM {self.name} WHERE {where}"  # noqa: S608 - names of ours
        rows = work.execute(sql, params)
        if not self.booleans:
            return rows
        return [tuple(bool(one) if at in self.booleans else one for at, one in enumerate(row)) for row in rows]

    def select_matching(self, work: Transaction, columns: Sequence[str], values: Sequence[Row]) -> list[Row]:
        """Return the rows that have one of these values in these columns."""
        if not values:
            return []
        marks = ", ".join(_marks(columns) for _ in values)
        where = f"({', '.join(columns)}) IN (VALUES {marks}) ORDER BY {', '.join(self.key)}"
        return self.select(work, where, [one for value in values for one in value])

    def insert(self, work: Transaction, rows: Sequence[Row], first_number: int = 0) -> None:
        columns = self.columns
        if self.number is not None:
            columns = (*columns, self.number)
            rows = [(*row, number) for number, row in enumerate(rows, first_number)]
        if rows:
            work.execute_many(f"INSERT INTO {self.name} ({', '.join(columns)}) VALUES {_marks(columns)}", rows)  # noqa: S608

    def key_of(self, row: Row) -> Row:
        return tuple(row[self.columns.index(name)] for name in self.key)


def all_tables() -> list[Table]:
    """Return all tables of the migrations, parents first."""

    def describe(work: Transaction, name: str) -> Table:
        columns = work.execute(f"PRAGMA table_info({name})")  # rows: place, name, type, …, place in the key
        references = work.execute(f"PRAGMA foreign_key_list({name})")  # rows: id, place, table, column, …
        number = next((one[1] for one in columns if one[5] and one[2].lower() == "integer"), None)
        kept = [one for one in columns if one[1] != number]
        return Table(
            name,
            columns=tuple(one[1] for one in kept),
            key=tuple(one[1] for one in sorted(kept, key=lambda one: one[5]) if one[5]),
            booleans=frozenset(place for place, one in enumerate(kept) if one[2].lower() == "boolean"),
            number=number,
            parent=references[0][2] if references else None,
            refers_by=tuple(one[3] for one in sorted(references, key=lambda one: one[1])),
        )

    return read_empty(lambda work: [describe(work, name) for name in tables()])


def count_rows(database: Database, name: str) -> int:
    return database.read(lambda work: work.execute(f"SELECT count(*) FROM {name}")[0][0])  # noqa: S608 - names of ours


def copy_table(
    source: Database, target: Database, table: Table, children: Sequence[Table], *, force: bool, progress: Progress
) -> Moved:
    """Copy a table and the `children` that refer to it. With `force`, rows of the source replace others of their key.

    Each batch is a transaction, so copying can be repeated after an error.
    """
    total, done = count_rows(source, table.name), Moved()
    keyed = _copy_keyed(source, target, table, children, force) if table.key else _copy_list(source, target, table)
    for batch in keyed:
        done += batch
        count = done.moved + done.same + len(done.left)
        progress(count, max(count, total))
    return done


def _copy_keyed(
    source: Database, target: Database, table: Table, children: Sequence[Table], force: bool
) -> Iterator[Moved]:
    """Copy batches in the order of the key. A row with children is a batch of its own: it may be large."""
    names, limit = ", ".join(table.key), 1 if children else BATCH_ROWS
    where, after = "true", ()

    def read(work: Transaction) -> tuple[list[Row], list[list[Row]]]:
        work.allow(MAX_SECONDS)
        rows = table.select(work, f"{where} ORDER BY {names} LIMIT {limit}", after)
        keys = [table.key_of(row) for row in rows]
        return rows, [child.select_matching(work, child.refers_by, keys) for child in children]

    def write(work: Transaction) -> Moved:
        work.allow(MAX_SECONDS)
        found = {table.key_of(row): row for row in rows}
        there = {table.key_of(row): row for row in table.select_matching(work, table.key, list(found))}
        differing = [key for key, row in there.items() if row != found[key]]
        new = [row for key, row in found.items() if key not in there or (force and key in differing)]
        if force and differing:
            equal = " AND ".join(f"{name} = %s" for name in table.key)
            work.execute_many(f"DELETE FROM {table.name} WHERE {equal}", differing)  # noqa: S608 - names of ours
        table.insert(work, new)
        for child, belonging in zip(children, of_rows, strict=True):
            child.insert(work, belonging if new else [])
        left = (
            [] if force else [LeftBehind(f"{table.name} {'/'.join(map(str, key))}", OTHER, True) for key in differing]
        )
        return Moved(len(new), len(rows) - len(new) - len(left), tuple(left))

    while True:
        rows, of_rows = source.read(read, snapshot=True)
        if not rows:
            return
        yield target.write(write, durable=True)
        where, after = f"({names}) > {_marks(table.key)}", table.key_of(rows[-1])


def _copy_list(source: Database, target: Database, table: Table) -> Iterator[Moved]:
    """Copy batches from the newest to the oldest. Their numbers are below all that the target has."""
    place, before = table.columns.index("at"), float("inf")
    order = f"at DESC, {table.number} DESC" if table.number else "at DESC"

    def read(work: Transaction) -> list[Row]:
        """Return all rows of each time, so that equal ones are counted together."""
        work.allow(MAX_SECONDS)
        rows = table.select(work, f"at < %s ORDER BY {order} LIMIT {BATCH_ROWS}", (before,))
        if len(rows) < BATCH_ROWS:
            return rows
        oldest = rows[-1][place]
        whole = [row for row in rows if row[place] > oldest]
        return whole + table.select(work, f"at = %s ORDER BY {order}", (oldest,))

    def write(work: Transaction) -> Moved:
        work.allow(MAX_SECONDS)
        there = Counter(table.select(work, "at BETWEEN %s AND %s", (rows[-1][place], rows[0][place])))
        new = list[Row]()
        for row in reversed(rows):
            if there[row] > 0:
                there[row] -= 1
            else:
                new.append(row)
        first = 1
        if table.number:
            first = work.execute(f"SELECT coalesce(min({table.number}), 1) FROM {table.name}")[0][0]  # noqa: S608
        table.insert(work, new, first - len(new))
        return Moved(len(new), len(rows) - len(new))

    while rows := source.read(read, snapshot=True):
        yield target.write(write, durable=True)
        before = rows[-1][place]


def _marks(columns: Sequence[str]) -> str:
    return f"({', '.join(['%s'] * len(columns))})"
