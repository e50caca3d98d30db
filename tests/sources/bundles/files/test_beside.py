"""What is beside the files: built-in bundles, usage, the key, the place itself, several stores of one folder."""

import json
import os
import shutil
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from threading import Barrier, Thread

import pytest
from sources.bundles.files.things import an_id, built_in, bundle, reasons, tool, with_tool

from onetool.database.sqlite import SqliteDatabase
from onetool.sources.bundles import usage
from onetool.sources.bundles.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError, OutdatedError
from onetool.sources.bundles.model import ToolExample
from onetool.sources.bundles.queries import ListQuery, tag_of
from onetool.sources.bundles.store import folder as files_of
from onetool.sources.bundles.store import overlay
from onetool.sources.bundles.store.paths import STATE


def nested(levels, value=0):
    for _ in range(levels):
        value = [value]
    return value


# What is built in


def test_built_in_bundles_are_listed_and_nothing_is_made(opened, kept):
    mine, tools = built_in()
    store = opened((mine, tools))
    id, before = mine.id, kept()
    assert store.bundles() == [mine]
    assert store.tools(ListQuery(bundle_ids=[id])) == sorted(tools, key=lambda one: one.id)
    assert store.everything()[0] == []
    for refused in (
        lambda: store.put_bundle(id, bundle()),
        lambda: store.delete_bundle(id),
        lambda: store.put_tool(id, "new", "1", tool()),
        lambda: store.delete_tool(id, "read-file", "1"),
        lambda: store.put_all(mine, []),
    ):
        with pytest.raises(ForbiddenError, match="built in") as caught:
            refused()
        assert caught.value.code == "built_in"
    assert kept() == before


def test_the_file_of_switches(opened, folder):
    mine, tools = built_in()
    opened((mine, tools)).patch_tool(mine.id, "read-file", "1", False)
    assert json.loads((folder / "builtin.json").read_text()) == {
        "bundles": {},
        "tools": {"fs/read-file@1": False},
        "schemaVersion": "1",
    }


def test_their_switches_are_kept(opened):
    mine, tools = built_in()
    store = opened((mine, tools))
    off = store.patch_tool(mine.id, "read-file", "1", False)
    assert (off.is_enabled, off.modified_at) == (False, tools[0].modified_at)
    assert [one.slug for one in store.tools()] == ["list-dir"]
    other = opened((mine, tools))
    assert not other.tool(mine.id, "read-file", "1").is_enabled
    assert not other.patch_bundle(mine.id, False).is_enabled
    with pytest.raises(ForbiddenError, match="disabled"):
        store.patch_tool(mine.id, "read-file", "1", True)
    store.catch_up()
    assert store.bundles() == []
    assert store.patch_bundle(mine.id, True, match=tag_of(store.bundle(mine.id))).is_enabled
    with pytest.raises(OutdatedError):
        store.patch_bundle(mine.id, False, match="x")
    with pytest.raises(NotFoundError):
        store.patch_tool(mine.id, "write-file", "1", False)


def test_switches_by_hand_and_a_broken_file_of_them(opened, folder):
    mine, tools = built_in()
    store = opened((mine, tools))
    store.patch_tool(mine.id, "read-file", "1", False)
    (folder / "builtin.json").write_text('{"bundles": {"fs": false}}')
    store.sync()
    assert store.bundles() == []
    (folder / "builtin.json").write_text("{")
    store.sync()
    assert store.bundles() == []
    assert "line 1" in reasons(store)["builtin.json"]
    assert opened((mine, tools)).bundles() == []
    with pytest.raises(ConflictError, match=r"builtin\.json can't be used"):
        store.patch_bundle(mine.id, True)
    (folder / "builtin.json").unlink()
    store.sync()
    assert (store.bundles(), store.mistakes()) == ([mine], [])


def test_a_broken_file_of_switches_opens_nothing_where_none_were_known(opened, folder):
    mine, tools = built_in()
    opened((mine, tools)).patch_tool(mine.id, "read-file", "1", False)
    (folder / "builtin.json").write_text('{"tools": {"fs/read-file@1": false}')
    shutil.rmtree(folder / STATE)  # as in a fresh copy
    store = opened((mine, tools))
    assert store.bundles() == store.tools() == []
    assert "are disabled" in reasons(store)["builtin.json"]
    with pytest.raises(ConflictError, match=r"builtin\.json can't be used"):
        store.patch_bundle(mine.id, True)
    (folder / "builtin.json").write_text('{"tools": {"fs/read-file@1": false}}')
    store.sync()
    assert [one.slug for one in store.tools()] == ["list-dir"]


