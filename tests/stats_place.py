"""Where stats are kept: tests that take `place` run with a file, and with the database that replicas share."""

import pytest


@pytest.fixture(params=["file", "postgres"])
def place(request, tmp_path):
    """What `UsageStats` takes."""
    return tmp_path / "stats.db" if request.param == "file" else request.getfixturevalue("database")


def asked(place, query):
    """The rows of a query that names its tables {calls}, {runs} …"""
    from onetool.services.stats import UsageStats

    return UsageStats(place)._storage.read(lambda reader: reader.rows(query, {}), True)
