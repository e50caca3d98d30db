"""Where tests keep an audit log: in `state.db`, or in one PostgreSQL whose table is empty for each test."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from onetool.database import ChangeUnknownError, DatabaseAwayError


@pytest.fixture(scope="module")
def audit_database(postgres):
    from onetool.database.migrations import migrate
    from onetool.database.postgres import Postgres

    found = Postgres(postgres.new_schema())
    migrate(found)
    yield found
    found.close()


@pytest.fixture
def empty_database(audit_database):
    audit_database.write(lambda work: work.execute("TRUNCATE audit RESTART IDENTITY"))
    return audit_database


def lines(database) -> list[dict]:
    """Return the lines of a database, as they are kept."""
    rows = database.read(lambda work: work.execute("SELECT line FROM audit ORDER BY number"))
    return [json.loads(line) for (line,) in rows]


def lines_in(home: Path) -> list[dict]:
    """Return the lines of a state folder. Makes nothing."""
    if not (home / "state.db").exists():
        return []
    with closing(sqlite3.connect(home / "state.db")) as file:
        return [json.loads(line) for (line,) in file.execute("SELECT line FROM audit ORDER BY number")]


class Flaky:
    """A database that can be away, or lose its connection while a change is confirmed."""

    def __init__(self, database) -> None:
        self._database = database
        self.is_away = self.loses_commits = False

    def __getattr__(self, name: str):
        return getattr(self._database, name)

    def read(self, job, **options):
        if self.is_away:
            raise DatabaseAwayError("connection refused: 10.0.0.9")
        return self._database.read(job, **options)

    def write(self, job, **options):
        if self.is_away:
            raise DatabaseAwayError("connection refused: 10.0.0.9")
        done = self._database.write(job, **options)
        if self.loses_commits:
            raise ChangeUnknownError
        return done
