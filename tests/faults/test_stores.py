"""The stores of the database: processes that write at once or are killed, disks that are full, broken or read-only,
and damage. What was acknowledged is there, and the next write works.
"""

import os
import sys
from contextlib import nullcontext, suppress

import pytest
from faults.crowd import some
from faults.stores import STORES, open_database, run
from helpers import as_nobody, until
from postgres import database, database_url, postgres

from onetool.core.errors import OneToolError
from onetool.database.restoring import restore

pytestmark = pytest.mark.long

__all__ = ["database", "database_url", "postgres"]

PAGE = 4096
store = pytest.mark.parametrize("store", STORES)
linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc")
root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def file(tmp_path):
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home" / "state.db"


@pytest.fixture(params=["sqlite", "postgres"])
def address(request):
    if request.param == "sqlite":
        return request.getfixturevalue("file")
    request.getfixturevalue("database")  # makes the tables
    return request.getfixturevalue("database_url")


def names_in(address, store):
    database = open_database(address)
    try:
        return STORES[store](database).names()
    finally:
        database.close()


def write(address, store, *names):
    database = open_database(address)
    for name in names:
        STORES[store](database).write(name)
    database.close()


@store
def test_eight_processes_write_at_once(address, store):
    acknowledged = run("write_at_once", address, store, 8, some(3, 100))
    assert len(acknowledged) == 8 * some(3, 100)
    assert sorted(names_in(address, store)) == sorted(acknowledged)


@store
def test_killed_at_any_point(address, store):
    rounds = some(6, 100)
    acknowledged = run("write_and_die", address, store, rounds)
    found = names_in(address, store)
    assert {*acknowledged} <= {*found}
    assert len(found) - len(acknowledged) <= rounds  # of each killed process, the text that it was writing
    write(address, store, "after")


@store
def test_a_server_that_goes_away_and_comes_back(postgres, database, store):
    opened = STORES[store](database)
    opened.write("before")
    postgres.stop()
    waits = store == "results"  # in memory, until the database is back
    try:
        with nullcontext() if waits else pytest.raises(OneToolError):
            opened.write("meanwhile")
    finally:
        postgres.start_again()

    def is_written():
        with suppress(OneToolError):
            opened.write("after")
            return True

    def is_kept():
        with suppress(OneToolError):
            return sorted(opened.names()) == ["after", "before", *["meanwhile"] * waits]

    until(is_written)
    until(is_kept)


@store
def test_a_full_disk(file, store):
    lines = run("write_until_full", file, store, *some((0, 20_000), range(0, 200_000, 5_000)))
    check_failures(file, store, lines, some(2, 40))


@linux
@store
def test_a_disk_that_fails(file, store):
    """The first device fails with EIO, the second with ENOSPC when it is written and with nonsense when it is read."""
    lines = run("write_to_broken_disk", file, store, *("/proc/self/mem", "/dev/full") * some(1, 20))
    check_failures(file, store, lines, some(2, 40))
    assert not list(file.parent.glob("*.damaged-*"))  # the file itself is as it was


def check_failures(file, store, lines, least):
    errors = [line for line in lines if line.startswith("!")]
    assert len(errors) >= least
    assert all("state.db" in error for error in errors)
    assert sorted(names_in(file, store)) == sorted({*lines} - {*errors})


@root
@store
def test_a_read_only_folder(file, store):
    write(file, store, "before")
    with as_nobody(file.parent), pytest.raises(OneToolError, match="make the file and its folder writable"):
        write(file, store, "never")
    write(file, store, "after")
    assert sorted(names_in(file, store)) == ["after", "before"]


def test_any_page_may_be_damaged(file):
    """Nobody is let in who wasn't before; a store works or names the command, after which all can be written."""
    for name in STORES:
        write(file, name, "before")
    whole = file.read_bytes()
    pages = len(whole) // PAGE
    for page in range(0, pages, some(pages // 6, 1)):
        for left in file.parent.glob("state.db*"):
            left.unlink()
        file.write_bytes(whole[: page * PAGE] + os.urandom(PAGE) + whole[(page + 1) * PAGE :])
        file.chmod(0o600)
        for name in STORES:
            assert use_damaged(file, name), (page, name)
        restore(file)
        for name in STORES:
            write(file, name, "anew")
            assert {"anew", "damaged"} & {*names_in(file, name)}, (page, name)
        database = open_database(file)
        assert STORES["tokens"](database).store.guards
        database.close()


def use_damaged(file, store):
    """Return whether a text is kept, or the store says that some are damaged."""
    database = open_database(file)
    opened = STORES[store](database)
    try:
        opened.write("after")
        return bool({"after", "damaged"} & {*opened.names()})
    except OneToolError as error:
        return "damaged" in str(error)
    finally:
        database.close()