@pytest.mark.parametrize(
    "value", [nested(300), nested(90, [0] * 7700), "x" * 200], ids=["deep", "wide when indented", "short"]
)
def test_examples_of_what_is_built_in_can_be_read_again_or_are_refused(opened, folder, value):
    mine, tools = built_in()
    store = opened((mine, tools))
    store.patch_tool(mine.id, "list-dir", "1", False)
    many = tuple(ToolExample(name=f"n{number}", args={"value": value}) for number in range(20))
    with suppress(InvalidError):
        store.put_examples(mine.id, "read-file", "1", many)
    assert store.patch_tool(mine.id, "list-dir", "1", True).is_enabled
    assert (folder / "builtin.json").stat().st_size < 1024**2
    shutil.rmtree(folder / STATE)
    assert reasons(opened((mine, tools))) == {}


def test_examples_leave_room_for_switches(opened, monkeypatch):
    monkeypatch.setattr(overlay, "MAX_EXAMPLE_BYTES", 1000)
    mine, tools = built_in()
    store = opened((mine, tools))
    with pytest.raises(InvalidError, match="examples of built-in and derived tools") as caught:
        store.put_examples(mine.id, "read-file", "1", (ToolExample(name="long", args={"value": "x" * 1000}),))
    assert caught.value.pointer == "/examples"


def test_examples_of_what_is_built_in_reach_the_others(opened):
    mine, tools = built_in()
    store, other = opened((mine, tools)), opened((mine, tools))
    assert other.tool(mine.id, "read-file", "1").examples == ()
    some = (ToolExample(name="one", args={"path": "a"}),)
    put = store.put_examples(mine.id, "read-file", "1", some)
    other.sync()
    for one in (store, other, opened((mine, tools))):
        assert one.tool(mine.id, "read-file", "1") == put
    assert put.examples == some


def test_two_built_in_things_of_one_name_are_a_mistake_of_the_program(opened):
    with pytest.raises(InvalidError, match="two built-in things called fs"):
        opened(built_in(), built_in())


# Usage


def test_usage_is_counted_and_kept(opened, clock):
    store = opened()
    _, kept = with_tool(store)
    for _ in range(3):
        store.counter.record(kept.id)
    clock.now += 1.5
    store.counter.record(kept.id)
    expected = {kept.id: (4, "2026-09-21T14:13:21.500Z")}
    assert store.counter.of([kept.id, "other"]) == expected
    other = opened()
    other.counter.record(kept.id)
    other.close()
    store.close()
    assert opened().counter.of([kept.id]) == {kept.id: (5, "2026-09-21T14:13:21.500Z")}


@pytest.mark.skipif(os.name != "posix", reason="there are no modes")
def test_what_is_counted_is_for_its_owner_alone(opened, folder):
    _, kept = with_tool(opened())
    for calls in (1, 2):
        store = opened()
        store.counter.record(kept.id)
        assert store.counter.of([kept.id])[kept.id][0] == calls
        store.close()
        files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (folder / ".state").glob("state.db*")}
        assert "state.db" in files
        assert set(files.values()) == {0o600}
        (folder / ".state" / "state.db").chmod(0o644)


def test_usage_that_others_count_is_seen_at_once(opened):
    store, other = opened(), opened()
    with_tool(store)
    for calls in (1, 2, 3):
        other.counter.record("a")
        other.counter.flush()
        assert store.counter.of(["a", "b"])["a"][0] == calls
    assert len(store.counter.of(["a", *map(str, range(1200))])) == 1


def test_usage_can_be_counted_in_the_state_of_the_app(opened, folder, tmp_path):
    with closing(SqliteDatabase(tmp_path / "state.db")) as database:
        store = opened(database=database)
        _, kept = with_tool(store)
        store.counter.record(kept.id)
        store.close()
        assert database.read(lambda work: work.execute("SELECT tool, calls FROM bundle_usage")) == [(kept.id, 1)]
        assert opened(database=database).counter.of([kept.id])[kept.id][0] == 1
    assert not (folder / ".state" / "state.db").exists()


