"""What may be changed, and what is refused: then nothing has changed."""

import pytest
from sources.bundles.files.things import an_id, bundle, file_of, tool, with_tool

from onetool.sources.bundles.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    OutdatedError,
    UnavailableError,
)
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.queries import ListQuery, tag_of

DAY = 24 * 3600


# Bundles


def test_a_bundle_is_put_and_found(store):
    id = an_id()
    put, is_new = store.put_bundle(id, bundle(display_name="Weather", description="…"))
    assert is_new
    assert store.bundle(id) == put
    assert (put.slug, put.display_name, put.is_enabled, put.soft_deleted_at) == ("weather", "Weather", True, None)
    assert put.created_at == put.modified_at == "2026-09-21T14:13:20.000Z"


def test_another_put_replaces_it_and_keeps_when_it_was_made(store, clock):
    id = an_id()
    first, _ = store.put_bundle(id, bundle())
    clock.now += 60
    second, is_new = store.put_bundle(id, bundle("climate", description="More."))
    assert not is_new
    assert (second.slug, second.created_at) == ("climate", first.created_at)
    assert second.modified_at > first.modified_at
    assert store.bundle(id) == second


def test_a_switch_is_no_modification(store, clock):
    id, kept = with_tool(store)
    first = store.bundle(id)
    clock.now += 60
    off = store.patch_bundle(id, False)
    assert (off.is_enabled, off.modified_at) == (False, first.modified_at)
    on, _ = store.put_bundle(id, bundle())
    assert (on.is_enabled, on.modified_at) == (True, first.modified_at)
    toggled = store.patch_tool(id, "forecast", "1", False)
    assert (toggled.is_enabled, toggled.modified_at) == (False, kept.modified_at)


def test_put_of_the_same_changes_nothing(store, kept):
    id, _ = with_tool(store)
    before = kept()
    store.put_bundle(id, bundle())
    store.patch_tool(id, "forecast", "1", True)
    store.patch_bundle(id, True)
    assert kept() == before


def test_put_of_the_same_writes_nothing(store, folder):
    id = an_id()
    store.put_bundle(id, bundle())
    before = written(folder)
    store.put_bundle(id, bundle())
    assert written(folder) == before


def written(folder):
    """Which file it is, and when it was written. When it was read does not matter."""
    status = next(folder.glob("*/bundle.json")).stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


@pytest.mark.parametrize("id", ["x", "01890A5D-AC96-474B-BCCE-B302099A8057", "../../etc"])
def test_ids_are_checked(store, id, folder):
    with pytest.raises(InvalidError, match="UUIDv7"):
        store.put_bundle(id, bundle())
    assert not folder.exists()


def test_slugs_and_versions_are_checked(store):
    id, _ = with_tool(store)
    with pytest.raises(InvalidError):
        store.put_bundle(an_id(), bundle("a_b"))
    with pytest.raises(InvalidError):
        store.put_tool(id, "a/b", "1", tool())
    with pytest.raises(InvalidError):
        store.put_tool(id, "a", "1/2", tool())


def test_a_bundle_with_tools_is_not_deleted(store, kept):
    id, _ = with_tool(store)
    before = kept()
    with pytest.raises(ConflictError, match=r"delete its 1 tools first .*forecast@1") as caught:
        store.delete_bundle(id)
    assert caught.value.code == "not_empty"
    assert kept() == before


def test_nor_one_with_a_file_that_can_not_be_read(store, folder):
    id, _ = with_tool(store)
    file_of(folder).write_text("{")
    store.sync()
    with pytest.raises(ConflictError, match=r"forecast@1\.json"):
        store.delete_bundle(id)


def test_a_deleted_bundle_takes_nothing_inside_and_comes_back_with_a_put(store, clock):
    id = an_id()
    first, _ = store.put_bundle(id, bundle())
    store.delete_bundle(id)
    gone = store.bundle(id)
    assert gone.soft_deleted_at == "2026-09-21T14:13:20.000Z"
    clock.now += 60
    store.delete_bundle(id)
    assert store.bundle(id) == gone
    for refused in (
        lambda: store.put_tool(id, "a", "1", tool()),
        lambda: store.patch_tool(id, "a", "1", True),
        lambda: store.patch_bundle(id, True),
    ):
        with pytest.raises(ForbiddenError, match="deleted"):
            refused()
    back, is_new = store.put_bundle(id, bundle())
    assert (back, is_new) == (first, False)
    store.put_tool(id, "a", "1", tool())


