"""Stats in `state.db`: a newer file, one that can't be written; shared by processes, some of which are killed."""

import gc
import logging
import os
import signal
import sqlite3
import stat
import subprocess
import sys

import pytest
from helpers import until
from services.journals import Counted
from stats_database import asked, place

from onetool.core.call import ToolCall
from onetool.core.context import CallEvent, RunEvent
from onetool.core.errors import ToolFailure
from onetool.database.sqlite import SqliteDatabase
from onetool.services.journal.recorder import Recorder
from onetool.services.journal.table import EventTable

__all__ = ["place"]

TIMEOUT = 60
BUSY = """
import sys, time
from pathlib import Path
from onetool.core.call import ToolCall
from onetool.core.context import CallEvent, RunEvent
from onetool.database.sqlite import SqliteDatabase
from onetool.services.journal import Journal
from onetool.services.journal.recorder import Recorder
stats = Journal(SqliteDatabase(Path(sys.argv[1])))
number = 0
def more():
    global number
    number += 1
    stats.add(CallEvent.of(call=ToolCall("1", "a.b"), duration_ms=1.0, run=f"{sys.argv[2]}-{number}"))
    stats.add(RunEvent(id=f"{sys.argv[2]}-{number}", source="x", duration_ms=1.0, code_bytes=1, calls=1))
    stats.record_reply(f"{sys.argv[2]}-{number}", 4)
"""


def event(tool="a.b"):
    return CallEvent.of(call=ToolCall("1", tool, {}, "test"), duration_ms=1.0)


def tools(place):
    return [tool for (tool,) in asked(place, "SELECT tool FROM events ORDER BY at")]


@pytest.fixture
def started(place):
    """Start processes that count calls. A test that fails leaves none behind."""
    running = []

    def start(code, name=1):
        command = [sys.executable, "-c", BUSY + code, str(place.file), str(name)]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return running[-1]

    yield start
    for process in running:
        with process:
            process.kill()


@pytest.fixture
def holder(place):
    """A connection that locks the file until it is rolled back."""
    place.write(lambda work: None)
    connection = sqlite3.connect(place.file)
    connection.execute("BEGIN EXCLUSIVE")
    yield connection
    connection.close()


@pytest.mark.skipif(os.name != "posix", reason="there are no modes")
def test_the_file_is_for_its_owner_alone(place, tmp_path):
    stats = Counted(place)
    stats.record(event())
    stats.flush()
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("state.db*")} == {0o600}


@pytest.mark.long
def test_many_processes_write_and_one_reads(place, started):
    code = "for _ in range(200):\n    more()\n    if number % 20 == 0: stats.flush()\nstats.flush()\n"
    processes = [started(code, number) for number in range(8)]
    stats, seen = Counted(place), [0]
    while any(process.poll() is None for process in processes):
        seen.append(stats.summary()["total_calls"])
    summary = stats.summary()
    assert [process.returncode for process in processes] == [0] * 8
    assert seen == sorted(seen)
    assert (summary["total_calls"], summary["runs"], summary["calls_in_runs"]) == (1600, 1600, 1600)


