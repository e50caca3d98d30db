"""A disk that is full: what was acknowledged can be read, whether or not the state of this machine can be written."""

import sqlite3

import pytest
from sources.bundles.files.things import tool, with_tool

from onetool.sources.bundles.errors import ConflictError, NotFoundError
from onetool.sources.bundles.store import storage


@pytest.fixture
def full(monkeypatch):
    """Until it is undone, nothing can be written into the state folder."""

    def fail(*_, **__):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(storage, "write_rows", fail)
    monkeypatch.setattr(storage, "MIN_MIRRORED", 1)
    return monkeypatch


def slugs(of):
    return {one.slug for one in of.tools()}


def test_what_was_acknowledged_can_be_read(full, opened):
    one = opened()
    id, kept = with_tool(one)
    state = one.state()
    put = one.put_tool(id, "other", "1", tool())
    assert one.state() != state
    one.close()
    for again in (one, opened()):  # as after a restart
        assert again.tool(id, "other", "1") == put
        assert [found.tool for found in again.search("forecast")] == [kept]
    full.undo()
    one.put_tool(id, "third", "1", tool())
    assert slugs(one) == slugs(opened()) == {"forecast", "other", "third"}


def test_no_file_is_written_over_that_another_process_could_not_tell_of(full, opened):
    one, other = opened(), opened()
    id, kept = with_tool(one)
    other.sync()
    put = one.put_tool(id, "second", "1", tool())
    with pytest.raises(ConflictError):
        other.put_tool(id, "second", "1", tool(description="another one"))
    one.delete_tool(id, "forecast", "1")
    with pytest.raises(NotFoundError):
        other.patch_tool(id, "forecast", "1", False)
    other.sync()
    assert one.tools() == other.tools() == [put]
    assert kept not in other.tools()