def test_a_disabled_bundle_takes_deletes_only(store):
    id, kept = with_tool(store)
    store.patch_bundle(id, False)
    with pytest.raises(ForbiddenError, match="disabled") as caught:
        store.put_tool(id, "other", "1", tool())
    assert caught.value.code == "disabled"
    with pytest.raises(ForbiddenError, match="disabled"):
        store.patch_tool(id, "forecast", "1", False)
    assert store.tool(id, "forecast", "1") == kept
    store.delete_tool(id, "forecast", "1")
    assert store.tool(id, "forecast", "1") is None


def test_reaped_after_two_days(store, clock):
    empty, back = an_id(), an_id()
    for id in (empty, back):
        store.put_bundle(id, bundle())
        store.delete_bundle(id)
    clock.now += 2 * DAY - 1
    assert store.reap() == []
    store.put_bundle(back, bundle())
    clock.now += 1
    assert store.reap() == [empty]
    assert store.bundle(empty) is None
    assert [one.id for one in store.bundles()] == [back]
    assert store.reap() == []


def test_reaped_after_two_days_if_still_empty(store, clock, folder):
    empty, full, back = an_id(), an_id(), an_id()
    for id in (empty, full, back):
        store.put_bundle(id, bundle())
        store.delete_bundle(id)
    clock.now += 2 * DAY - 1
    assert store.reap() == []
    store.put_bundle(back, bundle())
    by_hand = next(folder.glob(f"*{full[-12:]}")) / "tools"
    by_hand.mkdir()
    (by_hand / "a@1.json").write_text("{}")
    clock.now -= 3600
    assert store.reap() == []
    clock.now += 3601
    assert store.reap() == [empty]
    assert store.bundle(empty) is None
    assert len(list(folder.glob("weather-*"))) == 2
    assert store.reap() == []


def test_what_people_keep_beside_is_not_reaped(store, clock, folder):
    id = an_id()
    store.put_bundle(id, bundle())
    store.delete_bundle(id)
    (next(folder.glob("weather-*")) / "notes.md").write_text("mine")
    clock.now += 3 * DAY
    assert store.reap() == []
    assert store.bundle(id) is not None


# Tools


def test_a_tool_is_put_and_found(store):
    id, put = with_tool(store)
    assert store.tool(id, "forecast", "1") == put
    assert (put.bundle_id, put.slug, put.version, put.is_enabled) == (id, "forecast", "1", True)


def test_a_second_put_is_a_conflict_and_changes_nothing(store, kept):
    id, _ = with_tool(store)
    before = kept()
    with pytest.raises(ConflictError, match="forecast@1"):
        store.put_tool(id, "forecast", "1", tool(description="Other."))
    assert kept() == before
    store.put_tool(id, "forecast", "2", tool())
    store.put_tool(id, "Forecast", "1", tool())
    assert len(store.tools()) == 3


def test_the_same_name_in_another_bundle(store):
    first, _ = with_tool(store)
    second, _ = with_tool(store)
    assert store.tool(first, "forecast", "1").id != store.tool(second, "forecast", "1").id


def test_a_deleted_tool_leaves_no_file(store, folder):
    id, _ = with_tool(store)
    store.delete_tool(id, "forecast", "1")
    assert not list(folder.glob("*/tools/*"))


def test_a_tool_is_deleted_for_good(store):
    id, first = with_tool(store)
    store.delete_tool(id, "forecast", "1")
    assert store.tool(id, "forecast", "1") is None
    with pytest.raises(NotFoundError):
        store.delete_tool(id, "forecast", "1")
    assert store.put_tool(id, "forecast", "1", tool()).id != first.id


def test_what_is_not_there(store):
    id, _ = with_tool(store)
    for missing in (
        lambda: store.put_tool(an_id(), "a", "1", tool()),
        lambda: store.patch_tool(id, "forecast", "2", True),
        lambda: store.delete_tool(id, "other", "1"),
        lambda: store.patch_bundle(an_id(), True),
        lambda: store.delete_bundle(an_id()),
    ):
        with pytest.raises(NotFoundError):
            missing()
    assert store.bundle(an_id()) is None
    assert store.tool(an_id(), "forecast", "1") is None


