"""Where stats are kept: tests that take `place` run with SQLite, and with the database that replicas share."""

import pytest

from onetool.database.sqlite import SqliteDatabase


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """What `UsageStats` takes."""
    if request.param == "postgres":
        yield request.getfixturevalue("database")
        return
    made = SqliteDatabase(tmp_path / "state.db")
    yield made
    made.close()


def asked(place, query):
    """The rows of a query that names its tables {calls}, {runs} …"""
    from onetool.services.stats import UsageStats

    return UsageStats(place)._store.read(lambda reader: reader.rows(query, {}))