def test_a_locked_database_delays_no_count_and_loses_none(opened, tmp_path, monkeypatch):
    monkeypatch.setattr(usage, "CALL_WAIT_S", 0.05)
    with closing(SqliteDatabase(tmp_path / "state.db")) as database:
        database.write(lambda work: None)
        store = opened(database=database)
        with closing(sqlite3.connect(database.file)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            store.counter.record("a")
            store.counter.flush()
            assert store.counter.of(["a"])["a"][0] == 1
        store.counter.flush()
        assert store.counter.all()["a"][0] == 1


def test_usage_of_many_threads(opened):
    store = opened()
    _, kept = with_tool(store)
    threads = [Thread(target=lambda: [store.counter.record(kept.id) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    assert opened().counter.of([kept.id])[kept.id][0] == 2000


def test_usage_makes_no_folder_and_survives_a_broken_file(opened, folder):
    store = opened()
    store.counter.record("a")
    assert store.counter.of(["a"])["a"][0] == 1
    store.close()
    assert not folder.exists()
    store = opened()
    with_tool(store)
    (folder / ".state" / "state.db").write_text("x" * 5000)
    store.counter.record("b")  # the first store may still write its own, now that there is a folder
    assert store.counter.of(["b"])["b"][0] == 1
    store.close()


# The key


def test_one_key_for_all_stores(opened):
    store = opened()
    with_tool(store)
    assert len(store.key()) == 32
    assert opened().key() == store.key()


def test_the_key_of_an_empty_store_makes_nothing(store, folder):
    assert store.key() == store.key()
    assert not folder.exists()


def test_threads_that_ask_first_get_one_key(opened):
    with_tool(opened())
    stores, started = [opened() for _ in range(4)], Barrier(4)

    def key(store):
        started.wait(10)
        return store.key()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(key, stores))) == 1


# The place


def test_an_empty_store(store, kept):
    before = kept()
    assert (store.bundles(), store.tools(), store.mistakes(), store.reap()) == ([], [], [], [])
    assert store.search("x") == []
    assert not store.sync()
    assert kept() == before


def test_git_does_not_see_the_state_of_this_machine(store, folder):
    with_tool(store)
    assert (folder / ".state" / ".gitignore").read_text() == "*\n"
    assert oct(folder.stat().st_mode & 0o777) == "0o700"


def test_a_folder_that_somebody_else_makes_is_noticed(store, opened, folder):
    assert store.bundles() == []
    id, kept = with_tool(opened())
    assert store.sync()
    assert store.tool(id, "forecast", "1") == kept


def test_where_nothing_can_be_written_all_can_be_read(opened, folder, monkeypatch):
    id, kept = with_tool(opened())
    before = {path.name for path in (folder / ".state").iterdir()}
    monkeypatch.setattr(files_of.os, "access", lambda *_: False)
    store = opened()
    assert store.tool(id, "forecast", "1") == kept
    assert [found.tool for found in store.search("forecast")] == [kept]
    monkeypatch.undo()
    assert {path.name for path in (folder / ".state").iterdir()} == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission(opened, folder):
    id, kept = with_tool(opened())
    folder.chmod(0o500)
    (folder / ".state").chmod(0o500)
    try:
        assert opened().tool(id, "forecast", "1") == kept
    finally:
        folder.chmod(0o700)
        (folder / ".state").chmod(0o700)


# Several stores of one folder


def test_what_one_writes_the_other_sees(opened):
    first, second = opened(), opened()
    assert second.bundles() == []
    id, kept = with_tool(first)
    second.sync()
    assert second.tool(id, "forecast", "1") == kept
    state = second.state()
    first.patch_tool(id, "forecast", "1", False)
    second.catch_up()
    assert not second.tool(id, "forecast", "1").is_enabled
    assert second.state() != state
    with pytest.raises(ConflictError):
        second.put_tool(id, "forecast", "1", tool())


def test_many_threads_write_at_once(opened):
    store, id, refused = opened(), an_id(), []
    store.put_bundle(id, bundle())

    def put(number):
        for key in range(10):
            try:
                store.put_tool(id, f"t{key}", "1", tool(description=str(number)))
            except ConflictError:
                refused.append(key)

    threads = [Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.tools()) == 10
    assert len(refused) == 30
