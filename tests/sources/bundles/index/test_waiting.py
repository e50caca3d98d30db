"""Who asks on an event loop waits for nobody for long; and whatever could not be opened is tried anew."""

import asyncio
import errno
import fcntl
import os
import sqlite3
from contextlib import contextmanager, suppress
from threading import Event, Thread

import pytest
from sources.bundles.index.made import bundle, bundle_id, put, slugs, tool
from sources.bundles.index.test_files import overwritten

from onetool.sources.bundles.errors import UnavailableError
from onetool.sources.bundles.index import Index, IndexBusyError, IndexUnwritableError, database


@pytest.fixture
def index(opened):
    made = opened(lambda: put(made, bundle(), tool(1)))
    assert slugs(made.tools()) == ["tool-1"]
    return made


@contextmanager
def locked(file):
    """As another process does it that makes the index anew, and does not come to an end."""
    handle = os.open(file.with_name(f"{file.name}.lock"), os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


@pytest.fixture
def for_ever(monkeypatch):
    """Who waits as long as it may waits for ever: an answer shows that nobody did."""
    monkeypatch.setattr("onetool.sources.bundles.index.waiting.LONG_SECONDS", 10**6)


async def tools_of(index):
    """As soon as it can say it."""
    for _ in range(200):
        with suppress(IndexBusyError):
            return slugs(index.tools())
        await asyncio.sleep(0.02)
    return None


def sqlite_error(code):
    error = sqlite3.OperationalError("it is so")
    error.sqlite_errorcode = code
    return error


CAUSES = [
    (OSError(errno.EMFILE, "Too many open files"), UnavailableError),
    (OSError(errno.ENOSPC, "No space left on device"), IndexUnwritableError),
    (sqlite_error(sqlite3.SQLITE_FULL), IndexUnwritableError),
    (sqlite3.OperationalError("database is locked"), IndexBusyError),
    (IndexBusyError("another process has held it for too long"), IndexBusyError),
]


@pytest.mark.parametrize(("cause", "told"), CAUSES, ids=lambda one: str(one)[:30])
def test_what_could_not_be_opened_is_tried_anew(index, file, monkeypatch, cause, told):
    def fail(*_):
        raise cause

    with monkeypatch.context() as patched:
        patched.setattr(database, "opened", fail)
        file.unlink()
        for _ in range(2):
            with pytest.raises(UnavailableError) as caught:
                index.state()
            assert type(caught.value) is told
    assert slugs(index.tools()) == ["tool-1"]


def test_a_folder_that_is_a_file_for_a_moment(tmp_path):
    folder, away = tmp_path / "state", tmp_path / "away"
    index = Index(folder / "index.db", lambda: put(index, bundle(), tool(1)))
    index.state()
    folder.rename(away)
    folder.write_text("x")
    for _ in range(2):
        with pytest.raises(UnavailableError, match="can't be opened"):
            index.state()
    folder.unlink()
    away.rename(folder)
    assert slugs(index.tools()) == ["tool-1"]
    index.close()


def test_a_connection_that_somebody_has_closed(index):
    index._access._connections.current().database.close()
    assert slugs(index.tools()) == ["tool-1"]


def test_a_transaction_that_can_not_be_ended_does_not_stay(index, monkeypatch):
    def fail(_):
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr("onetool.sources.bundles.index._roll_back", fail)
        with pytest.raises(UnavailableError, match="disk I/O error"), index.changing():
            raise ValueError
    put(index, tool(2))
    assert slugs(index.tools()) == ["tool-1", "tool-2"]


def test_a_damaged_file_that_can_not_be_thrown_away_for_a_while(index, file, monkeypatch):
    def fail(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    overwritten(file)
    with monkeypatch.context() as patched:
        patched.setattr(database, "throw_away", fail)
        with pytest.raises(UnavailableError, match="Too many open files"):
            index.tools()
    assert slugs(index.tools()) == ["tool-1"]


def test_on_a_loop_nobody_waits_for_who_makes_the_index_anew(index, file, for_ever):
    async def ask():
        with locked(file):
            file.unlink()
            for _ in range(2):
                with pytest.raises(IndexBusyError, match="try again"):
                    index.state()
        assert await tools_of(index) == ["tool-1"]

    asyncio.run(ask())


def test_elsewhere_it_is_waited_for(index, file):
    done = []
    with locked(file):
        file.unlink()
        thread = Thread(target=lambda: done.append(slugs(index.tools())))
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
    thread.join(10)
    assert done == [["tool-1"]]


def test_on_a_loop_nobody_waits_for_who_has_the_file_alone(index, file, for_ever):
    async def ask():
        other = sqlite3.connect(file, isolation_level=None)
        index._access._connections.current().close()  # so that the other one can have it alone
        index._access._connections._mine.held = None
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(IndexBusyError, match="try again"):
            index.state()
        other.close()
        assert slugs(index.tools()) == ["tool-1"]

    asyncio.run(ask())


@pytest.mark.parametrize("where", ["file", "memory"])
def test_on_a_loop_nobody_waits_for_a_long_fill(file, where, for_ever):
    go_on, fills = Event(), []

    def fill():
        fills.append(1)
        if len(fills) > 1:
            assert go_on.wait(20)
        put(index, bundle(), tool(1))

    index = Index(file if where == "file" else None, fill)

    async def ask():
        assert slugs(index.tools()) == ["tool-1"], "before the first answer it is waited for"
        connection = index._access._connections
        file.unlink() if where == "file" else connection.give_up(connection.current(), is_damaged=True)
        for _ in range(3):
            with pytest.raises(IndexBusyError, match="being made anew: try again"):
                index.state()
        go_on.set()
        assert await tools_of(index) == ["tool-1"]

    asyncio.run(ask())
    assert len(fills) == 2
    index.close()


def test_a_fill_that_fails_tells_who_asks_on_a_loop(opened, file):
    fills = []

    def fill():
        fills.append(1)
        if len(fills) == 2:
            raise UnavailableError("the folder is busy")
        put(index, bundle(), tool(1))

    index = opened(fill)

    async def ask():
        index.state()
        file.unlink()
        with pytest.raises(UnavailableError, match="the folder is busy"):
            index.state()
        return slugs(index.tools())

    assert asyncio.run(ask()) == ["tool-1"]


def test_in_memory_the_state_is_known_while_others_have_the_index():
    index = Index(None, lambda: put(index, bundle(), tool(1)))
    begun, go_on = Event(), Event()
    before = index.state()

    def change():
        with index.changing() as changes:
            changes.drop("nothing")
            begun.set()
            go_on.wait(20)

    async def ask():
        thread = Thread(target=change)
        thread.start()
        assert begun.wait(10)
        assert index.state() == before
        with pytest.raises(IndexBusyError, match="other threads have it"):
            index.tool(bundle_id(1), "tool-1", "1")
        go_on.set()
        thread.join(10)
        assert index.tool(bundle_id(1), "tool-1", "1") is not None

    asyncio.run(ask())
    put(index, tool(2))
    assert index.state() > before
    index.close()
