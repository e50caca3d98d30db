"""Names that a file system could take for one another, or not take at all; and clocks that go back."""

import unicodedata

import pytest
from sources.bundles.files.things import Clock, an_id, bundle, tool

from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.queries import ListQuery
from onetool.sources.bundles.store.paths import bundle_folders, tool_file
from onetool.sources.bundles.store.store import folder_store

LONG = "𝔘" * 64  # 256 bytes


@pytest.fixture
def store(tmp_path):
    made = folder_store(tmp_path / "bundles")
    yield made
    made.close()


def test_names_never_cross(store, tmp_path):
    id = an_id()
    store.put_bundle(id, bundle())
    names = [
        *(("A", "1"), ("a", "1"), ("a", "A"), ("a", "a"), ("a", ".."), ("a", "."), ("a", "..."), ("-", "-")),
        *(("ß", "1"), ("ss", "1"), ("Å", "1"), ("å", "1"), ("con", "1"), ("x" * 64, "y" * 64), (LONG, LONG)),
        *((LONG, LONG[:-1] + "𝔙"), ("ﬁ", "1"), ("fi", "1"), ("ı", "1"), ("i", "1"), ("I", "1")),
    ]
    for number, (slug, version) in enumerate(names):
        store.put_tool(id, slug, version, tool(description=f"d{number}"))
    again = folder_store(tmp_path / "bundles")
    for one in (store, again):
        for number, (slug, version) in enumerate(names):
            assert one.tool(id, slug, version).description == f"d{number}"
    files = [path.name for path in (tmp_path / "bundles").glob("*/tools/*")]
    assert len({name.casefold() for name in files}) == len(files) == len(names)
    assert len({unicodedata.normalize("NFKC", name).casefold() for name in files}) == len(names)
    assert all(len(name.encode()) <= 200 for name in files)
    again.close()
    store.delete_tool(id, "A", "1")
    assert store.tool(id, "a", "1").description == "d1"


def test_other_forms_of_a_name_are_refused(store):
    id = an_id()
    store.put_bundle(id, bundle())
    with pytest.raises(InvalidError, match="NFC"):
        store.put_tool(id, unicodedata.normalize("NFD", "é"), "1", tool())
    for slug in ("..", ".", "a/../b", "a\0b", ""):
        with pytest.raises(InvalidError):
            store.put_tool(id, slug, "1", tool())


def test_bundles_of_any_name(store):
    slugs = ["A", "a", LONG, "x" * 64, "é", "-"]
    ids = [an_id() for _ in slugs]
    for id, slug in zip(ids, slugs, strict=True):
        store.put_bundle(id, bundle(slug))
        store.put_tool(id, LONG, LONG, tool())
    assert [store.bundle(id).slug for id in ids] == slugs
    assert all(len(name.encode()) < 200 for slug in slugs for name in bundle_folders(slug, ids[0]))


def test_a_name_with_a_hash_is_nobody_elses():
    assert tool_file("b", "a", "1") == "b/tools/a@1.json"
    assert tool_file("b", "A", "1").startswith("b/tools/A@1~")


def test_a_clock_that_goes_back_an_hour_loses_nothing(tmp_path):
    clock = Clock()
    store = folder_store(tmp_path / "bundles", now=clock)
    kept, deleted = an_id(), an_id()
    first, _ = store.put_bundle(kept, bundle())
    store.put_bundle(deleted, bundle())
    store.delete_bundle(deleted)
    before = store.put_tool(kept, "before", "1", tool())
    clock.now -= 3600
    after = store.put_tool(kept, "after", "1", tool())
    assert after.id > before.id
    changed, _ = store.put_bundle(kept, bundle("other"))
    assert changed.modified_at >= first.modified_at == changed.created_at
    assert store.reap() == []
    store.counter.record(after.id)
    assert {one.slug for one in store.tools()} == {"before", "after"}
    store.close()
    again = folder_store(tmp_path / "bundles", now=clock)
    assert {one.slug for one in again.tools()} == {"before", "after"}
    assert len(again.bundles(ListQuery(include_disabled=True))) == 2
    again.close()