def test_what_can_not_be_there_makes_nothing(store, folder):
    with pytest.raises(NotFoundError):
        store.put_tool(an_id(), "a", "1", tool())
    with pytest.raises(NotFoundError):
        store.delete_bundle(an_id())
    assert not folder.exists()


def test_so_many_tools_and_no_more(opened):
    store = opened(max_tools=2)
    id, _ = with_tool(store)
    store.put_tool(id, "forecast", "2", tool())
    with pytest.raises(ForbiddenError, match="the limit of 2 tools") as caught:
        store.put_tool(id, "forecast", "3", tool())
    assert caught.value.code == "too_many_tools"
    store.delete_tool(id, "forecast", "1")
    store.put_tool(id, "forecast", "3", tool())


# What the caller has seen


def test_tags_of_what_was_seen(store):
    id, kept = with_tool(store)
    tag = tag_of(store.tool(id, "forecast", "1"))
    assert tag == tag_of(kept)
    store.patch_tool(id, "forecast", "1", False, match=tag)
    with pytest.raises(OutdatedError):
        store.patch_tool(id, "forecast", "1", True, match=tag)
    with pytest.raises(OutdatedError):
        store.delete_tool(id, "forecast", "1", match=tag)
    store.delete_tool(id, "forecast", "1", match=tag_of(store.tool(id, "forecast", "1")))
    seen = tag_of(store.bundle(id))
    store.put_bundle(id, bundle("other"), match=seen)
    for refused in (
        lambda: store.put_bundle(id, bundle("third"), match=seen),
        lambda: store.patch_bundle(id, False, match=seen),
        lambda: store.delete_bundle(id, match=seen),
        lambda: store.put_bundle(an_id(), bundle(), match="*"),
    ):
        with pytest.raises(OutdatedError):
            refused()
    assert store.put_bundle(id, bundle("third"), match="*")[0].slug == "third"


def test_only_if_it_is_new(store):
    id = an_id()
    assert store.put_bundle(id, bundle(), create_only=True)[1]
    with pytest.raises(ConflictError):
        store.put_bundle(id, bundle("other"), create_only=True)
    assert store.bundle(id).slug == "weather"


# A whole bundle


def whole(slugs=("a", "b")):
    made = Bundle(id=an_id(), slug="shared", created_at="2026-01-01T00:00:00Z", modified_at="2026-01-01T00:00:00.000Z")
    times = {"created_at": made.created_at, "modified_at": made.modified_at}
    content = tool()
    fields = {name: getattr(content, name) for name in content.__struct_fields__}
    return made, [Tool(**fields, id=an_id(), bundle_id=made.id, slug=slug, version="1", **times) for slug in slugs]


def test_a_whole_bundle_at_once(store, opened):
    made, tools = whole()
    store.put_all(made, tools)
    assert {one.slug for one in store.tools(ListQuery(bundle_ids=[made.id]))} == {"a", "b"}
    assert store.bundle(made.id).created_at == "2026-01-01T00:00:00.000Z"
    assert opened().sync()
    assert store.mistakes() == []


def test_all_of_it_or_nothing(store, kept):
    made, tools = whole()
    store.put_all(made, tools)
    before = kept()
    with pytest.raises(ConflictError):
        store.put_all(made, [])
    other, same = whole()
    with pytest.raises(ConflictError, match="id"):
        store.put_all(other, [same[0], tools[0]])
    with pytest.raises(ConflictError, match="twice"):
        store.put_all(other, whole(("a", "a"))[1])
    with pytest.raises(InvalidError):
        store.put_all(other, whole(("a", "b/c"))[1])
    assert kept() == before


def test_two_bundles_whose_ids_end_alike(store, folder):
    first = an_id()
    second = f"01890a5d-ac96-774b-bcce-{first[-12:]}"
    for id in (first, second):
        store.put_bundle(id, bundle())
        store.put_tool(id, "forecast", "1", tool())
    assert len(store.bundles()) == len(list(folder.glob("weather-*"))) == 2
    assert store.mistakes() == []


def test_a_folder_that_can_not_be_written_says_so(tmp_path, opened):
    (tmp_path / "file").write_text("")
    store = opened(folder=tmp_path / "file" / "bundles")
    assert store.bundles() == []
    with pytest.raises(UnavailableError, match="Not a directory"):
        store.put_bundle(an_id(), bundle())
