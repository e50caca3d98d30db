"""Updates of a database that older replicas use."""

import pytest
from helpers import cli
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


def test_a_server_ends_with_one_sentence_beside_older_ones_and_over_newer_tables(old, database_url, tmp_path):
    """With the real processes of a3b9da9b it was tried by hand: those tables are what `old` has."""
    old.write(lambda work: work.execute(f"INSERT INTO replicas VALUES ('a', 'a:1', '0', 0, {old.clock} + 60, false)"))
    (tmp_path / "onetool.yaml").write_text(f"database: {database_url}\n")
    serve = ("--config", "onetool.yaml", "serve", "--port", "0")
    beside = cli(*serve, cwd=tmp_path)
    assert (beside.returncode, beside.stdout) == (1, "")
    assert "\nError: this version can't run beside older replicas: stop all of them first" in beside.stderr
    old.write(lambda work: work.execute("INSERT INTO onetool_migrations (number, name, at) VALUES (99, 'late', 0)"))
    newer = cli(*serve, cwd=tmp_path)
    assert (newer.returncode, newer.stdout) == (1, "")
    assert "\nError: the database was changed by a later version of OneTool (schema 99" in newer.stderr


def test_an_older_version_refuses_newer_tables(database, monkeypatch):
    monkeypatch.setattr(migrations, "NEWEST", OLD)
    with pytest.raises(NewerDatabaseError, match="was changed by a later version of OneTool"):
        missing(database)
