"""What is put comes back: by name, in lists, page by page; disabled things only where they are asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sources.bundles.contents.made import (
    MemoryStore,
    bundle,
    bundle_id,
    drop,
    path_of,
    put,
    row_of,
    slugs,
    tool,
    tool_id,
)

from onetool.core.errors import Mistake
from onetool.sources.bundles.queries import ListQuery
from onetool.sources.bundles.store.contents import FileRow


def test_a_tool_comes_back_as_it_was_put(store):
    one = tool(
        1,
        "Wetter",
        display_name="Wie wird's?",
        tags=("a", "b"),
        arg_schema={"type": "object", "maximum": 2**80, "x": [None, 1.5, "\x00é😀"]},
        script_impl={"code": "x = '''\n'''"},
    )
    put(store, bundle(), one)
    assert store.tool(bundle_id(1), "Wetter", "1") == one
    assert store.tool(bundle_id(1), "wetter", "1") is None
    assert store.bundle(bundle_id(1)) == bundle()
    assert store.bundle(bundle_id(2)) is None


def test_lists_come_in_the_order_of_ids_from_behind_the_last(store):
    put(store, bundle(), *(tool(number) for number in (5, 3, 9, 1)))
    assert slugs(store.tools()) == ["tool-1", "tool-3", "tool-5", "tool-9"]
    assert slugs(store.tools(ListQuery(after=tool_id(3), limit=1))) == ["tool-5"]
    assert slugs(store.tools(ListQuery(after=tool_id(4), limit=10))) == ["tool-5", "tool-9"]
    assert store.tools(ListQuery(limit=0)) == []


@given(data=st.data())
def test_tags_and_bundles_choose_and_pages_add_up(data):
    store = MemoryStore()
    tags = st.lists(st.sampled_from("abcd"), max_size=3, unique=True)
    enabled = st.booleans()
    boxes = [bundle(number, is_enabled=data.draw(enabled)) for number in range(3)]
    tools = [
        tool(number, of=data.draw(st.integers(0, 2)), tags=tuple(data.draw(tags)), is_enabled=data.draw(enabled))
        for number in range(data.draw(st.integers(0, 12)))
    ]
    put(store, *boxes, *tools)
    some, of = data.draw(tags), data.draw(st.lists(st.sampled_from([bundle_id(n) for n in range(4)]), max_size=3))
    everyone, size = data.draw(st.booleans()), data.draw(st.integers(1, 5))
    live = {one.id for one in boxes if one.is_enabled}
    expected = [
        one
        for one in tools
        if (not some or set(some) & set(one.tags))
        and (not of or one.bundle_id in of)
        and (everyone or (one.is_enabled and one.bundle_id in live))
    ]
    found, after = [], None
    while page := store.tools(ListQuery(some, of, everyone, after, size)):
        assert len(page) <= size
        found += page
        after = page[-1].id
    assert found == expected


def test_bundles_that_are_disabled_or_soft_deleted_are_listed_only_on_request(store):
    gone = bundle(3, soft_deleted_at="2026-11-15T16:00:00.000Z")
    put(store, bundle(1), bundle(2, is_enabled=False), gone, tool(1, of=1), tool(2, of=2), tool(3, of=3))
    assert [one.id for one in store.bundles()] == [bundle_id(1)]
    assert [one.id for one in store.bundles(ListQuery(include_disabled=True, limit=2))] == [bundle_id(1), bundle_id(2)]
    assert store.bundles(
        ListQuery(bundle_ids=[bundle_id(3), bundle_id(1)], include_disabled=True, after=bundle_id(1))
    ) == [gone]
    assert slugs(store.tools()) == ["tool-1"], "what is in them counts as disabled"
    assert slugs(store.tools(ListQuery(include_disabled=True))) == ["tool-1", "tool-2", "tool-3"]
    assert slugs(store.search("tool")) == ["tool-1"]
    assert len(store.search("tool", include_disabled=True)) == 3
    put(store, bundle(2, is_enabled=True))
    assert slugs(store.tools()) == ["tool-1", "tool-2"]


BUILT_IN = [(bundle(9, is_built_in=True), [tool(9, of=9, is_built_in=True)])]


def test_everything_is_all_that_is_not_built_in():
    store = MemoryStore(built_in=BUILT_IN)
    put(store, bundle(1, is_enabled=False), tool(2), tool(1))
    bundles, tools = store.everything()
    put(store, tool(3))
    assert [one.id for one in bundles] == [bundle_id(1)]
    assert slugs(tools) == ["tool-1", "tool-2"], "of the moment when it was asked for"


def test_files_that_can_not_be_used_are_told_and_known(store):
    odd = "b/tools/\udcff\udcfe.json"  # a name that is not UTF-8
    store.follow(FileRow("b/bundle.json", b"", 1, "it is half a file"), FileRow(odd, b"", 2**62, "what is this"))
    assert store.mistakes() == [
        Mistake(file="b/bundle.json", message="it is half a file"),
        Mistake(file="b/tools/\udcff\udcfe.json", message="what is this"),
    ]
    assert store.now.file(odd).stamp == 2**62
    drop(store, odd)
    drop(store, odd)
    assert [mistake.file for mistake in store.mistakes()] == ["b/bundle.json"]


def test_a_file_may_become_something_else(store):
    put(store, bundle())
    path = path_of(tool(1))
    store.follow(row_of(tool(1), path))
    store.follow(row_of(tool(2), path))
    assert slugs(store.tools(ListQuery(include_disabled=True))) == ["tool-2"]
    store.follow(FileRow(path, b"", 1, "no"))
    assert store.tools(ListQuery(include_disabled=True)) == []
    store.follow(row_of(tool(3), path))
    assert (slugs(store.tools()), store.mistakes()) == (["tool-3"], [])


def test_two_files_can_not_claim_one_thing(store):
    """The usual name wins, whichever file was read first."""
    put(store, bundle(), tool(1))
    store.follow(
        row_of(tool(1, "other"), f"{bundle_id(1)}/tools/a.json"),
        row_of(tool(2, "tool-1"), f"{bundle_id(1)}/tools/b.json"),
        row_of(bundle(), "second/bundle.json"),
    )
    assert slugs(store.tools()) == ["tool-1"]
    first, second, third = store.mistakes()
    assert first.message.startswith(f"the tool {tool_id(1)} is in {path_of(tool(1))} already")
    assert second.message.startswith(f"the tool tool-1@1 is in {path_of(tool(1))} already")
    assert third.message.startswith(f"the bundle {bundle_id(1)} is in {path_of(bundle())} already")
    drop(store, tool(1))
    assert slugs(store.tools()) == ["other", "tool-1"]
    store.follow(row_of(bundle(), "box-000000000001/bundle.json"))
    assert store.tools() == [], "the folder of this name is the bundle's"


def test_a_change_that_fails_leaves_nothing(store):
    put(store, bundle(), tool(1))
    before = store.state()

    def rows():
        yield row_of(tool(2))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.now.following(rows())
    assert slugs(store.tools()) == ["tool-1"]
    assert store.state() == before
    put(store, tool(2))
    assert store.state() > before


def test_what_is_put_again_as_it_was_is_no_change(store):
    put(store, bundle(), tool(1), tool(2))
    before = store.now
    put(store, bundle(), tool(1))
    assert store.now is before
    store.follow(replace(row_of(tool(1)), stamp=7))
    assert store.now.revision == before.revision
    assert store.now.file(path_of(tool(1))).stamp == 7
    assert store.now.tools is before.tools


def test_a_change_copies_the_bundle_that_it_is_in_and_nothing_else(store):
    put(store, bundle(1), bundle(2), tool(1, of=1), tool(2, of=2))
    before = store.now
    put(store, tool(1, of=1, description="another one"))
    assert store.now.tools[bundle_id(2)] is before.tools[bundle_id(2)]
    assert before.tool(bundle_id(1), "tool-1", "1").tool().description == ""
    assert store.tool(bundle_id(1), "tool-1", "1").description == "another one"


def test_a_file_with_an_id_of_what_is_built_in_is_refused():
    store = MemoryStore(built_in=BUILT_IN)
    put(store, bundle(9), bundle(), tool(9, of=1))
    assert {mistake.file for mistake in store.mistakes()} == {path_of(bundle(9)), path_of(tool(9, of=1))}
    assert all("the built-in bundles" in mistake.message for mistake in store.mistakes())
    assert store.tool(bundle_id(9), "tool-9", "1").is_built_in


def test_half_a_character_is_the_name_of_nothing(store):
    assert store.tool(bundle_id(1), "\ud800", "1") is None
    assert store.search("\ud800") == []
