"""The index's file: shared by processes and threads, deleted, damaged, somebody else's. It always comes back."""

import os
import sqlite3
import subprocess
import threading
from contextlib import closing

import pytest
from sources.bundles.index.made import bundle, in_step, put, slugs, tool
from sources.bundles.index.test_paging import other

from onetool.sources.bundles.errors import UnavailableError
from onetool.sources.bundles.index import Index, IndexDamagedError
from onetool.sources.bundles.index.database import opened as raw


@pytest.fixture
def filled(opened):
    """An index that has one bundle and one tool whenever it is new; and how often it was filled."""
    times = []

    def fill():
        times.append(1)
        put(index, bundle(), tool(1))

    index = opened(fill)
    return index, times


def test_it_is_filled_once_and_kept(opened, file, filled):
    index, times = filled
    assert slugs(index.tools()) == ["tool-1"]
    assert slugs(opened().tools()) == ["tool-1"]
    again = opened(lambda: times.append(1))
    assert slugs(again.tools()) == ["tool-1"]
    assert len(times) == 1
    assert file.stat().st_mode & 0o777 == 0o600


def test_one_in_memory_is_filled_too():
    index = Index(None, lambda: put(index, bundle(), tool(1)))
    assert slugs(index.tools()) == ["tool-1"]
    index.close()


def test_a_fill_that_fails_is_tried_again(opened):
    tries = []

    def fill():
        tries.append(1)
        if len(tries) == 1:
            raise UnavailableError("the folder is busy")
        put(index, bundle())

    index = opened(fill)
    with pytest.raises(UnavailableError, match="busy"):
        index.bundles()
    assert len(index.bundles()) == 1


def garbage(file):
    file.write_bytes(os.urandom(9_000))


def empty(file):
    file.write_bytes(b"")


def foreign(file):
    file.unlink()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()


def other_layout(file):
    database, _ = raw(file)
    database.execute("PRAGMA user_version = 99")
    database.close()


def without_a_table(file):
    database, _ = raw(file)
    database.execute("DROP TABLE tools")
    database.close()


def overwritten(file):
    """The first page stays: it looks right until it is read."""
    database, _ = raw(file)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    with open(file, "r+b") as handle:
        handle.seek(4096)
        handle.write(os.urandom(file.stat().st_size - 4096))


def cut(file):
    database, _ = raw(file)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    os.truncate(file, 8192)


def a_link(file):
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("nowhere"))


FAULTS = [garbage, empty, foreign, other_layout, without_a_table, overwritten, cut, a_link]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_no_index_of_ours_is_made_anew(opened, file, filled, fault):
    index, times = filled
    index.tools()
    index.close()
    fault(file)

    def fill():
        times.append(1)
        put(again, bundle(), tool(1), tool(2))

    again = opened(fill)
    assert slugs(again.tools()) == ["tool-1", "tool-2"]
    assert slugs(again.search("tool")) == ["tool-2", "tool-1"]
    assert len(times) == 2
    in_step(again)


@pytest.mark.parametrize("fault", [garbage, without_a_table, overwritten])
def test_damage_under_an_open_index(filled, file, fault):
    index, times = filled
    before = index.state()
    fault(file)
    for ask in (lambda: index.search("tool"), lambda: index.tools(), lambda: index.everything()[1]):
        assert slugs(ask()) == ["tool-1"]
    put(index, tool(2))
    assert index.state() > before
    assert len(times) <= 2


def test_damage_in_the_middle_of_a_change_is_told(filled):
    index, times = filled
    index.state()
    with pytest.raises(IndexDamagedError, match="try again"), index.changing():
        raise _corrupt()
    assert slugs(index.tools()) == ["tool-1"]
    assert len(times) == 2


def _corrupt():
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


@pytest.mark.parametrize("ends", [("",), ("", "-wal", "-shm"), ("", "-wal", "-shm", ".lock")])
def test_deleted_while_it_is_open(filled, opened, file, ends):
    index, times = filled
    before = index.state()
    for end in ends:
        file.with_name(file.name + end).unlink()
    assert index.state() > before
    assert slugs(index.tools()) == ["tool-1"]
    assert len(times) == 2
    put(index, tool(2))
    assert slugs(opened().tools()) == ["tool-1", "tool-2"]
    in_step(index)


def test_deleted_in_the_middle_of_a_change(filled, file):
    index, times = filled
    index.state()
    with index.changing() as changes:
        changes.drop("something")
        file.unlink()
        assert slugs(index.tools()) == ["tool-1"], "who changes goes on where it was"
    assert slugs(index.tools()) == ["tool-1"]
    assert len(times) == 2


def test_deleted_while_it_is_being_filled(opened, file):
    times = []

    def fill():
        times.append(1)
        put(index, bundle(), tool(1))
        if len(times) < 3:
            file.unlink()

    index = opened(fill)
    assert slugs(index.tools()) == ["tool-1"]
    assert len(times) == 3


def test_a_folder_in_its_place_is_told(file):
    file.mkdir()
    with pytest.raises(UnavailableError, match="move it away"):
        Index(file)


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "a file").touch()
    with pytest.raises(UnavailableError, match="can't be opened"):
        Index(tmp_path / "a file" / "index.db")


@pytest.mark.long
def test_many_processes_make_it_anew_at_once(file):
    garbage(file)
    everyone = [other("open", file) for _ in range(4)]
    said = [process.communicate(b"go\n", timeout=30)[0] for process in everyone]
    assert [process.returncode for process in everyone] == [0] * 4
    assert len(said) == 4
    index = Index(file)
    assert len(index.bundles()) == 1
    in_step(index)
    index.close()
    assert sorted(one.name for one in file.parent.iterdir()) == ["index.db", "index.db.lock"]


@pytest.mark.long
def test_processes_and_threads_write_at_once(opened, file):
    index = opened()
    put(index, bundle())
    others = [other("add", file, str(first), "40") for first in (1000, 2000)]
    for process in others:
        process.stdin.write(b"go\n")
        process.stdin.flush()
    seen, errors = [], []

    def add(first):
        try:
            for number in range(first, first + 40):
                put(index, tool(number))
                seen.append(len(index.tools(limit=1000)))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=add, args=(first,)) for first in (3000, 4000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for process in others:
        process.communicate(timeout=30)
        assert process.returncode == 0
    assert errors == []
    assert len(index.tools(limit=1000)) == 160
    assert max(seen) <= 160
    in_step(index)


def test_memory_is_shared_between_threads():
    index = Index(None)
    put(index, bundle())

    def add(first):
        for number in range(first, first + 20):
            put(index, tool(number))

    threads = [threading.Thread(target=add, args=(first,)) for first in (100, 200, 300, 400)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(index.tools(limit=1000)) == 80
    in_step(index)
    index.close()


def test_after_a_fork_the_child_has_its_own(filled, file):
    index, _ = filled
    index.tools()
    code = (
        "import os, sys; from pathlib import Path; from onetool.sources.bundles.index import Index\n"
        "index = Index(Path(sys.argv[1])); index.tools()\n"
        "if os.fork() == 0:\n"
        "    os._exit(len(index.tools()) + 40)\n"
        "assert os.waitstatus_to_exitcode(os.wait()[1]) == 41\n"
        "assert len(index.tools()) == 1; index.close()"
    )
    import sys

    subprocess.run([sys.executable, "-c", code, str(file)], check=True, timeout=30)


def test_closed(filled):
    index, _ = filled
    index.close()
    with pytest.raises(UnavailableError, match="closed"):
        index.tools()
