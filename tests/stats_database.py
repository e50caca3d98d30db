"""Where stats are kept: tests that take `place` run with SQLite; those marked with `BOTH` also with PostgreSQL."""

import pytest

from onetool.database.sqlite import SqliteDatabase

BOTH = pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def place(request, tmp_path):
    """The database that `UsageStats` takes."""
    if getattr(request, "param", "sqlite") == "postgres":
        yield request.getfixturevalue("database")
        return
    made = SqliteDatabase(tmp_path / "state.db")
    yield made
    made.close()


def asked(place, query):
    """Return the rows of a query that names its tables {calls}, {runs} …"""
    from onetool.services.stats import UsageStats

    return UsageStats(place)._store.read(lambda reader: reader.rows(query, {}))
