"""SQLite as the database of the workers of one machine: what is away, and what is wrong."""

import shutil
import sqlite3

import pytest

from onetool.database import DatabaseAwayError, DatabaseError, sqlite
from onetool.database.sqlite import SqliteDatabase


@pytest.fixture
def database(tmp_path):
    (tmp_path / "run").mkdir()
    found = SqliteDatabase(tmp_path / "run" / "workers.db")
    found.write(lambda work: work.execute("CREATE TABLE things (id text)"))
    yield found
    found.close()


def test_what_is_wrong_is_not_said_to_be_away(database):
    with pytest.raises(DatabaseError, match="no such table: absent") as refused:
        database.read(lambda work: work.execute("SELECT * FROM absent"))
    assert not isinstance(refused.value, DatabaseAwayError)


def test_one_that_another_holds_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_S", 0.01)
    file = tmp_path / "workers.db"
    database, other = SqliteDatabase(file), sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(DatabaseAwayError):
        database.write(lambda work: work.execute("CREATE TABLE things (id text)"))
    other.close()
    database.write(lambda work: work.execute("CREATE TABLE things (id text)"))
    database.close()


def test_a_folder_that_is_gone_is_not_made_again(database, tmp_path):
    """There would be nothing in it, and nobody would know."""
    shutil.rmtree(tmp_path / "run")
    again = SqliteDatabase(tmp_path / "run" / "workers.db")
    with pytest.raises(DatabaseAwayError):
        again.read(lambda work: work.execute("SELECT * FROM things"))
    assert not (tmp_path / "run").exists()


def free(database, rows):
    """Write and delete rows of a megabyte."""
    database.write(lambda work: work.execute_many("INSERT INTO things VALUES (%s)", [("x" * 2**20,)] * rows))
    database.write(lambda work: work.execute("DELETE FROM things"))


def test_space_of_deleted_rows_is_given_back(database):
    free(database, 8)
    assert database.spare_bytes() > 16 * 2**20  # as free pages, and in the log
    database.shrink()
    assert database.spare_bytes() == 0
    assert database.file.stat().st_size < 2**20


def test_a_file_that_can_not_shrink_stays_as_it_is(database):
    """As one that was made from a dump."""
    database.close()
    with sqlite3.connect(database.file, isolation_level=None) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("PRAGMA auto_vacuum = NONE")
        other.execute("VACUUM")
    other.close()
    again = SqliteDatabase(database.file)
    free(again, 4)
    again.shrink()
    assert again.spare_bytes() > 4 * 2**20
    again.close()


def test_a_new_connection_reads_while_another_process_writes(database, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_S", 0.01)
    database.write(lambda work: work.execute("INSERT INTO things VALUES ('one')"))
    again, other = SqliteDatabase(database.file), sqlite3.connect(database.file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert again.read(lambda work: work.execute("SELECT * FROM things")) == [("one",)]
    other.close()
    again.close()
