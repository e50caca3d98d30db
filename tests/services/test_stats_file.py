"""The file: an older one, a newer one, one that can't be written; shared by processes, some of which are killed."""

import logging
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time

import pytest
from helpers import until

from onetool.core.call import ToolCall
from onetool.core.context import CallEvent, RunEvent
from onetool.core.errors import ToolFailure
from onetool.services.stats import UsageStats
from onetool.services.stats.writer import GATHER_SECONDS

PATIENCE = 60
FIRST = """
CREATE TABLE calls (
    at REAL NOT NULL, tool TEXT NOT NULL, source TEXT NOT NULL,
    ok INTEGER NOT NULL, code TEXT, duration_ms REAL NOT NULL
);
CREATE INDEX calls_by_tool ON calls (tool, at);
"""
BUSY = """
import sys, time
from pathlib import Path
from onetool.core.call import ToolCall
from onetool.core.context import CallEvent, RunEvent
from onetool.services.stats import UsageStats as Stats
stats = Stats(Path(sys.argv[1]))
number = 0
def more():
    global number
    number += 1
    stats.record(CallEvent(call=ToolCall("1", "a.b"), duration_ms=1.0, run=f"{sys.argv[2]}-{number}"))
    stats.record_run(RunEvent(id=f"{sys.argv[2]}-{number}", door="x", duration_ms=1.0, code_bytes=1, calls=1))
    stats.record_reply(f"{sys.argv[2]}-{number}", 4)
"""


def event(tool="a.b"):
    return CallEvent(call=ToolCall("1", tool, {}, "test"), duration_ms=1.0)


def asked(file, question):
    database = sqlite3.connect(file, timeout=PATIENCE)
    try:
        return database.execute(question).fetchall()
    finally:
        database.close()


RUNNING = []


def started(code, *args):
    command = [sys.executable, "-c", BUSY + code, *map(str, args)]
    RUNNING.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    return RUNNING[-1]


@pytest.fixture(autouse=True)
def nobody_stays():
    """A test that fails leaves no process behind, which another test would be blamed for."""
    yield
    while RUNNING:
        with RUNNING.pop() as process:
            process.kill()


def first_file(file, rows=3):
    database = sqlite3.connect(file)
    database.executescript(FIRST)
    database.executemany(
        "INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?)",
        [
            (time.time() - number, "old.tool", "cli", number != 1, "invalid_args" if number == 1 else None, 2.0)
            for number in range(rows)
        ],
    )
    database.commit()
    database.close()


def test_an_older_file_is_read_with_all_that_is_in_it(tmp_path):
    first_file(tmp_path / "stats.db")
    summary = UsageStats(tmp_path / "stats.db").summary()
    assert (summary["total_calls"], summary["success_rate"]) == (3, 66.7)
    assert summary["doors"] == [{"name": "cli", "calls": 3}]
    (row,) = summary["tools"]
    assert (row["tool"], row["source"], row["median_ms"], row["tokens_in"]) == ("old.tool", "", 2.0, 0)
    assert summary["errors"][0]["code"] == "invalid_args"


def test_an_older_file_is_written_on(tmp_path):
    first_file(tmp_path / "stats.db")
    stats = UsageStats(tmp_path / "stats.db")
    stats.record(event())
    assert stats.summary()["total_calls"] == 4
    assert asked(tmp_path / "stats.db", "PRAGMA user_version") == [(1,)]


@pytest.mark.skipif(os.name != "posix", reason="there are no modes")
@pytest.mark.parametrize("is_older", [False, True])
def test_the_file_is_for_its_owner_alone(tmp_path, is_older):
    if is_older:
        first_file(tmp_path / "stats.db")
        (tmp_path / "stats.db").chmod(0o644)
    stats = UsageStats(tmp_path / "stats.db")
    stats.record(event())
    assert stats.summary()["total_calls"] == (4 if is_older else 1)
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


def test_many_processes_find_an_older_file_at_once(tmp_path):
    first_file(tmp_path / "stats.db", rows=1000)
    code = "for _ in range(20):\n    more()\n    stats.flush()\nstats.flush(60)\n"
    processes = [started(code, tmp_path / "stats.db", number) for number in range(4)]
    for process in processes:
        process.communicate(timeout=PATIENCE)
    assert [process.returncode for process in processes] == [0] * 4
    assert asked(tmp_path / "stats.db", "SELECT count(*), sum(tool = 'old.tool') FROM calls") == [(1080, 1000)]


def test_many_processes_write_and_one_reads(tmp_path):
    code = "for _ in range(400):\n    more()\n    if number % 40 == 0: stats.flush()\nstats.flush(60)\n"
    processes = [started(code, tmp_path / "stats.db", number) for number in range(4)]
    stats, seen = UsageStats(tmp_path / "stats.db"), [0]
    while any(process.poll() is None for process in processes):
        seen.append(stats.summary()["total_calls"])
    for process in processes:
        process.communicate(timeout=PATIENCE)
    summary = stats.summary()
    assert [process.returncode for process in processes] == [0] * 4
    assert seen == sorted(seen)
    assert (summary["total_calls"], summary["runs"], summary["calls_in_runs"]) == (1600, 1600, 1600)


