"""Stats move between the file of a home and a database, both ways, and lose nothing."""

import sqlite3
from contextlib import closing

import pytest
from stats_place import asked

from onetool.core.call import ToolCall, ToolError
from onetool.core.context import CallEvent, RunEvent
from onetool.database.moving import MoveOptions
from onetool.services.stats import UsageStats
from onetool.services.stats.storage import COLUMNS
from onetool.services.stats.tables import StatsMover

NOW = 1_700_049_600.0
HOW = MoveOptions()


def fill(place, times=3):
    """Rows of all kinds; several of one moment are equal."""
    clock = [NOW]
    stats = UsageStats(place, 10_000, now=lambda: clock[0])
    error = ToolError(code="execution_error", message="no", reason="timeout")
    for number in range(times):
        clock[0] += number // 2 + 0.123456789
        for wrong in (None, None, error):
            stats.record(CallEvent(call=ToolCall("1", "a.b"), duration_ms=1.1, run=f"r{number}", error=wrong))
        stats.record_run(RunEvent(id=f"r{number}", door="mcp", client="c", duration_ms=1.0, code_bytes=9, calls=3))
        stats.record_reply(f"r{number}", 40)
        stats.record_menu("c", "mcp", 4000, 400, "ada")
        stats.record_gap("c", 1.5, "ada")
    stats.flush()


def everything(place):
    return {table: sorted(asked(place, f"SELECT {of} FROM {{{table}}}"), key=repr) for table, of in COLUMNS.items()}


def test_there_and_back_again_every_row_is_there(tmp_path, database, monkeypatch):
    monkeypatch.setattr("onetool.services.stats.tables.MOVED_AT_ONCE", 4)
    fill(tmp_path / "stats.db")
    told = []
    found = StatsMover().import_folder(
        tmp_path, database, MoveOptions(progress=lambda done, total: told.append((done, total)))
    )
    assert (found.moved, found.same, found.left) == (21, 0, ())
    assert (told[-1], StatsMover().count(database)) == ((21, 21), 21)
    (tmp_path / "back").mkdir()
    assert StatsMover().export_folder(database, tmp_path / "back", HOW).moved == 21
    assert everything(tmp_path / "stats.db") == everything(database) == everything(tmp_path / "back" / "stats.db")
    old, new = (UsageStats(place, now=lambda: NOW + 9).summary() for place in (tmp_path / "stats.db", database))
    assert old == new


def test_a_second_import_changes_nothing_and_what_came_meanwhile_is_added(tmp_path, database):
    fill(tmp_path / "stats.db")
    StatsMover().import_folder(tmp_path, database, HOW)
    before = everything(database)
    again = StatsMover().import_folder(tmp_path, database, HOW)
    assert (again.moved, again.same) == (0, 21)
    assert everything(database) == before
    fill(tmp_path / "stats.db", 1)  # the same moment: equal rows
    assert StatsMover().import_folder(tmp_path, database, HOW).moved == 7


def test_rows_of_others_stay(tmp_path, database):
    fill(tmp_path / "stats.db", 1)
    fill(database, 2)
    assert StatsMover().import_folder(tmp_path, database, HOW).moved == 0  # the first of the two are these
    stats = UsageStats(database, now=lambda: NOW)
    stats.record(CallEvent(call=ToolCall("1", "other"), duration_ms=1.0))
    stats.flush()
    assert StatsMover().import_folder(tmp_path, database, HOW).same == 7
    assert StatsMover().count(database) == 15


def test_rows_that_hold_anything_are_told(tmp_path, database):
    fill(tmp_path / "stats.db", 1)
    with closing(sqlite3.connect(tmp_path / "stats.db")) as source, source:
        source.execute("UPDATE menus SET full_bytes = 'many'")
        source.execute("UPDATE runs SET id = 'a' || char(0)")
    source.close()
    found = StatsMover().import_folder(tmp_path, database, HOW)
    assert (found.moved, len(found.left)) == (5, 2)
    assert [one.what.partition(",")[0] for one in found.left] == ["stats.db: a row of runs", "stats.db: a row of menus"]
    assert "Expected `int`, got `str`" in found.left[1].why


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 500])
def test_a_file_that_cannot_be_read_is_told(tmp_path, database, content):
    (tmp_path / "stats.db").write_bytes(content)
    found = StatsMover().import_folder(tmp_path, database, HOW)
    assert found.moved == 0
    assert found.left[0].what == str(tmp_path / "stats.db")
    assert "it can't be read: " in found.left[0].why


def test_where_there_is_nothing_nothing_is_made(tmp_path, database):
    assert StatsMover().import_folder(tmp_path, database, HOW).moved == 0
    assert StatsMover().export_folder(database, tmp_path, HOW).moved == 0
    assert list(tmp_path.iterdir()) == []
