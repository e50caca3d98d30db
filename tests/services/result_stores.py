"""Stores of results in a database: SQLite; tests marked with BOTH also run with PostgreSQL.

harness.open(ttl_s, max_total_mb)     a store, as another process would open it
harness.clock.now += 60               time passes
"""

import pytest

from onetool.database.sqlite import SqliteDatabase
from onetool.services.results.store import ResultStore

BOTH = pytest.mark.parametrize("harness", ["sqlite", "postgres"], indirect=True)


class Clock:
    """The database's clock. To put it forward makes all rows older."""

    def __init__(self, database):
        self._database = database
        self._ahead = 0.0

    @property
    def now(self):
        return self._database.read(lambda work: work.execute(f"SELECT {self._database.clock}"))[0][0] + self._ahead

    @now.setter
    def now(self, value):
        by = value - self.now
        older = "UPDATE results SET at = at - %s, ended_at = ended_at - %s"
        self._database.write(lambda work: work.execute(older, (by, by)))
        self._ahead += by


class Harness:
    def __init__(self, database):
        self.clock = Clock(database)
        self.database = database

    def open(self, ttl_s=3600, max_total_mb=8):
        return ResultStore(self.database, ttl_s, max_total_mb)

    def rows(self, sql):
        return self.database.read(lambda work: work.execute(sql))

    def count(self):
        return self.rows("SELECT count(*) FROM results WHERE text IS NOT NULL")[0][0]

    def total(self):
        return int(self.rows("SELECT coalesce(sum(room), 0) FROM results WHERE text IS NOT NULL")[0][0])

    def is_empty(self):
        return not self.rows("SELECT handle FROM results")


@pytest.fixture
def harness(request, tmp_path):
    if getattr(request, "param", "sqlite") == "postgres":
        yield Harness(request.getfixturevalue("database"))
        return
    database = open_state(tmp_path / "home")
    yield Harness(database)
    database.close()


def open_state(home):
    return SqliteDatabase(home / "state.db", makes_folder=True)


def disk_bytes(home):
    return sum(path.stat().st_size for path in home.glob("state.db*"))