def test_a_newer_file_is_left_alone_and_reported_once(place, caplog):
    with sqlite3.connect(place.file) as database:
        database.executescript("CREATE TABLE events (what TEXT); PRAGMA user_version = 99")
    database.close()
    stats = Counted(place)
    for _ in range(3):
        stats.record(event())
        stats.flush()
        assert stats.facts()["calls"] == 0
        with pytest.raises(ToolFailure, match="schema 99"):
            stats.summary()
    with sqlite3.connect(place.file) as database:
        assert database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)
    database.close()
    (warning,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert "schema 99" in warning
    assert stats.health()["status"] == "degraded"


def test_rows_are_written_after_a_while_by_themselves(place, monkeypatch):
    monkeypatch.setattr("onetool.services.journal.GATHER_S", 0.01)
    recorder = Recorder()
    stats = Counted(place, recorder=recorder)
    recorder.put(stats.record, event())
    until(lambda: tools(place) == ["a.b"], 20)


def test_rows_are_written_at_the_end_of_the_process(place, started):
    assert started("more()").wait(TIMEOUT) == 0
    assert Counted(place).summary()["total_calls"] == 1


def test_a_killed_process_loses_only_what_waited(place, started):
    process = started(
        "for _ in range(50): more()\nstats.flush()\nprint('written', flush=True)\nmore()\ntime.sleep(60)\n"
    )
    assert process.stdout.readline() == "written\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait(TIMEOUT)
    assert Counted(place).summary()["total_calls"] in (50, 51)  # the last one may have made it


def test_a_process_killed_while_writing_leaves_a_file_that_can_be_used(place, started):
    code = "while True:\n    for _ in range(200): more()\n    print('full', flush=True)\n    stats.flush()\n"
    for batches in (1, 2, 4):
        process = started(code, batches)
        for _ in range(batches):
            assert process.stdout.readline() == "full\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait(TIMEOUT)
        summary = Counted(place).summary()
        assert summary["total_calls"] == summary["runs"]  # all or nothing of a batch
        assert summary["total_calls"] % 200 == 0
    assert place.read(lambda work: work.execute("PRAGMA integrity_check")) == [("ok",)]


def test_a_place_where_no_file_can_be(tmp_path, caplog):
    (tmp_path / "home").write_text("not a folder")
    stats = Counted(SqliteDatabase(tmp_path / "home" / "state.db", makes_folder=True))
    for _ in range(3):
        stats.record(event())
        stats.flush()
    assert stats.summary()["total_calls"] == 0
    assert (stats.health()["waiting"], stats.health()["lost"]) == (3, 0)
    assert caplog.text.count("the journal can't be written") == 1


def test_a_full_disk_loses_nothing_that_fits_into_memory(place, monkeypatch):
    stats = Counted(place)
    stats.record(event("before"))
    stats.flush()
    place.close()
    connect = place._connect

    def connect_to_full_disk():
        connection = connect()
        connection.execute("PRAGMA max_page_count = 1")  # as many as there are
        return connection

    with monkeypatch.context() as full:
        full.setattr(place, "_connect", connect_to_full_disk)
        for number in range(2_000):
            stats.record(event(f"t{number:04}"))
        stats.flush()
        health = stats.health()
        assert (health["waiting"], health["lost"]) == (2_000, 0)
        assert "full" in health["problem"]
        place.close()
    stats.flush()
    assert stats.health() is None
    assert tools(place) == ["before", *(f"t{number:04}" for number in range(2_000))]


def test_a_file_that_is_held_for_long_loses_only_the_newest(place, holder, monkeypatch):
    monkeypatch.setattr("onetool.services.journal.MAX_WAITING", 50)
    monkeypatch.setattr(EventTable.append, "__defaults__", (0.1,))
    stats = Counted(place)
    for number in range(80):
        stats.record(event(f"t{number}"))  # waits for nothing
    stats.flush()
    assert "locked by another process" in stats.health()["problem"]
    holder.rollback()
    stats.flush()
    assert tools(place) == [f"t{number}" for number in range(50)]


def test_what_has_been_written_can_be_read_while_the_file_is_held(place):
    stats = Counted(place)
    stats.record(event())
    stats.flush()
    other = sqlite3.connect(place.file)
    other.execute("BEGIN IMMEDIATE")
    assert stats.summary()["total_calls"] == 1
    other.close()


def test_rows_that_are_never_written_are_reported_at_the_end(place, holder, caplog, monkeypatch):
    monkeypatch.setattr(EventTable.append, "__defaults__", (0.05,))
    stats = Counted(place)
    stats.record(event())
    stats.close()
    assert "lost 1 events of the journal" in caplog.text
    assert "locked by another process" in caplog.text


def test_everything_is_forgotten_in_time(place, monkeypatch):
    monkeypatch.setattr("onetool.services.journal.table.MAX_SWEPT", 2)
    clock = [0.0]
    stats = Counted(place, retention_days=1, now=lambda: clock[0])
    for _ in range(4):
        stats.record(event())  # at the same moment: more than are removed at once
    for clock[0] in (1.0, 2.0, 3.0, 4.0, 5.0):
        stats.record(event())
    stats.record_menu("c", "mcp", 4, 4)
    stats.record_gap("c", 1.0)
    stats.record_reply("r", 4)
    clock[0] = 10.0
    stats.record_run(RunEvent(id="r", source="mcp", duration_ms=1.0, code_bytes=1, calls=1))
    stats.flush()
    clock[0] = 86_409.0
    stats.record(event("new"))
    stats.flush()
    assert asked(place, "SELECT kind, tool FROM events ORDER BY at") == [("run", None), ("call", "new")]
    clock[0] += 86_409.0
    stats.record(event("newer"))
    stats.flush()
    assert tools(place) == ["newer"]


def test_stats_that_nobody_holds_are_not_held_by_their_recorder(tmp_path):
    recorder = Recorder()
    stats = Counted(SqliteDatabase(tmp_path / "state.db"), recorder=recorder)
    assert len(recorder.writers) == 1
    del stats
    gc.collect()
    assert recorder.writers == []
