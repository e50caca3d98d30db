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
