"""A tool under another name: one step for everybody, and the same tool."""

import os

import pytest
from sources.bundles.files.things import an_id, bundle
from sources.bundles.files.things import tool as content

from onetool.sources.bundles.errors import ConflictError, NotFoundError, UnavailableError

ID = an_id()


@pytest.fixture
def tool(store):
    store.put_bundle(ID, bundle())
    return store.put_tool(ID, "one", "1", content())


def test_its_file_is_named_after_it(store, tool, folder):
    store.rename_tool(ID, "one", "1", "two", "2")
    assert [file.name for file in folder.glob("*/tools/*")] == ["two@2.json"]


def test_another_store_finds_it_under_its_new_name(store, opened, tool):
    renamed = store.rename_tool(ID, "one", "1", "two", "2")
    assert (renamed.id, renamed.slug, renamed.version, renamed.created_at) == (tool.id, "two", "2", tool.created_at)
    other = opened()
    assert other.tool(ID, "two", "2") == renamed
    assert other.tool(ID, "one", "1") is None


def test_tools_exchange_their_names(store, opened, tool):
    other = opened()
    second = store.put_tool(ID, "two", "1", content())
    assert {one.id for one in other.tools()} >= {tool.id}
    for old, new in (("one", "three"), ("two", "one"), ("three", "two")):
        store.rename_tool(ID, old, "1", new, "1")
    other.sync()
    for one in (store, other):
        assert (one.tool(ID, "one", "1").id, one.tool(ID, "two", "1").id) == (second.id, tool.id)
        assert one.search("two")[0].tool.id == tool.id
        assert one.mistakes() == []


def test_a_file_that_keeps_its_old_name_is_the_tool_all_the_same(store, opened, tool, folder):
    renamed = store.rename_tool(ID, "one", "1", "two", "1")
    (file,) = folder.glob("*/tools/*")
    file.rename(file.with_name("one@1.json"))
    store.sync()
    assert store.tool(ID, "two", "1") == renamed == opened().tool(ID, "two", "1")
    assert store.rename_tool(ID, "two", "1", "three", "1").id == tool.id
    assert [file.name for file in folder.glob("*/tools/*")] == ["three@1.json"]


def test_a_file_that_can_not_be_renamed_stays_as_it_was(store, tool, monkeypatch, folder):
    (file,) = folder.glob("*/tools/*")
    text, rename = file.read_bytes(), os.rename

    def fail(old, new, **how):
        if str(new).endswith("two@1.json"):
            raise OSError("no")
        rename(old, new, **how)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(UnavailableError):
        store.rename_tool(ID, "one", "1", "two", "1")
    assert store.tools() == [tool]
    assert [(one.name, one.read_bytes()) for one in file.parent.iterdir()] == [(file.name, text)]


def test_a_name_that_is_taken_and_a_tool_that_is_not_there(store, tool):
    store.put_tool(ID, "two", "1", content())
    with pytest.raises(ConflictError):
        store.rename_tool(ID, "one", "1", "two", "1")
    with pytest.raises(NotFoundError):
        store.rename_tool(ID, "gone", "1", "three", "1")
    assert store.rename_tool(ID, "one", "1", "one", "1") == tool
    assert store.tool(ID, "one", "1") == tool
