"""Where tests keep an audit log: in a folder, or in one PostgreSQL whose table is empty for each test."""

import json

import pytest

from onetool.database import ChangeUnknownError, DatabaseAwayError
from onetool.services.audit import reader_of


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


def lines(place) -> list[dict]:
    """As they are kept."""
    return [json.loads(line) for line, _ in reader_of(place).lines()]


class Flaky:
    """A database that can be away, or lose its connection while a change is confirmed."""

    def __init__(self, database) -> None:
        self._database = database
        self.is_away = self.loses_commits = False

    def __getattr__(self, name: str):
        return getattr(self._database, name)

    def read(self, job):
        if self.is_away:
            raise DatabaseAwayError("connection refused: 10.0.0.9")
        return self._database.read(job)

    def write(self, job):
        if self.is_away:
            raise DatabaseAwayError("connection refused: 10.0.0.9")
        done = self._database.write(job)
        if self.loses_commits:
            raise ChangeUnknownError
        return done
