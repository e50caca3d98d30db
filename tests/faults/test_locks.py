"""Who holds the lock is killed, is stopped, or has the folder taken away from under it."""

import os
import signal
from threading import Event, Thread

import pytest
from faults.crowd import Other, an_id, bundle, tool

from onetool.core.os_files import OpenFolder
from onetool.sources.bundles.errors import UnavailableError
from onetool.sources.bundles.store.folder import LOCK_TIMEOUT, FolderLock, write_files
from onetool.sources.bundles.store.store import folder_store


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "bundles"


@pytest.fixture
def store(folder):
    made = folder_store(folder)
    made.put_bundle(an_id(), bundle())
    yield made
    made.close()


@pytest.fixture
def holder(folder, store):
    other = Other(folder)
    other("hold")
    yield other
    other.process.kill()
    other.close()


def test_a_holder_that_is_killed_is_not_waited_for(store, holder):
    holder.process.kill()
    holder.process.wait()
    store.put_bundle(an_id(), bundle())


def test_a_holder_that_is_stopped_is_waited_for_a_while_and_named(store, holder, monkeypatch):
    holder.process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(FolderLock.held.__wrapped__, "__defaults__", (0.3,))
    with pytest.raises(UnavailableError, match=f"process {holder.pid} .*stopped.* for more than 0.3 s"):
        store.put_bundle(an_id(), bundle())
    assert len(store.bundles()) == 1
    holder.process.send_signal(signal.SIGCONT)
    monkeypatch.undo()
    Thread(target=holder.send, args=("go on",)).start()
    store.put_bundle(an_id(), bundle())
    assert len(store.bundles()) == 2


def test_readers_are_not_held_up(store, holder):
    assert len(store.bundles()) == 1  # the other goes on holding it: who waited for it would fail
    store.sync()


def test_how_long_a_writer_waits():
    assert LOCK_TIMEOUT == 10.0


def test_a_folder_that_is_taken_away_has_no_second_holder(folder, store):
    """Who holds the old one goes on in the old one, who comes later has the new one."""
    with FolderLock(folder).held() as old:
        folder.rename(folder.with_name("away"))
        folder.mkdir()
        with FolderLock(folder).held(0.5) as new:
            assert not os.path.samestat(old.status(), new.status())
            write_files(old, {"mine": b"1"})
            write_files(new, {"theirs": b"2"})
    assert not (folder / "mine").exists()
    assert (folder.with_name("away") / "mine").exists()


def test_who_waits_for_a_folder_that_is_taken_away_gets_the_new_one(folder, store, monkeypatch):
    got, looked, missed, at = [], Event(), Event(), OpenFolder.at.__func__

    def look(cls, path, *args, **how):
        try:
            return at(cls, path, *args, **how)
        except FileNotFoundError:
            missed.set()
            raise
        finally:
            looked.set()

    def wait():
        with FolderLock(folder).held(60) as root:
            got.append(root.status().st_ino)

    with FolderLock(folder).held():
        monkeypatch.setattr(OpenFolder, "at", classmethod(look))
        thread = Thread(target=wait)
        thread.start()
        assert looked.wait(60)
        folder.rename(folder.with_name("away"))
        assert missed.wait(60)
        folder.mkdir()
        thread.join(60)
    assert got == [folder.stat().st_ino]


def test_a_folder_that_was_never_there_is_not_waited_for(tmp_path):
    with pytest.raises(FileNotFoundError), FolderLock(tmp_path / "missing").held(60):
        pass


def test_files_of_the_state_may_be_deleted_at_any_time(folder, store):
    for file in (folder / ".state").iterdir():
        file.unlink()
    id = an_id()
    store.put_bundle(id, bundle())
    store.put_tool(id, "a", "1", tool())
    assert len(store.bundles()) == 2
