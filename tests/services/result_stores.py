"""Stores of results over both backends, for the tests of what each of them has to do.

harness.open(ttl_s, max_total_mb)     a store, as another process would open it
harness.clock.now += 60               time passes
"""

import pytest

from onetool.core.state_folders import MARKER
from onetool.services.results import ResultStore


class Clock:
    def __init__(self, now=1_700_000_000.0):
        self.now = now

    def __call__(self):
        self.now += 0.001
        return self.now


class FolderStage:
    def __init__(self, folder):
        self.clock = Clock()
        self._folder = folder

    def open(self, ttl_s, max_total_mb):
        return ResultStore(self._folder, ttl_s, max_total_mb, now=self.clock)

    def _files(self):
        return [path for path in self._folder.iterdir() if path.suffix == ".txt" and not path.name.startswith(".")]

    def count(self):
        return len(self._files())

    def total(self):
        return sum(path.stat().st_size for path in self._files())

    def is_empty(self):
        return {path.name for path in self._folder.iterdir()} <= {".gitignore", MARKER}


class DatabaseClock:
    """That of the database. To put it forward makes all rows older."""

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


class DatabaseStage:
    def __init__(self, database):
        self.clock = DatabaseClock(database)
        self.database = database

    def open(self, ttl_s, max_total_mb):
        from onetool.services.results.database import DatabaseResults

        return DatabaseResults(self.database, ttl_s, max_total_mb)

    def rows(self, sql):
        return self.database.read(lambda work: work.execute(sql))

    def count(self):
        return self.rows("SELECT count(DISTINCT key) FROM result_pieces")[0][0]

    def total(self):
        return self.rows("SELECT coalesce(sum(length(text)), 0) FROM result_pieces")[0][0]

    def is_empty(self):
        return not self.rows("SELECT key FROM results UNION ALL SELECT key FROM result_pieces")


@pytest.fixture(params=["files", "postgres"])
def harness(request, tmp_path):
    if request.param == "files":
        return FolderStage(tmp_path / "results")
    return DatabaseStage(request.getfixturevalue("database"))
