"""The database of usage stats. Tests with the fixture `place` use SQLite, and those marked `BOTH` PostgreSQL, too."""

import pytest

from onetool.database.sqlite import SqliteDatabase

BOTH = pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def place(request, tmp_path):
    """Return the database for `UsageStats`."""
    if getattr(request, "param", "sqlite") == "postgres":
        yield request.getfixturevalue("database")
        return
    database = SqliteDatabase(tmp_path / "state.db")
    yield database
    database.close()


def asked(place, query):
    """Return the rows of a query, in which tables are called {calls}, {runs} …"""
    from onetool.services.stats import UsageStats

    return UsageStats(place)._store.read(lambda reader: reader.rows(query, {}))
