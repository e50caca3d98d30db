"""What is put comes back: by name, in lists, page by page; disabled things only where they are asked for."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sources.bundles.index.made import STAMP, bundle, bundle_id, path_of, put, slugs, tool, tool_id

from onetool.core.errors import Mistake
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.index import Index, PathTakenError, Stamp


def test_a_tool_comes_back_as_it_was_put(index):
    one = tool(
        1,
        "Wetter",
        display_name="Wie wird's?",
        tags=("a", "b"),
        arg_schema={"type": "object", "maximum": 2**80, "x": [None, 1.5, "\x00é😀"]},
        script_impl={"code": "x = '''\n'''"},
    )
    put(index, bundle(), one)
    assert index.tool(bundle_id(1), "Wetter", "1") == one
    assert index.tool(bundle_id(1), "wetter", "1") is None
    assert index.bundle(bundle_id(1)) == bundle()
    assert index.bundle(bundle_id(2)) is None


def test_lists_come_in_the_order_of_ids_from_behind_the_last(index):
    put(index, bundle(), *(tool(number) for number in (5, 3, 9, 1)))
    assert slugs(index.tools()) == ["tool-1", "tool-3", "tool-5", "tool-9"]
    assert slugs(index.tools(after=tool_id(3), limit=1)) == ["tool-5"]
    assert slugs(index.tools(after=tool_id(4), limit=10)) == ["tool-5", "tool-9"]
    assert index.tools(limit=0) == []


@given(data=st.data())
def test_tags_and_bundles_choose_and_pages_add_up(data):
    index = Index(None)
    tags = st.lists(st.sampled_from("abcd"), max_size=3, unique=True)
    enabled = st.booleans()
    boxes = [bundle(number, is_enabled=data.draw(enabled)) for number in range(3)]
    tools = [
        tool(number, of=data.draw(st.integers(0, 2)), tags=tuple(data.draw(tags)), is_enabled=data.draw(enabled))
        for number in range(data.draw(st.integers(0, 12)))
    ]
    put(index, *boxes, *tools)
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
    while page := index.tools(some, of, everyone, after, size):
        assert len(page) <= size
        found += page
        after = page[-1].id
    assert found == expected
    index.close()


def test_bundles_that_are_disabled_or_soft_deleted_are_listed_only_on_request(index):
    gone = bundle(3, soft_deleted_at="2026-11-15T16:00:00.000Z")
    put(index, bundle(1), bundle(2, is_enabled=False), gone, tool(1, of=1), tool(2, of=2), tool(3, of=3), tool(4, of=4))
    assert [one.id for one in index.bundles()] == [bundle_id(1)]
    assert [one.id for one in index.bundles(include_disabled=True, limit=2)] == [bundle_id(1), bundle_id(2)]
    assert index.bundles([bundle_id(3), bundle_id(1)], include_disabled=True, after=bundle_id(1)) == [gone]
    assert slugs(index.tools()) == ["tool-1"], "what is in them counts as disabled, and what is in none"
    assert slugs(index.tools(include_disabled=True)) == ["tool-1", "tool-2", "tool-3", "tool-4"]
    assert slugs(index.search("tool")) == ["tool-1"]
    assert len(index.search("tool", include_disabled=True)) == 4
    put(index, bundle(2, is_enabled=True))
    assert slugs(index.tools()) == ["tool-1", "tool-2"]


def test_everything_is_all_that_is_not_built_in(index):
    put(index, bundle(1, is_enabled=False), tool(2), tool(1))
    with index.changing() as changes:
        changes.built_in([(bundle(9), [tool(9, of=9)])])
    bundles, tools = index.everything()
    put(index, tool(3))
    assert [one.id for one in bundles] == [bundle_id(1)]
    assert slugs(tools) == ["tool-1", "tool-2"], "of the moment when it was asked for"


def test_files_that_can_not_be_used_are_told_and_known(index):
    odd = "b/tools/\udcff\udcfe.json"  # a name that is no UTF-8
    with index.changing() as changes:
        changes.put_broken("b/x.json", STAMP, "it is half a file")
        changes.put_broken(odd, Stamp(5, 6, 2**64 - 1), "what is this")
    assert index.mistakes() == [
        Mistake(file="b/tools/\udcff\udcfe.json", message="what is this"),
        Mistake(file="b/x.json", message="it is half a file"),
    ]
    assert index.stamps() == {"b/x.json": STAMP, odd: Stamp(5, 6, 2**64 - 1)}
    with index.changing() as changes:
        assert changes.drop(odd)
        assert not changes.drop(odd)
    assert [mistake.file for mistake in index.mistakes()] == ["b/x.json"]


def test_a_file_may_become_something_else(index):
    path = "b/x.json"
    with index.changing() as changes:
        changes.put_tool(tool(1), path, STAMP)
        changes.put_tool(tool(2), path, STAMP)
    assert slugs(index.tools(include_disabled=True)) == ["tool-2"]
    with index.changing() as changes:
        changes.put_bundle(bundle(), path, STAMP)
        assert changes.path_of_bundle(bundle_id(1)) == path
    assert index.tools(include_disabled=True) == []
    with index.changing() as changes:
        changes.put_broken(path, STAMP, "no")
    assert index.bundle(bundle_id(1)) is None
    with index.changing() as changes:
        changes.put_tool(tool(3), path, STAMP)
    assert index.mistakes() == []
    assert index.stamps() == {path: STAMP}


def test_two_files_can_not_claim_one_thing(index):
    put(index, bundle(), tool(1))
    first = path_of(tool(1))
    with index.changing() as changes:
        for claim in (tool(1, "other"), tool(2, "tool-1")):
            with pytest.raises(PathTakenError) as refused:
                changes.put_tool(claim, "second.json", STAMP)
            assert refused.value.path == first
        with pytest.raises(PathTakenError):
            changes.put_bundle(bundle(), "second/bundle.json", STAMP)
    assert slugs(index.tools()) == ["tool-1"]


def test_who_writes_can_look_up_what_is_there(index):
    put(index, bundle(), tool(1))
    with index.changing() as changes:
        changes.built_in([(bundle(9), [tool(9, of=9)])])
        assert changes.count_tools() == 1
        assert changes.path_of_tool(bundle_id(1), "tool-1", "1") == path_of(tool(1))
        assert changes.path_of_tool(bundle_id(9), "tool-9", "1") is None
        assert changes.has_tool_id(tool_id(9))
        assert not changes.has_tool_id(tool_id(8))


def test_nothing_of_a_change_that_fails_is_left(index):
    put(index, bundle(), tool(1))
    before = index.state()
    with pytest.raises(ZeroDivisionError), index.changing() as changes:  # noqa: PT012
        changes.put_tool(tool(2), "x", STAMP)
        assert slugs(index.tools()) == ["tool-1", "tool-2"], "who changes sees it"
        raise ZeroDivisionError
    assert slugs(index.tools()) == ["tool-1"]
    assert index.state() == before
    put(index, tool(2))
    assert index.state() > before


def steps_of_dropping(many):
    """How many steps SQLite takes to forget so many tools in one transaction."""
    index, steps = Index(None), []
    tools = [tool(number) for number in range(1, many + 1)]
    put(index, bundle(), *tools)
    database = index._access._connections.current().database
    database.set_progress_handler(lambda: steps.append(1), 100)
    with index.changing() as changes:
        for one in tools:
            changes.drop(path_of(one))
    database.set_progress_handler(None, 0)
    assert index.tools() == []
    index.close()
    return len(steps)


def test_forgetting_twice_as_many_tools_takes_about_twice_as_long():
    assert steps_of_dropping(1000) < 2.5 * steps_of_dropping(500)


def test_what_is_gone_for_long_is_forgotten(index, monkeypatch):
    monkeypatch.setattr("onetool.sources.bundles.index.changes.KEPT_REVISIONS", 2)
    put(index, bundle(), *(tool(number) for number in range(1, 8)))
    for number in range(1, 7):
        with index.changing() as changes:
            changes.drop(path_of(tool(number)))
    asked = "SELECT id FROM gone ORDER BY id"
    left = index._access.read(lambda connection: connection.database.execute(asked).fetchall())
    assert left == [(tool_id(4),), (tool_id(5),), (tool_id(6),)]


class TestBuiltIn:
    def test_switches_decide_and_only_differences_are_written(self, index):
        packs = [(bundle(8), [tool(8, of=8)]), (bundle(9), [tool(9, of=9)])]
        with index.changing() as changes:
            assert changes.built_in(packs, {bundle_id(8): False, tool_id(9): False})
        assert index.tools() == []
        assert not index.tool(bundle_id(9), "tool-9", "1").is_enabled
        assert index.bundle(bundle_id(8)).is_built_in
        before = index.state()
        with index.changing() as changes:
            assert not changes.built_in(packs, {bundle_id(8): False, tool_id(9): False})
        assert index.state() == before
        with index.changing() as changes:
            assert changes.built_in(packs[:1])
        assert slugs(index.tools()) == ["tool-8"]
        assert index.bundle(bundle_id(9)) is None
        assert index.stamps() == {}

    def test_a_file_with_an_id_of_theirs_is_broken_by_that(self, index):
        put(index, bundle(9), tool(9, of=9))
        with index.changing() as changes:
            changes.built_in([(bundle(9), [tool(9, of=9)])])
        assert index.tool(bundle_id(9), "tool-9", "1").is_built_in
        assert [mistake.file for mistake in index.mistakes()] == sorted([path_of(bundle(9)), path_of(tool(9, of=9))])
        with index.changing() as changes, pytest.raises(PathTakenError) as refused:
            changes.put_bundle(bundle(9), "x", STAMP)
        assert refused.value.path is None


def test_half_a_character_is_the_name_of_nothing(index):
    with pytest.raises(InvalidError):
        index.tool(bundle_id(1), "\ud800", "1")
    assert index.search("\ud800") == []


def test_a_body_that_can_not_be_decoded_is_damage(opened):
    """It was written by another version of ours, or the disk has lost a bit: then everything is read anew."""
    filled = []

    def fill():
        filled.append(1)
        put(index, bundle(), tool(1))

    index = opened(fill)
    assert slugs(index.tools()) == ["tool-1"]
    other = opened()
    with other._access.transaction() as database:
        database.execute("UPDATE bodies SET body = ?", (msgspec.json.encode({"id": 1}),))
    assert slugs(index.tools()) == ["tool-1"]
    assert len(filled) == 2
