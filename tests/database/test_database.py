"""What SQLite and PostgreSQL have in common: transactions, locks, changes that are told, many processes at once."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from helpers import until

from onetool.database import DatabaseError, LockNumber
from onetool.database.connection import NEWEST
from onetool.database.migrations import migrate, migrations
from onetool.database.postgres import Postgres
from onetool.database.sqlite import SqliteDatabase

PROCESSES, TIMES = 8, 20

# Run by each process: `add` adds to a number as a function of what it was, `count` says each number that is committed.
SCRIPT = f"""
import sys
from pathlib import Path
from onetool.database.postgres import Postgres
from onetool.database.sqlite import SqliteDatabase

place, what = sys.argv[1:]
database = Postgres(place) if "://" in place else SqliteDatabase(Path(place))

def add(work):
    work.lock({LockNumber.JOURNAL_SWEEP})
    number = work.execute("SELECT value FROM counters WHERE name = 'test'")[0][0] + 1
    work.execute("UPDATE counters SET value = %s WHERE name = 'test'", (number,))
    return number

for _ in range({TIMES}) if what == "add" else iter(int, 1):
    print(database.write(add), flush=True)
"""


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """Where the database is: a file, or the address of an empty schema."""
    if request.param == "sqlite":
        return str(tmp_path / "state.db")
    return request.getfixturevalue("database_url")


@pytest.fixture
def opened(place):
    """Opens the database again, as another process would."""
    made = []

    def open_again():
        made.append(Postgres(place, prepare=migrate) if "://" in place else SqliteDatabase(Path(place)))
        return made[-1]

    yield open_again
    for one in made:
        one.close()


@pytest.fixture
def database(opened):
    return opened()


def put(name, value=1):
    return lambda work: work.execute("INSERT INTO counters VALUES (%s, %s)", (name, value))


def names(database):
    sql = "SELECT name FROM counters WHERE name <> 'documents' ORDER BY name"
    return [name for (name,) in database.read(lambda work: work.execute(sql))]


def test_the_newest_migration_is_the_last_file():
    assert [migration.number for migration in migrations()] == list(range(1, NEWEST + 1))


def test_a_change_counts_when_it_is_committed(database, opened):
    database.write(put("one"))
    assert (names(database), names(opened())) == (["one"], ["one"])


def test_what_raises_changes_nothing(database):
    def job(work):
        put("one")(work)
        raise KeyError

    with pytest.raises(KeyError):
        database.write(job)
    assert names(database) == []


def test_a_statement_that_is_refused_is_told_and_the_next_one_works(database):
    database.write(put("one"))
    with pytest.raises(DatabaseError):
        database.write(put("one"))
    database.write(put("two"))
    assert names(database) == ["one", "two"]


def test_batches_of_any_size_keep_their_order_and_need_few_statements(database):
    """A connection to SQLite keeps more than a hundred statements, and one with many rows takes a megabyte."""
    sizes = (*range(50), 255, 256, 257, 700)
    rows = {size: [(f"{size} {at}", at) for at in range(size)] for size in sizes}
    sent = []

    def job(work):
        execute = work.execute
        work.execute = lambda sql, params=(): sent.append((sql, tuple(params))) or execute(sql, params)
        for some in rows.values():
            work.insert("counters", "name, value", some)
        return execute("SELECT name, value FROM counters WHERE name <> 'documents'")

    found = database.write(job)
    inserted = [row for some in rows.values() for row in some]
    assert sorted(found) == sorted(inserted)
    assert [cell for _, cells in sent for cell in cells] == [cell for row in inserted for cell in row]
    if isinstance(database, SqliteDatabase):
        assert len({sql for sql, _ in sent}) == 9
    else:
        assert len(sent) == 49 + 1 + 1 + 2 + 3


def test_statements_tell_how_many_rows_they_changed(database):
    def job(work):
        work.execute_many("INSERT INTO counters VALUES (%s, %s)", [("a", 1), ("b", 2), ("c", 3)])
        work.execute("DELETE FROM counters WHERE value < %s AND name <> 'documents'", (3,))
        return work.row_count

    assert database.write(job) == 2


def test_a_snapshot_sees_one_moment(database, opened):
    other = opened()
    database.write(put("one"))

    def job(work):
        before = work.execute("SELECT count(*) FROM counters")
        other.write(put("two"))
        return before == work.execute("SELECT count(*) FROM counters")

    assert database.read(job, snapshot=True)
    assert names(database) == ["one", "two"]


def test_a_lock_is_held_by_one(database, opened):
    database.write(lambda work: None)
    mine, theirs, another = database.lock("a"), opened().lock("a"), opened().lock("b")
    assert (mine.take(), mine.take(), theirs.take(), another.take()) == (True, True, False, True)
    mine.check()
    mine.release()
    until(theirs.take)  # PostgreSQL ends the session of the first one in its own time
    theirs.release()
    another.release()


def test_a_change_is_told_to_listeners_here_and_elsewhere(database, opened):
    database.write(put("one"))
    here, elsewhere = [], []
    database.on_change("things", here.append)
    forget = opened().on_change("things", elsewhere.append)
    until(lambda: here and elsewhere)  # both listen
    elsewhere.clear()
    database.write(lambda work: (put("two")(work), work.notify("things", "7")))
    until(lambda: "7" in here)
    until(lambda: elsewhere)
    forget()


def test_the_clock_is_that_of_this_world(database):
    (seconds,) = database.read(lambda work: work.execute(f"SELECT {database.clock}"))[0]
    assert abs(seconds - time.time()) < 3600


def run(place, what):
    return subprocess.Popen([sys.executable, "-c", SCRIPT, place, what], stdout=subprocess.PIPE, text=True)


@pytest.mark.long
def test_eight_processes_at_once_lose_nothing(database, place):
    database.write(put("test", 0))
    processes = [run(place, "add") for _ in range(PROCESSES)]
    said = [int(line) for one in processes for line in one.communicate(timeout=300)[0].split()]
    assert [one.returncode for one in processes] == [0] * PROCESSES
    assert sorted(said) == list(range(1, PROCESSES * TIMES + 1))


@pytest.mark.skipif(os.name != "posix", reason="there are no signals")
def test_what_was_told_survives_a_kill(database, place):
    database.write(put("test", 0))
    process = run(place, "count")
    said = [int(process.stdout.readline()) for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    value = database.read(lambda work: work.execute("SELECT value FROM counters WHERE name = 'test'"))[0][0]
    assert value >= said[-1]
    database.write(put("after"))


def test_tables_are_made_once_though_many_begin_at_once(opened):
    databases, failed = [opened() for _ in range(4)], []

    def write(one, number):
        try:
            one.write(put(f"of {number}"))
        except DatabaseError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(one, number)) for number, one in enumerate(databases)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failed, len(names(databases[0]))) == ([], 4)


def test_a_newer_schema_is_refused(database, opened):
    def job(work):
        work.execute("INSERT INTO onetool_migrations VALUES (99, 'of tomorrow', 0)")
        if isinstance(database, SqliteDatabase):
            work.execute("PRAGMA user_version = 99")

    database.write(job)
    with pytest.raises(DatabaseError, match=r"schema 99; this version knows .*: update OneTool"):
        names(opened())
