"""What one process writes, the others see at once: it stands in a log, and they read those files alone."""

import os
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Barrier, Event, Thread

import pytest
from sources.bundles.files.things import an_id, bundle, file_of, tool, with_tool

from onetool.sources.bundles.files import disk, state_folder, store
from onetool.sources.bundles.files.sync import find_changes
from onetool.sources.bundles.queries import ListQuery


@pytest.fixture
def looks(monkeypatch):
    """What was looked at: paths, or None for the whole folder."""
    found = []

    def find(folder, known, foreign=disk.anybody, paths=None, is_settled=False):
        found.append(paths)
        return find_changes(folder, known, foreign, paths, is_settled)

    monkeypatch.setattr(store, "find_changes", find)
    return found


@pytest.fixture
def two(opened, folder):
    """Two stores, as two processes have them, and a bundle that both know."""
    first, second = opened(), opened()
    id, _ = with_tool(first)
    second.sync()
    return first, second, id


def log_of(folder):
    return folder / ".state" / "changes.log"


def test_only_the_files_of_a_change_are_read(two, looks):
    first, second, id = two
    put = first.put_tool(id, "other", "1", tool())
    assert second.tool(id, "other", "1") == put
    first.rename_tool(id, "other", "1", "new", "2")
    assert second.tool(id, "other", "1") is None
    assert second.tool(id, "new", "2").id == put.id
    first.delete_tool(id, "new", "2")
    assert second.tool(id, "new", "2") is None
    first.put_bundle(id, bundle("renamed"))
    assert second.bundle(id).slug == "renamed"
    assert second.search("renamed")
    assert all(len(paths) <= 2 for paths in looks)
    assert len(looks) == 4


def test_a_change_of_several_files_is_seen_at_once(two):
    first, second, id = two
    first.put_tools(id, [(f"t{number}", "1", tool()) for number in range(5)], bundle("renamed"))
    assert (second.bundle(id).slug, len(second.tools())) == ("renamed", 6)
    first.put_all(bundle_of(second.bundle(id)), [])
    assert len(second.bundles()) == 2


def bundle_of(one):
    from msgspec.structs import replace

    return replace(one, id=an_id(), slug="second")


def test_nobody_reads_what_was_before_while_news_are_taken_in(two, monkeypatch):
    first, second, id = two
    monkeypatch.setattr(store, "READ_SECONDS", 10**6)
    put, begun, go_on = first.put_tool(id, "other", "1", tool()), Event(), Event()

    def find(*args, **how):
        begun.set()
        assert go_on.wait(60)
        return find_changes(*args, **how)

    monkeypatch.setattr(store, "find_changes", find)
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(second.tool, id, "other", "1")
        assert begun.wait(60)
        other = threads.submit(second.tool, id, "other", "1")
        wait([other], 0.2)
        go_on.set()
        assert one.result() == other.result() == put


def test_switches_are_told_too(opened, folder):
    from sources.bundles.files.things import built_in

    mine = built_in()
    first, second = opened(mine), opened(mine)
    assert len(second.tools()) == 2
    first.patch_tool(mine[0].id, "read-file", "1", False)
    assert [one.slug for one in second.tools()] == ["list-dir"]


def test_what_is_told_by_half_leads_to_a_look_at_everything(two, folder, looks):
    first, second, id = two
    with log_of(folder).open("ab") as log:
        log.write(b'["weather')  # of a process that was killed
    assert second.tool(id, "forecast", "1") is not None
    put = first.put_tool(id, "other", "1", tool())
    assert second.tool(id, "other", "1") == put
    assert None in looks


@pytest.mark.parametrize(
    "path",
    ["../other/bundle.json", "a/../bundle.json", "/etc/tools/x.json", "a\\u0000b/bundle.json", "\\ud800", "", "a/b"],
)
def test_what_no_store_would_tell_leads_to_a_look_at_everything(two, folder, looks, path):
    _, second, _ = two
    (folder.parent / "other").mkdir()
    (folder.parent / "other" / "bundle.json").write_text('{"slug": "outside", "displayName": "Outside"}')
    with log_of(folder).open("a") as log:
        log.write(f'["{path}"]\n')
    assert [one.slug for one in second.bundles()] == ["weather"]
    assert looks == [None]
    assert second.mistakes() == []


@pytest.mark.parametrize("harm", ["deleted", "cut", "another", "a link", "a pipe"])
def test_a_log_that_is_not_what_it_was_leads_to_a_look_at_everything(two, folder, harm, tmp_path):
    first, second, id = two
    log = log_of(folder)
    if harm == "cut":
        os.truncate(log, 3)
    else:
        log.unlink()
    if harm == "another":
        log.write_bytes(b"[]\n" * 1000)
    if harm == "a link":
        log.symlink_to(tmp_path / "elsewhere")
    if harm == "a pipe":
        os.mkfifo(log)
    put = first.put_tool(id, "other", "1", tool())
    second.sync()
    assert second.tool(id, "other", "1") == put
    assert not (tmp_path / "elsewhere").exists()


def test_a_log_that_is_long_begins_anew(two, folder, monkeypatch):
    first, second, id = two
    monkeypatch.setattr(state_folder, "MAX_LOG_BYTES", 100)
    for number in range(10):
        put = first.put_tool(id, f"t{number}", "1", tool())
        assert second.tool(id, f"t{number}", "1") == put
    assert log_of(folder).stat().st_size < 250


def test_a_name_that_is_not_utf8_is_found(two, folder):
    first, second, id = two
    path = file_of(folder)
    path.rename(os.path.join(os.fsencode(path.parent), b"\xff.json").decode(errors="surrogateescape"))
    first.sync()
    assert not first.patch_tool(id, "forecast", "1", False).is_enabled
    assert not second.tool(id, "forecast", "1").is_enabled


def test_of_many_processes_that_add_one_tool_one_wins(opened):
    stores, id, made = [opened() for _ in range(4)], an_id(), []
    stores[0].put_bundle(id, bundle())
    together = Barrier(4)

    def add(one):
        for number in range(10):
            together.wait()
            try:
                made.append(one.put_tool(id, f"t{number}", "1", tool()))
            except store.ConflictError:
                continue

    threads = [Thread(target=add, args=(one,)) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 10
    for one in stores:
        assert one.tools(ListQuery(limit=1000)) == sorted(made, key=lambda tool: tool.id)


def test_what_changes_while_a_store_opens_is_not_missing(opened, monkeypatch):
    first, second = opened(), opened()
    id = an_id()
    first.put_bundle(id, bundle("before"))

    def find(*args, **options):
        found = find_changes(*args, **options)
        monkeypatch.setattr(store, "find_changes", find_changes)
        first.put_bundle(id, bundle("after"))
        return found

    monkeypatch.setattr(store, "find_changes", find)
    assert second.contents().bundle(id).slug == "before"
    assert second.contents().bundle(id).slug == "after"
