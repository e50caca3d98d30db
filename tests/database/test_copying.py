"""Copying tables between databases: nothing is lost, nothing is there twice, and rows that belong together stay so."""

from functools import partial
from pathlib import Path

import pytest

from onetool.app.database_copy import NOT_COPIED, Place, copy_state, count_stores
from onetool.config import Config
from onetool.database import copying
from onetool.database.copying import all_tables
from onetool.database.moving import LeftBehind, Moved
from onetool.database.sqlite import SqliteDatabase

TABLES = [table for table in all_tables() if table.name not in NOT_COPIED and not table.name.startswith("bundle")]


@pytest.fixture(params=["sqlite", "postgres"])
def other(request, tmp_path):
    if request.param == "sqlite":
        found = SqliteDatabase(tmp_path / "other.db")
        yield found
        found.close()
    else:
        yield request.getfixturevalue("database")


@pytest.fixture
def file(tmp_path):
    found = SqliteDatabase(tmp_path / "state.db")
    yield found
    found.close()


def fill(database, rows=3):
    """Put rows into every table; values differ from row to row, and children refer to their parents."""

    def job(work):
        for table in TABLES:
            types = {name: kind.lower() for _, name, kind, *_ in file_types(table.name)}
            for row in range(rows):
                values = [value(types[column], column, row) for column in table.columns]
                table.insert(work, [tuple(values)], row + 1)

    database.write(job)


def file_types(table):
    return copying.read_empty(lambda work: work.execute(f"PRAGMA table_info({table})"))


def value(kind, column, row):
    if kind == "boolean":
        return bool(row % 2)
    if kind in ("bigint", "integer"):
        return row
    if kind == "double precision":
        return row + 0.1
    text = f"{column} {row} ü"
    return text.encode() if kind == "bytea" else text


def rows_of(database):
    return {table.name: sorted(map(repr, database.read(partial(select, table)))) for table in TABLES}


def select(table, work):
    return table.select(work, "true")


CONFIG = Config(home=Path("absent"))


def copy(source, target, **more):
    """Return what became of each store that had something; there are no bundles."""
    places = [Place(one, Path("absent")) for one in (source, target)]
    found = copy_state(*places, CONFIG, lambda *done: None, **more)
    return {name: (done.moved, done.same, done.left) for name, done in found if done != Moved()}


def test_all_rows_go_there_and_back(file, other, tmp_path):
    fill(file)
    first = copy(file, other)
    assert {name: (moved, same) for name, (moved, same, _) in first.items()} == {
        name: (count, 0) for name, count in count_stores(file, CONFIG).items() if count
    }
    assert rows_of(other) == rows_of(file)
    assert all((moved, left) == (0, ()) for moved, _, left in copy(file, other).values())
    back = SqliteDatabase(tmp_path / "back.db")
    copy(other, back)
    assert rows_of(back) == rows_of(file)
    assert keys_of(back) == keys_of(file)
    back.close()


def keys_of(database):
    return database.read(lambda work: work.execute("SELECT key FROM audit_key"))


def test_more_rows_than_a_batch_are_copied_once(file, other, monkeypatch):
    monkeypatch.setattr(copying, "BATCH_ROWS", 3)
    sql = "INSERT INTO events (at, kind, client, ms) VALUES (%s, 'wait', 'c', %s)"
    same_time = [(5.5, 1.0)] * 7 + [(5.5, 2.0)]
    file.write(lambda work: work.execute_many(sql, [(float(at), 0.0) for at in range(10)] + same_time))
    other.write(lambda work: work.execute_many(sql, [(5.5, 1.0), (5.5, 1.0), (100.0, 1.0)]))
    assert copy(file, other) == {"journal": (16, 2, ())}
    assert copy(file, other) == {"journal": (0, 18, ())}
    assert count_stores(other, CONFIG)["journal"] == 19


def test_lines_of_the_audit_log_come_before_those_that_are_there(file, other, monkeypatch):
    monkeypatch.setattr(copying, "BATCH_ROWS", 2)
    sql = "INSERT INTO events (at, kind, what) VALUES (%s, 'admin', %s)"
    file.write(lambda work: work.execute_many(sql, [(float(at), f"old {at}") for at in range(5)]))
    other.write(lambda work: work.execute(sql, (3.0, "new")))
    before = keys_of(other)
    assert copy(file, other) == {"journal": (5, 0, ())}
    assert keys_of(other) == before  # it has hashes with this key
    lines = other.read(lambda work: work.execute("SELECT what FROM events ORDER BY number"))
    assert [line for (line,) in lines] == [*(f"old {at}" for at in range(5)), "new"]
    other.write(lambda work: work.execute(sql, (9.0, "next")))
    assert other.read(lambda work: work.execute("SELECT what FROM events ORDER BY number DESC LIMIT 1")) == [("next",)]


def session(database, *records, title="first"):
    def job(work):
        work.execute("DELETE FROM ask_sessions")
        work.execute("INSERT INTO ask_sessions VALUES ('ada', 'trip', 1, %s)", (title,))
        for number, body in enumerate(records):
            work.execute("INSERT INTO ask_messages VALUES ('ada', 'trip', %s, 'user', %s)", (number, body))

    database.write(job)


def test_what_differs_stays_whole_and_is_replaced_with_force(file, other):
    session(file, b"a", b"b", b"c")
    session(other, b"x", title="other")
    sql = "SELECT body FROM ask_messages ORDER BY number"
    left = (LeftBehind("ask_sessions ada/trip", copying.OTHER, is_conflict=True),)
    assert copy(file, other) == {"sessions": (0, 0, left)}
    assert other.read(lambda work: work.execute(sql)) == [(b"x",)]
    assert copy(file, other, force=True) == {"sessions": (1, 0, ())}
    assert other.read(lambda work: work.execute(sql)) == [(b"a",), (b"b",), (b"c",)]
    assert copy(file, other) == {"sessions": (0, 1, ())}
