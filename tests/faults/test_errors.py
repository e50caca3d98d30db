"""The system says no at the Nth call, for every N: the old value is intact, the error is clear, nothing is left over,
and the next write works.
"""

import errno
import os
import stat
from itertools import count, cycle
from threading import Barrier

import pytest
from faults.crowd import FULL
from sources.bundles.files.things import an_id, built_in, bundle, files, tool, with_tool

from onetool.core import flock, os_files
from onetool.sources.bundles.errors import UnavailableError
from onetool.sources.bundles.model import Bundle
from onetool.sources.bundles.queries import ListQuery
from onetool.sources.bundles.store import folder as files_of
from onetool.sources.bundles.store import storage
from onetool.sources.bundles.store.store import folder_store

CALLS = (
    *("open", "close", "read", "write", "fsync", "link", "rename", "unlink", "mkdir", "rmdir", "stat", "fstat"),
    *("listdir", "lseek"),
)
GROWING = ("open", "write", "fsync", "link", "mkdir")  # what a full disk goes on refusing
ERRORS = (errno.EIO, errno.ENOSPC, errno.EMFILE)


class Faulty:
    """`os`, but for one call; or for that one and all like it from then on."""

    def __init__(self, at, code, goes_on=False):
        self._left, self.code, self._goes_on = at, code, goes_on
        self.was_hit = False

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in CALLS:
            return real

        def call(*args, **options):
            self._left -= 1
            if self._left == 0 or (self._goes_on and self._left < 0 and self._refuses(name, args)):
                self.was_hit = True
                if name == "close":
                    real(*args)
                raise OSError(self.code, os.strerror(self.code))
            return real(*args, **options)

        return call

    def _refuses(self, name, args):
        return name in GROWING and (name != "open" or bool(args[1] & os.O_CREAT))


BUILT_IN = built_in()


def whole():
    made = Bundle(
        id=an_id(), slug="shared", created_at="2026-01-01T00:00:00.000Z", modified_at="2026-01-01T00:00:00.000Z"
    )
    return made, []


CHANGES = {
    "put a tool": lambda store, mine: store.put_tool(mine, "other", "1", tool()),
    "switch a tool": lambda store, mine: store.patch_tool(mine, "forecast", "1", False),
    "delete a tool": lambda store, mine: store.delete_tool(mine, "forecast", "1"),
    "put a bundle": lambda store, mine: store.put_bundle(an_id(), bundle()),
    "replace a bundle": lambda store, mine: store.put_bundle(mine, bundle("climate")),
    "put several tools": lambda store, mine: store.put_tools(mine, [("one", "1", tool()), ("two", "1", tool())]),
    "put a whole bundle": lambda store, mine: store.put_all(*whole()),
    "switch something built in": lambda store, mine: store.patch_bundle(BUILT_IN[0].id, False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_call_of_a_change_may_fail(tmp_path, monkeypatch, name):
    change, codes = CHANGES[name], cycle(ERRORS)
    variants = [(code, goes_on) for code in ERRORS for goes_on in (False, True)] if FULL else [(None, False)]
    for number, (fixed, goes_on) in enumerate(variants):
        store, id = prepared(tmp_path / f"{number}")
        for at in count(1):
            code = fixed or next(codes)
            failed, was_hit = tried(store, id, change, tmp_path / f"{number}", monkeypatch, Faulty(at, code, goes_on))
            if not was_hit:
                assert at > 5
                break
            if not failed:  # the change was made all the same: the next one begins anew
                number += 100
                store.close()
                store, id = prepared(tmp_path / f"{number}")
        store.close()


def prepared(folder):
    store = folder_store(folder, [BUILT_IN])
    id, _ = with_tool(store)
    return store, id


def tried(store, id, change, folder, monkeypatch, faulty):
    """Whether it failed, and whether the system did."""
    before, seen = files(folder), everything(store)
    with monkeypatch.context() as patch:
        for module in (files_of, storage, flock, os_files):
            patch.setattr(module, "os", faulty)
        try:
            change(store, id)
        except UnavailableError as error:
            failed = str(error)
        else:
            failed = None
    assert not [path for path in files(folder) if "/.onetool-" in f"/{path}"]
    if failed is not None:
        assert os.strerror(faulty.code) in failed
        assert files(folder) == before
        assert everything(store) == seen
        put = store.put_tool(id, "next", "1", tool())
        store.delete_tool(id, "next", "1")
        assert put
    else:
        assert everything(store) != seen
    assert store.mistakes() == []
    return failed is not None, faulty.was_hit


def everything(store):
    return store.bundles(ListQuery(include_disabled=True)), store.tools(ListQuery(include_disabled=True))


def test_a_look_that_the_system_refuses_forgets_nothing(tmp_path, monkeypatch):
    store, _ = prepared(tmp_path / "bundles")
    seen = everything(store)
    for path in (tmp_path / "bundles").rglob("*.json"):
        path.write_text(path.read_text())
    for at in range(1, 12):
        with monkeypatch.context() as patch:
            for module in (files_of, os_files):
                patch.setattr(module, "os", Faulty(at, errno.EMFILE))
            store.sync()
        assert everything(store) == seen
        assert store.mistakes() == []
    store.close()


def test_the_disk_is_full_before_there_is_anything(tmp_path, monkeypatch):
    folder = tmp_path / "a" / "bundles"
    store = folder_store(folder)
    for at in range(1, 4):
        with monkeypatch.context() as patch:
            faulty = Faulty(at, errno.ENOSPC, goes_on=True)
            for module in (files_of, os_files):
                patch.setattr(module, "os", faulty)
            with pytest.raises(UnavailableError, match="No space left"):
                store.put_bundle(an_id(), bundle())
        assert store.bundles() == []
    assert store.put_bundle(an_id(), bundle())[1]
    store.close()


def test_tools_that_come_together_are_synced_together(tmp_path, monkeypatch):
    """A disk may take 30 ms to sync a file, and an API may have a thousand: each waits here for another one."""
    store, id = prepared(tmp_path)
    together = Barrier(2)

    class Slow:
        def __getattr__(self, name):
            return self._sync if name == "fsync" else getattr(os, name)

        def _sync(self, handle):
            if stat.S_ISREG(os.fstat(handle).st_mode):
                together.wait(timeout=30)
            os.fsync(handle)

    monkeypatch.setattr(files_of, "os", Slow())
    store.put_tools(id, [("one", "1", tool()), ("two", "1", tool())])
    assert {one.slug for one in store.tools()} >= {"one", "two"}
    store.close()
