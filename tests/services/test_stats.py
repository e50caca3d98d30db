"""Stats: counted, kept, shared between processes, and never in the way."""

import pytest
from services.journals import Counted
from stats_database import BOTH, place

from onetool.core.call import ToolCall, ToolError
from onetool.core.context import CallEvent
from onetool.database.sqlite import SqliteDatabase


def event(tool="a.b", ok=True, duration=1.0):
    error = None if ok else ToolError(code="execution_error", message="no")
    return CallEvent.of(call=ToolCall("1", tool, {}, "test"), duration_ms=duration, error=error)


__all__ = ["place"]


@BOTH
def test_facts_of_a_tool(place):
    stats = Counted(place, now=lambda: 1_700_000_000.0)
    for duration, ok in ((5.0, True), (1.0, True), (9.0, False), (3.0, True)):
        stats.record(event(duration=duration, ok=ok))
    stats.record(event(tool="other"))
    assert stats.facts("a.b") == {
        "calls": 4,
        "success_rate": 75.0,
        "median_ms": 4.0,
        "last_called": "2023-11-14T22:13:20+00:00",
    }
    assert stats.facts()["calls"] == 5
    assert stats.facts("never")["calls"] == 0


def test_nothing_is_written_before_there_is_something_to_write(tmp_path):
    stats = Counted(SqliteDatabase(tmp_path / "deep" / "state.db", makes_folder=True))
    assert stats.facts("a.b")["calls"] == 0
    assert stats.summary()["total_calls"] == 0
    stats.flush()
    assert not (tmp_path / "deep").exists()


def test_old_calls_are_forgotten(place):
    clock = [0.0]
    stats = Counted(place, retention_days=1, now=lambda: clock[0])
    stats.record(event())
    stats.flush()
    clock[0] = 86_401.0
    stats.record(event())
    assert stats.facts("a.b")["calls"] == 1


@BOTH
def test_any_name_can_be_counted(place):
    stats = Counted(place)
    for name in ("\udcff", "x" * 10_000, "", "naïve ☃"):
        stats.record(event(tool=name))
    assert stats.facts()["calls"] == 4


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 500])
def test_a_damaged_file_is_reported_and_loses_no_call(tmp_path, caplog, content):
    file = tmp_path / "state.db"
    file.write_bytes(content)
    file.chmod(0o600)
    stats = Counted(SqliteDatabase(file))
    stats.record(event())
    stats.flush()
    assert stats.facts("a.b")["calls"] == 0
    assert "state.db is damaged" in caplog.text
    assert (stats.health()["waiting"], stats.health()["lost"]) == (1, 0)
    file.unlink()
    assert stats.facts("a.b")["calls"] == 1
    assert stats.health() is None
