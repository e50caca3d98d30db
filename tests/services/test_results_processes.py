"""Stored results and processes: what one of them is killed over, what they do to each other, and what outlives them."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from helpers import until
from services.pages import query
from services.result_stores import harness

from onetool.database import sqlite
from onetool.database.sqlite import SqliteDatabase
from onetool.services.results.store import ResultStore

MB = 1024 * 1024
TEXT = "some lines é\n" * MB

OPEN = """
import sys
from pathlib import Path
from onetool.database.sqlite import SqliteDatabase
from onetool.services.results import ResultExpiredError
from onetool.services.results import store
from onetool.services.results.store import ResultStore
store.CALL_WAIT_S = 60  # on a busy machine, too, everybody gets a turn
database = SqliteDatabase(Path(sys.argv[1]) / "state.db", makes_folder=True)
"""

PUTTING = """
results, text = ResultStore(database, 3600, 200), "some lines é\\n" * (1024 * 1024)
while True:
    print(results.put(text, "alice").handle, flush=True)
"""

SHARING = """
results, mine = ResultStore(database, 3600, 4), {}
for number in range(6):
    text = f"{sys.argv[2]} {number} é\\n" * 40_000
    mine[results.put(text).handle] = text
    for handle, text in mine.items():
        try:
            for offset in (1, 20_000, 39_950):
                assert results.page(handle, offset=offset)["lines"] == text.split("\\n")[offset - 1 : -1][:100]
            assert results.read(handle) == text
        except ResultExpiredError as error:
            assert "make room" in str(error), error
"""

__all__ = ["harness"]


def python(code, *args, **options):
    return subprocess.Popen([sys.executable, "-c", OPEN + code, *map(str, args)], **options)


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_process_that_is_killed_while_it_puts_leaves_no_half_result(harness, tmp_path):
    process = python(PUTTING, tmp_path / "home", stdout=subprocess.PIPE, text=True)
    try:
        first = process.stdout.readline().strip()
    finally:
        process.kill()
    handles = [first, *process.communicate(timeout=60)[0].split()]
    results = harness.open(max_total_mb=200)
    assert {*handles} <= {one.handle for one in results.kept("alice")}
    for one in results.kept("alice"):
        assert results.page(one.handle, "alice", MB - 5) == query(TEXT, MB - 5)


@pytest.mark.long
def test_eight_processes_put_and_read_and_make_room_at_once(harness, tmp_path):
    processes = [python(SHARING, tmp_path / "home", number, stderr=subprocess.PIPE, text=True) for number in range(8)]
    assert [process.communicate(timeout=300)[1] for process in processes] == [""] * 8
    assert [process.returncode for process in processes] == [0] * 8
    assert 0 < harness.total() <= 4 * MB
    assert harness.rows("SELECT count(*) FROM results") == [(48,)]


def test_a_result_outlives_the_process_that_put_it(harness, tmp_path):
    code = "print(ResultStore(database, 3600, 100).put('a line\\n' * 1_000_000, 'alice').handle)"
    process = python(code, tmp_path / "home", stdout=subprocess.PIPE, text=True)
    handle = process.communicate(timeout=60)[0].strip()
    assert process.returncode == 0
    page = harness.open().page(handle, "alice", 1_000_000)
    assert (page["lines"], page["total_lines"]) == (["a line"], 1_000_000)


def test_a_locked_database_does_not_hold_up_who_puts(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_S", 3600.0)  # as long as others wait
    with closing(SqliteDatabase(tmp_path / "state.db")) as database:
        results = ResultStore(database, 3600, 100)
        results.put("one")
        with closing(sqlite3.connect(database.file, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            two = results.put("two").handle
        until(lambda: len(list(results.kept())) == 2)
        assert results.read(two) == "two"
