"""A SQLite file: what is made and when, file systems that can less, files that are not to be trusted, damage."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import NOBODY, until

from onetool.database import DatabaseAwayError, DatabaseError, sqlite
from onetool.database.connection import DamagedDatabaseError
from onetool.database.restoring import is_sound, restore
from onetool.database.sqlite import SqliteDatabase

posix = pytest.mark.skipif(os.name != "posix", reason="modes and owners")


@pytest.fixture
def file(tmp_path):
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home" / "state.db"


@pytest.fixture
def opened(file):
    made = []

    def open_again(kind=SqliteDatabase):
        made.append(kind(file))
        return made[-1]

    yield open_again
    for one in made:
        one.close()


def put(name):
    return lambda work: work.execute("INSERT INTO counters VALUES (%s, 1)", (name,))


def names(database):
    sql = "SELECT name FROM counters WHERE name <> 'documents' ORDER BY name"
    return [name for (name,) in database.read(lambda work: work.execute(sql))]


def test_reading_makes_nothing(opened, file):
    database = opened()
    assert (names(database), database.size) == ([], 0)
    database.stamp()
    database.shrink()
    assert not os.listdir(file.parent)


@posix
def test_the_file_is_its_owners_alone(opened, file):
    opened().write(put("one"))
    assert {stat.S_IMODE(one.stat().st_mode) for one in file.parent.iterdir()} == {0o600}


def test_a_folder_that_is_gone_is_not_made_again(tmp_path):
    """There would be nothing in it, and nobody would know."""
    database = SqliteDatabase(tmp_path / "run" / "workers.db")
    with pytest.raises(DatabaseError):
        database.write(put("one"))
    assert not (tmp_path / "run").exists()


def test_a_file_that_was_replaced_is_opened_again(opened, file, tmp_path):
    database = opened()
    database.write(put("one"))
    other = SqliteDatabase(tmp_path / "other.db")
    other.write(put("two"))
    other.close()
    before = database.stamp()
    for end in ("", "-wal", "-shm"):
        file.with_name(file.name + end).unlink()
    shutil.move(tmp_path / "other.db", file)
    assert (names(database), database.stamp() == before) == (["two"], False)


def test_one_that_another_process_holds_is_away(opened, file, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_S", 0.01)
    database = opened()
    database.write(put("one"))
    database.close()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseAwayError, match=r"locked by another process; nothing has changed"):
        database.write(put("two"))
    assert names(database) == ["one"]
    other.close()
    database.write(put("two"))


def test_a_stamp_tells_of_changes_by_others(opened):
    database, other = opened(), opened()
    database.write(put("one"))
    before = database.stamp()
    assert database.stamp() == before
    other.write(put("two"))
    assert database.stamp() != before


def test_a_file_system_without_shared_memory_is_enough(opened, file):
    class WithoutSharedMemory(SqliteDatabase):
        vfs = "unix-dotfile"

    database, other = opened(WithoutSharedMemory), opened(WithoutSharedMemory)
    database.write(put("one"))
    other.write(put("two"), durable=True)
    assert database.read(lambda work: work.execute("PRAGMA journal_mode")) == [("delete",)]
    assert (names(database), names(other)) == (["one", "two"], ["one", "two"])
    before = database.stamp()
    other.write(put("three"))
    assert database.stamp() != before
    assert not file.with_name("state.db-wal").exists()


def test_a_full_disk_is_told_and_loses_nothing(opened, file):
    database = opened()
    database.write(put("one"))

    def fill(work):
        work.execute("PRAGMA max_page_count = 1")
        work.execute("INSERT INTO documents SELECT 'kind', %s, zeroblob(1000000), 0, 0", ("key",))

    with pytest.raises(DatabaseError, match=r"disk is full .fix: free some space"):
        database.write(fill)
    assert names(opened()) == ["one"]


# Files that are not to be trusted


def test_a_link_is_refused(opened, file, tmp_path):
    (tmp_path / "elsewhere.db").touch(0o600)
    file.symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(DatabaseError, match=r"is not used: it is a symbolic link .fix:"):
        names(opened())
    assert (tmp_path / "elsewhere.db").stat().st_size == 0


@posix
def test_a_file_that_others_can_write_is_refused(opened, file):
    opened().write(put("one"))
    file.chmod(0o622)
    with pytest.raises(DatabaseError, match=r"other users can write it .fix: chmod 600"):
        names(SqliteDatabase(file))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(opened, file):
    opened().write(put("one"))
    os.chown(file, NOBODY, NOBODY)
    with pytest.raises(DatabaseError, match=r"it belongs to another user .fix:"):
        names(SqliteDatabase(file))


# Damage


@pytest.mark.parametrize("damage", ["no database", "torn"])
def test_a_damaged_file_is_an_error_that_names_the_command(opened, file, damage):
    database = opened()
    database.write(put("one"))
    database.close()
    if damage == "torn":
        with open(file, "r+b") as stream:
            stream.seek(4096)
            stream.write(b"x" * (file.stat().st_size - 4096))
    else:
        file.write_bytes(b"no database" * 1000)
    before = file.read_bytes()
    for _ in range(2):
        with pytest.raises(DamagedDatabaseError, match=r"^state.db is damaged: .* .fix: `onetool db restore` saves"):
            names(opened())
    assert (file.read_bytes(), list(file.parent.glob("*damaged*"))) == (before, [])


def test_what_can_be_read_is_restored(opened, file):
    """Each page is damaged in turn: the other rows are saved, and the counts are right or said to be unknown."""
    database = opened()
    sql = "INSERT INTO documents (kind, key, body, version, modified_at) VALUES (%s, %s, %s, 1, 1)"
    rows = [(kind, str(number), b"x" * 1000) for kind in ("hosts", "tokens") for number in range(20)]
    database.write(lambda work: work.execute_many(sql, rows))
    database.write(lambda work: work.execute("INSERT INTO ask_sessions VALUES ('', 's', 1, NULL)"))
    database.write(lambda work: work.execute("INSERT INTO ask_messages VALUES ('', 's', 0, 'user', %s)", (b"{}",)))
    database.shrink()
    database.close()
    whole, saved_once = file.read_bytes(), 0
    for page in range(len(whole) // 4096):
        for left in file.parent.glob("state.db*"):
            left.unlink()
        file.touch(0o600)
        damaged = whole[: page * 4096] + bytes(4096) + whole[(page + 1) * 4096 :]
        file.write_bytes(damaged)
        kept, found = restore(file)
        assert kept.read_bytes() == damaged
        kinds = {one.kind: one for one in found}
        again = opened()
        counted = dict(again.read(lambda work: work.execute("SELECT kind, count(*) FROM documents GROUP BY kind")))
        for kind in ("hosts", "tokens"):
            saved, lost = (kinds[kind].saved, kinds[kind].lost) if kind in kinds else (0, None)
            assert counted.get(kind, 0) == saved
            assert lost is None or saved + lost == 20
            saved_once += saved
        again.write(put("one"))
        assert is_sound(file)
        again.close()
    assert saved_once > 2 * 20 * (len(whole) // 4096 - 20)


def test_rows_of_high_numbers_are_restored_though_the_last_one_is_lost(opened, file):
    database = opened()
    sql = "INSERT INTO documents (rowid, kind, key, body, version, modified_at) VALUES (%s, 'hosts', %s, %s, 1, 1)"
    rows = [(10**12 + number, str(number), f"<{number}>".encode() * 300) for number in range(60)]
    database.write(lambda work: work.execute_many(sql, rows))
    database.shrink()
    database.close()
    with open(file, "r+b") as stream:
        stream.seek(file.read_bytes().index(b"<59><59>") // 4096 * 4096)
        stream.write(bytes(4096))
    _, found = restore(file)
    [saved] = [one.saved for one in found if one.kind == "hosts"]
    assert 50 <= saved < 60


# Space


def free(database, rows):
    """Write and delete rows of a megabyte."""
    sql = "INSERT INTO documents (kind, key, body, version, modified_at) VALUES ('large', %s, %s, 1, 1)"
    database.write(lambda work: work.execute_many(sql, [(str(number), b"x" * 2**20) for number in range(rows)]))
    database.write(lambda work: work.execute("DELETE FROM documents WHERE kind = 'large'"))


def test_space_of_deleted_rows_is_given_back(opened, file):
    database = opened()
    free(database, 8)
    assert database.spare_bytes() > 15 * 2**20  # as free pages, and in the log
    database.shrink()
    assert database.spare_bytes() == 0
    assert file.stat().st_size < 2**20


def test_a_file_that_can_not_shrink_stays_as_it_is(opened, file):
    """As one that was made from a dump."""
    database = opened()
    free(database, 1)
    database.close()
    with sqlite3.connect(file, isolation_level=None) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("PRAGMA auto_vacuum = NONE")
        other.execute("VACUUM")
    other.close()
    again = opened()
    free(again, 4)
    again.shrink()
    assert again.spare_bytes() > 3 * 2**20


def test_a_new_connection_reads_while_another_process_writes(opened, file, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_S", 0.01)
    opened().write(put("one"))
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert names(opened()) == ["one"]
    other.close()


def test_a_stamp_waits_neither_for_other_processes_nor_for_threads_that_wait(opened, file):
    """Event loops ask for it."""
    file.touch(0o600)
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    database = opened()
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(database.write, put("two"), max_wait=600)
        until(lambda: database._lock.locked() or writing.done())
        with pytest.raises(DatabaseAwayError):
            database.stamp()
        assert not writing.done()
        holder.close()
        writing.result()
    assert names(database) == ["two"]


def test_what_must_survive_a_power_failure_waits_for_the_disk(tmp_path):
    """In a process of its own, since these tests wait for no disk."""
    code = f"""
from pathlib import Path
from onetool.database.sqlite import SqliteDatabase
database = SqliteDatabase(Path({str(tmp_path / "state.db")!r}))
for durable in (True, False):
    print(database.write(lambda work: work.execute("PRAGMA synchronous"), durable=durable))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["[(2,)]", "[(1,)]"], done.stderr  # FULL, NORMAL
