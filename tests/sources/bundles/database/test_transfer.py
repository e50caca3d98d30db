"""Everything from a folder into a database and back: nothing is lost."""

import msgspec
import pytest
from sources.bundles.files.things import Clock, an_id, built_in, bundle, file_of, files, rows, tool

from onetool.database.moving import Moved
from onetool.sources.bundles.model import ToolExample
from onetool.sources.bundles.queries import ListQuery
from onetool.sources.bundles.store.copy import export_bundles, import_bundles
from onetool.sources.bundles.store.store import folder_store

EXAMPLES = (ToolExample(name="one", args={"city": "Paris"}),)


@pytest.fixture
def full(tmp_path):
    """A folder with some of everything."""
    clock = Clock()
    store = folder_store(tmp_path / "bundles", [built_in()], now=clock)
    id, off, deleted = an_id(), an_id(), an_id()
    for one, slug in ((id, "weather"), (off, "off"), (deleted, "deleted")):
        store.put_bundle(one, bundle(slug, description="Größe"))
    kept = store.put_tool(id, "forecast", "1", tool(tags=("a", "b")))
    store.put_tool(id, "forecast", "2", tool(is_enabled=False))
    clock.now += 60
    store.put_examples(id, "forecast", "1", EXAMPLES)
    store.rename_tool(id, "forecast", "2", "outlook", "2.0")
    store.put_tool(off, "天气", "1", tool())
    store.patch_bundle(off, False)
    store.delete_bundle(deleted)
    store.patch_tool(built_in()[0].id, "read-file", "1", False)
    store.put_examples(built_in()[0].id, "list-dir", "1", EXAMPLES)
    for _ in range(3):
        store.counter.record(kept.id)
    yield store
    store.close()


def test_there_and_back(full, replica, tmp_path):
    before = export_bundles(full)
    database = replica(built_in())
    assert import_bundles(database, before) == Moved(3 + 2)  # with a switch and examples of built-in tools
    there = export_bundles(database)
    assert there == before
    back = folder_store(tmp_path / "back", [built_in()])
    import_bundles(back, there)
    assert files(tmp_path / "back") == files(tmp_path / "bundles")
    assert back.counter.of(before.usage) == full.counter.of(before.usage) != {}
    assert back.tools(ListQuery(include_disabled=True)) == full.tools(ListQuery(include_disabled=True))
    back.close()


def test_it_can_be_repeated_and_goes_on_where_it_ended(full, replica, database):
    store, export = replica(built_in()), export_bundles(full)
    import_bundles(store, export._replace(bundles=export.bundles[:1]))
    assert import_bundles(store, export) == Moved(2, 1 + 2)
    before = rows(database)
    assert import_bundles(store, export) == Moved(0, 3 + 2)
    assert rows(database) == before
    assert store.counter.all() == export.usage
    bundles = [(one, tools[:-1]) for one, tools in export.bundles]
    other = folder_store(full._storage._folder.with_name("other"), [built_in()])
    import_bundles(other, export._replace(bundles=bundles))
    assert import_bundles(other, export).moved == sum(1 for _, tools in export.bundles if tools)
    other.close()


def test_what_differs_is_refused_and_stays(full, replica, database):
    store, export = replica(), export_bundles(full)
    import_bundles(store, export)
    before = rows(database)
    first, tools = next(one for one in export.bundles if one[1])
    for changed in (
        (msgspec.structs.replace(first, slug="other"), tools),
        (first, [msgspec.structs.replace(tools[0], description="Other."), *tools[1:]]),
    ):
        done = import_bundles(store, export._replace(bundles=[changed]))
        assert [(one.is_conflict, "another" in one.why) for one in done.left] == [(True, True)]
    assert rows(database) == before


def test_what_differs_is_replaced_with_force(full, replica):
    store, export = replica(built_in()), export_bundles(full)
    import_bundles(store, export)
    (id, kept) = next((bundle.id, tools) for bundle, tools in export.bundles if len(tools) > 1)
    store.put_bundle(id, bundle("renamed"))
    store.put_tool(id, "mine", "1", tool())  # it stays
    store.put_examples(id, kept[0].slug, kept[0].version, ())
    store.rename_tool(id, kept[1].slug, kept[1].version, "elsewhere", "3")
    store.delete_tool(id, kept[0].slug, kept[0].version)
    store.put_tool(id, kept[0].slug, kept[0].version, tool(description="Another one."))  # with another id
    store.patch_tool(built_in()[0].id, "read-file", "1", True)
    follower = replica(built_in())
    assert export_bundles(follower) == export_bundles(store)
    done = import_bundles(store, export)
    assert sorted(one.what for one in done.left) == ["bundles: fs/read-file@1", "bundles: weather"]
    assert store.tool(built_in()[0].id, "read-file", "1").is_enabled
    assert import_bundles(store, export, force=True) == Moved(2, 2 + 1)
    assert import_bundles(store, export, force=True) == Moved(0, 3 + 2)
    found = export_bundles(store)
    assert export_bundles(follower) == found
    assert found.overlay == export.overlay
    for one, tools in found.bundles:
        before, wanted = next(other for other in export.bundles if other[0].id == one.id)
        assert one == before
        assert [tool for tool in tools if tool.slug != "mine"] == wanted
    assert store.tool(id, "mine", "1") is not None
    assert not store.tool(built_in()[0].id, "read-file", "1").is_enabled


def test_files_that_can_not_be_read_are_reported(full, replica):
    file_of(full._storage._folder).write_text("{")
    export = export_bundles(full)
    assert [mistake.file for mistake in export.broken] == [str(file_of(full._storage._folder))]
    done = import_bundles(replica(), export)
    assert (done.moved, [one.what for one in done.left]) == (3 + 2, [str(file_of(full._storage._folder))])


def test_nothing_from_a_folder_that_is_not_there(tmp_path, replica):
    empty = folder_store(tmp_path / "bundles")
    assert import_bundles(replica(), export_bundles(empty)) == Moved()
    assert not (tmp_path / "bundles").exists()
    empty.close()
