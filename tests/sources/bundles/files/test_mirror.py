"""What one process writes, the others see at once: it stands in the mirror, and they read those rows alone."""

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from threading import Barrier, Event, Thread

import pytest
from sources.bundles.files.things import an_id, built_in, bundle, file_of, tool, with_tool

from onetool.sources.bundles.errors import ConflictError
from onetool.sources.bundles.queries import ListQuery
from onetool.sources.bundles.store import storage
from onetool.sources.bundles.store.folder import find_changes


@pytest.fixture
def looks(monkeypatch):
    """What was looked at: folders, or None for all of them."""
    found = []

    def find(folder, known, foreign, only=None):
        found.append(only)
        return find_changes(folder, known, foreign, only)

    monkeypatch.setattr(storage, "find_changes", find)
    return found


@pytest.fixture
def two(opened, folder):
    """Two stores, as two processes have them, and a bundle that both know."""
    first, second = opened(), opened()
    id, _ = with_tool(first)
    second.sync()
    return first, second, id


def mirror_of(folder):
    return folder / ".state" / "files.db"


def test_only_the_folders_of_a_change_are_looked_at(two, looks):
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
    assert looks == [{f"weather-{id[-12:]}"}] * 4


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
    put, begun, go_on = first.put_tool(id, "other", "1", tool()), Event(), Event()
    read_changes = storage.read_changes

    def read(*args):
        begun.set()
        assert go_on.wait(60)
        return read_changes(*args)

    monkeypatch.setattr(storage, "read_changes", read)
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(second.tool, id, "other", "1")
        assert begun.wait(60)
        other = threads.submit(second.tool, id, "other", "1")
        wait([other], 0.2)
        go_on.set()
        assert one.result() == other.result() == put


def test_switches_are_told_too(opened, folder):
    mine = built_in()
    first, second = opened(mine), opened(mine)
    assert len(second.tools()) == 2
    first.patch_tool(mine[0].id, "read-file", "1", False)
    assert [one.slug for one in second.tools()] == ["list-dir"]


@pytest.mark.parametrize("harm", ["deleted", "cut", "another", "a link", "a pipe"])
def test_a_mirror_that_is_not_what_it_was_is_made_anew(two, opened, folder, harm, tmp_path):
    first, second, id = two
    file = mirror_of(folder)
    if harm == "cut":
        os.truncate(file, 3)
    else:
        for path in file.parent.glob("files.db*"):
            path.unlink()
    if harm == "another":
        file.write_bytes(b"[]\n" * 1000)
    if harm == "a link":
        file.symlink_to(tmp_path / "elsewhere")
    if harm == "a pipe":
        os.mkfifo(file)
    put = first.put_tool(id, "other", "1", tool())
    second.sync()
    assert second.tool(id, "other", "1") == put == opened().tool(id, "other", "1")
    assert not (tmp_path / "elsewhere").exists()


def test_a_row_never_counts_more_than_its_file(two, opened, folder):
    """Nothing of the mirror is used for files that have changed, or that are gone."""
    first, _, id = two
    first.put_tool(id, "gone", "1", tool())
    file_of(folder, "gone").unlink()
    file_of(folder).write_text(file_of(folder).read_text().replace("Says", "Knows"))
    for one in (opened(), opened()):
        assert one.tool(id, "gone", "1") is None
        assert one.tool(id, "forecast", "1").description.startswith("Knows")


@pytest.mark.parametrize("place", [".hidden", "../outside", "link", "no-bundle"])
def test_a_forged_row_does_not_count_where_no_scan_looks(opened, folder, place):
    """A cloned folder may come with a mirror: it adds no bundle, not even where a file is."""
    with_tool(opened())
    (folder.parent / "outside").mkdir()
    (folder / "link").symlink_to(folder.parent / "outside")
    name = "other.json" if place == "no-bundle" else "bundle.json"
    (folder / place).mkdir(exist_ok=True)
    (folder / place / name).write_text("{}")
    with closing(sqlite3.connect(mirror_of(folder))) as forged, forged:
        found = "SELECT CAST(replace(CAST(body AS text), id, ?) AS blob) FROM (SELECT body, json_extract(CAST(body AS "
        found += "text), '$.id') AS id FROM bundle_files WHERE path LIKE '%/bundle.json')"
        [(body,)] = forged.execute(found, (an_id(),)).fetchall()
        forged.execute(
            "INSERT INTO bundle_files VALUES (?, ?, 1, 1)", (f"{place}/{name}", body.replace(b"weather", b"evil"))
        )
    assert [one.slug for one in opened().bundles()] == ["weather"]


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
            except ConflictError:
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
        monkeypatch.setattr(storage, "find_changes", find_changes)
        first.put_bundle(id, bundle("after"))
        return found

    monkeypatch.setattr(storage, "find_changes", find)
    assert second.contents().bundle(id).slug == "before"
    assert second.contents().bundle(id).slug == "after"
