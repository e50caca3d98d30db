"""The database of the stats. Tests with the fixture `place` use SQLite, and those marked `BOTH` PostgreSQL, too."""

import pytest

from onetool.database.sqlite import SqliteDatabase

BOTH = pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def place(request, tmp_path):
    """Return the database for `Counted`."""
    if getattr(request, "param", "sqlite") == "postgres":
        yield request.getfixturevalue("database")
        return
    database = SqliteDatabase(tmp_path / "state.db")
    yield database
    database.close()


def asked(place, query):
    return place.read(lambda work: work.execute(query))
