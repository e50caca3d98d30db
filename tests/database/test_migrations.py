"""Updates of a database that older replicas use."""

import pytest
from postgres import database, database_url, postgres

from onetool.database import migrations
from onetool.database.connection import NewerDatabaseError, OlderReplicasError
from onetool.database.migrations import migrate, missing
from onetool.database.postgres import Postgres

__all__ = ["database", "database_url", "postgres"]

OLD = 13  # the last migration of versions whose replicas send each other requests


@pytest.fixture
def old(database_url, monkeypatch):
    """A database of such a version."""
    all_of_them = migrations.migrations()
    monkeypatch.setattr(migrations, "migrations", lambda: all_of_them[:OLD])
    monkeypatch.setattr(migrations, "NEWEST", OLD)
    found = Postgres(database_url)
    assert len(migrate(found)) == OLD
    yield found
    found.close()


def test_replicas_of_an_older_version_have_to_stop_first(old, monkeypatch):
    beat = f"INSERT INTO replicas VALUES ('deadbeef', 'a:1', '0.0.9', 0, {old.clock}, false, '', '')"
    old.write(lambda work: work.execute(beat))
    monkeypatch.undo()
    assert "mailbox" in missing(old)
    with pytest.raises(OlderReplicasError, match=r"stop all of them first, then try again \(deadbeef \(0\.0\.9\)\)"):
        migrate(old)
    assert "mailbox" in missing(old)
    old.write(lambda work: work.execute("UPDATE replicas SET seen_at = seen_at - 6"))
    assert "mailbox" in migrate(old)
    assert old.read(lambda work: work.execute("SELECT place FROM replicas")) == []


def test_an_older_version_refuses_newer_tables(database, monkeypatch):
    monkeypatch.setattr(migrations, "NEWEST", OLD)
    with pytest.raises(NewerDatabaseError, match="was changed by a later version of OneTool"):
        missing(database)