def test_a_newer_file_is_left_alone_and_told_once(tmp_path, caplog):
    database = sqlite3.connect(tmp_path / "stats.db")
    database.executescript("CREATE TABLE calls (what TEXT); PRAGMA user_version = 99")
    database.close()
    before = (tmp_path / "stats.db").read_bytes()
    stats = UsageStats(tmp_path / "stats.db")
    for _ in range(3):
        stats.record(event())
        stats.flush()
        assert stats.facts()["calls"] == 0
        with pytest.raises(ToolFailure, match="version 99"):
            stats.summary()
    assert (tmp_path / "stats.db").read_bytes() == before
    (told,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert "version 99" in told
    assert "delete" not in told


def test_what_waits_is_written_after_a_while_by_itself(tmp_path):
    stats = UsageStats(tmp_path / "stats.db")
    stats.record(event())
    until(lambda: asked(tmp_path / "stats.db", "SELECT 1 FROM sqlite_master WHERE name = 'calls'"), GATHER_SECONDS + 20)
    assert until(lambda: asked(tmp_path / "stats.db", "SELECT tool FROM calls")) == [("a.b",)]  # after the tables


def test_what_waits_is_written_at_the_end_of_the_process(tmp_path):
    process = started("more()", tmp_path / "stats.db", 1)
    process.communicate(timeout=PATIENCE)
    assert UsageStats(tmp_path / "stats.db").summary()["total_calls"] == 1


def test_who_is_killed_loses_what_waited_and_nothing_else(tmp_path):
    file = tmp_path / "stats.db"
    code = "for _ in range(50): more()\nstats.flush()\nprint('written', flush=True)\nmore()\ntime.sleep(60)\n"
    process = started(code, file, 1)
    assert process.stdout.readline() == "written\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    assert UsageStats(file).summary()["total_calls"] in (50, 51)  # the last one may have made it


def test_who_is_killed_while_writing_leaves_a_file_that_can_be_used(tmp_path):
    file = tmp_path / "stats.db"
    code = "print('go', flush=True)\nwhile True:\n    for _ in range(200): more()\n    stats.flush()\n"
    for _ in range(5):
        process = started(code, file, 1)
        assert process.stdout.readline() == "go\n"
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE)
        summary = UsageStats(file).summary()
        assert summary["total_calls"] - summary["runs"] in (0, 1)  # all or nothing of a batch
    assert asked(file, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="nothing is read-only for root")
def test_where_nothing_can_be_written_it_can_be_read(tmp_path, caplog):
    file = tmp_path / "home" / "stats.db"
    writing = UsageStats(file)
    writing.record(event())
    writing.flush()
    file.chmod(0o400)
    file.parent.chmod(0o500)
    try:
        stats = UsageStats(file)
        stats.record(event())
        assert stats.summary()["total_calls"] == 1
        assert "stats are not kept" in caplog.text
    finally:
        file.parent.chmod(0o700)


def test_a_reader_needs_no_right_to_write(tmp_path):
    """The same as above, for whoever may do everything: the file is not even opened for writing."""
    file = tmp_path / "stats.db"
    stats = UsageStats(file)
    stats.record(event())
    stats.flush()
    before = file.stat().st_mtime_ns, sorted(path.name for path in tmp_path.iterdir())
    assert stats.summary()["total_calls"] == 1
    assert (file.stat().st_mtime_ns, sorted(path.name for path in tmp_path.iterdir())) == before


def test_a_place_where_no_file_can_be(tmp_path, caplog):
    (tmp_path / "home").write_text("not a folder")
    stats = UsageStats(tmp_path / "home" / "stats.db")
    for _ in range(3):
        stats.record(event())
        stats.flush()
    assert stats.summary()["total_calls"] == 0
    assert caplog.text.count("stats are not kept") == 1


def test_a_file_that_is_held_for_long_loses_only_the_oldest(tmp_path, monkeypatch):
    monkeypatch.setattr("onetool.services.stats.writer.MAX_WAITING", 50)
    file = tmp_path / "stats.db"
    stats = UsageStats(file)
    stats.record(event())
    stats.flush()
    holder = sqlite3.connect(file)
    holder.execute("BEGIN EXCLUSIVE")
    for number in range(80):
        stats.record(event(f"t{number}"))
    stats.flush(0.1)
    holder.rollback()
    holder.close()
    stats.flush()
    assert [tool for (tool,) in asked(file, "SELECT tool FROM calls")] == ["a.b", *(f"t{n}" for n in range(30, 80))]


def test_who_asks_for_a_summary_waits_for_others_who_write(tmp_path):
    """They are many where much is called at once, and none of them takes long."""
    file = tmp_path / "stats.db"
    stats = UsageStats(file)
    stats.record(event())
    stats.flush()
    holder = sqlite3.connect(file, check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    done = threading.Timer(2.2, holder.close)
    done.start()
    assert stats.summary()["total_calls"] == 1
    done.join()


def test_everything_is_forgotten_in_time_and_a_run_keeps_its_calls(tmp_path):
    clock = [0.0]
    stats = UsageStats(tmp_path / "stats.db", retention_days=1, now=lambda: clock[0])
    stats.record(event())
    stats.record(CallEvent(call=ToolCall("1", "in.run"), duration_ms=1.0, run="r"))
    stats.record_menu("c", "mcp", 4, 4)
    stats.record_gap("c", 1.0)
    stats.record_reply("r", 4)
    clock[0] = 10.0
    stats.record_run(RunEvent(id="r", door="mcp", duration_ms=1.0, code_bytes=1, calls=1))
    stats.flush()
    clock[0] = 86_405.0
    stats.record(event("new"))
    stats.flush()
    tables = ("calls", "runs", "replies", "menus", "gaps")
    kept = {table: asked(tmp_path / "stats.db", f"SELECT count(*) FROM {table}")[0][0] for table in tables}
    assert kept == {"calls": 2, "runs": 1, "replies": 1, "menus": 0, "gaps": 0}
    clock[0] += 86_405.0
    stats.record(event("newer"))
    stats.flush()
    assert asked(tmp_path / "stats.db", "SELECT tool FROM calls") == [("newer",)]
    assert asked(tmp_path / "stats.db", "SELECT * FROM replies") == []
