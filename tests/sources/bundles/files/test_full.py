"""A disk that is full: what was acknowledged can be read, whether or not the index could take it in."""

import asyncio
import fcntl
import os
from hashlib import sha256

import pytest
from helpers import until_async
from sources.bundles.files.things import file_of, tool, with_tool

from onetool.sources.bundles.files import state_folder
from onetool.sources.bundles.index import Index
from onetool.sources.bundles.index import database as opening

LONG = " ".join(sha256(bytes([number])).hexdigest() for number in range(150))  # it can't be packed into a page


@pytest.fixture
def full(monkeypatch):
    """Until it is undone, no index in a file can grow. The error is SQLite's own."""
    real = opening._connect

    def limited(where, *patience):
        database = real(where, *patience)
        if where != ":memory:":
            database.execute("PRAGMA max_page_count = 1")  # as many as there are
        return database

    monkeypatch.setattr(opening, "_connect", limited)
    monkeypatch.setattr(state_folder, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(state_folder, "SHARE", 0)
    return monkeypatch


@pytest.fixture
def there(opened):
    """What was put while there was room; the store that did it is closed."""
    store = opened()
    id, kept = with_tool(store)
    store.close()
    return id, kept


def kept_in(folder):
    """What the file of the index says, not what the store makes of it."""
    index = Index(folder / ".state" / "index.db")
    found = {one.slug for one in index.tools()}
    index.close()
    return found


def test_what_was_acknowledged_can_be_read(there, full, opened, folder, caplog):
    id, kept = there
    store = opened()
    state = store.state()
    put = store.put_tool(id, "other", "1", tool(description=LONG))
    assert "disk is full; the index is kept in memory until then" in caplog.text
    again = opened()  # as after a restart
    for one in (store, again):
        assert one.tool(id, "other", "1") == put
        assert one.tool(id, "forecast", "1") == kept
        assert len(one.tools()) == 2
        assert [found.tool for found in one.search("forecast")] == [kept]
    assert store.state() != state
    assert kept_in(folder) == {"forecast"}


def test_it_goes_on_in_memory_and_comes_back(there, full, opened, folder):
    id, _ = there
    store, other = opened(), opened()
    store.put_tool(id, "second", "1", tool(description=LONG))
    store.put_tool(id, "third", "1", tool(description=LONG))
    assert not store.patch_tool(id, "second", "1", False).is_enabled
    store.delete_tool(id, "forecast", "1")
    assert {one.slug for one in store.tools(include_disabled=True)} == {"second", "third"}
    other.sync()
    other.put_tool(id, "fourth", "1", tool(description=LONG))
    store.put_tool(id, "fifth", "1", tool(description=LONG))
    everyone = {"third", "fourth", "fifth"}
    assert {one.slug for one in store.tools()} == everyone, "what others have done is seen with the next write"
    full.undo()
    assert kept_in(folder) == {"forecast"}
    before = store.state()
    store.sync()
    assert store.state() != before
    assert kept_in(folder) == everyone
    assert {one.slug for one in store.tools()} == everyone
    store.put_tool(id, "sixth", "1", tool())
    assert kept_in(folder) == {*everyone, "sixth"}


def test_it_is_not_tried_all_the_time(there, full, opened, monkeypatch):
    monkeypatch.setattr(state_folder, "SETTLE_SECONDS", 60.0)
    store = opened()
    store.put_tool(there[0], "other", "1", tool(description=LONG))
    monkeypatch.setattr(opening, "_connect", None)
    store.sync()
    assert len(store.tools()) == 2


def test_an_index_that_is_deleted_on_a_full_disk(there, full, opened, folder):
    id, kept = there
    store = opened()
    assert store.tool(id, "forecast", "1") == kept
    for file in (folder / ".state").glob("index*"):
        file.unlink()
    assert store.tool(id, "forecast", "1") == kept
    assert store.put_tool(id, "other", "1", tool()) == store.tool(id, "other", "1")


def test_a_look_that_failed_is_made_again(there, full, opened, folder):
    """Files of the last moments are known by their digests: nothing of a look that failed counts."""
    id, _ = there
    store = opened()
    path = file_of(folder)
    path.with_name("other@1.json").write_text(
        path.read_text().replace('"forecast"', '"other"').replace(store.tool(id, "forecast", "1").id, id)
    )
    assert store.sync()
    assert {one.slug for one in store.tools()} == {"forecast", "other"}
    full.undo()
    store.sync()
    assert kept_in(folder) == {"forecast", "other"}


def test_on_a_loop_nobody_waits_until_it_is_put_right(there, opened, folder, monkeypatch):
    monkeypatch.setattr("onetool.sources.bundles.files.sync.LOCK_SECONDS", 10**6)
    store = opened()
    id, kept = there
    store.state()
    path = file_of(folder)
    path.with_name("other@1.json").write_text(path.read_text().replace('"forecast"', '"other"').replace(kept.id, id))
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)  # another process writes, and does not come to an end

    async def ask():
        store._is_outdated = True
        for _ in range(2):
            assert store.tool(id, "forecast", "1") == kept
        os.close(handle)
        await until_async(lambda: len(store.tools()) == 2)

    asyncio.run(ask())
