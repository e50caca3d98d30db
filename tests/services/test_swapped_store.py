"""The one store under a process that uses it: its files are swapped, cut, damaged and forged. Nobody gets in by it.

A token was revoked before each attempt, and another one is valid. Whatever is done to `state.db`, the revoked one stays
out, nothing opens, nothing hangs, and nothing fails but with an error of the database.
"""

import json
import os
import shutil
import socket
import sqlite3
from contextlib import closing, suppress

import pytest
from document_stores import stored_tokens

from onetool.app.access import KnownTokens
from onetool.core.errors import OneToolError
from onetool.database.sqlite import SqliteDatabase
from onetool.interfaces.http.credentials import _digest

pytestmark = [
    pytest.mark.attack("the one store"),
    pytest.mark.skipif(os.name != "posix", reason="modes, links and pipes"),
]


class Place:
    """A state folder with a valid token and a revoked one, and copies of it: from before, and from elsewhere."""

    def __init__(self, home):
        self.home, self.file = home, home / "state.db"
        self.store = stored_tokens(home)
        self.good, self.bad = self.store.add("good"), self.store.add("bad")
        self.settle()
        shutil.copytree(home, home.with_name("before"))
        self.store.revoke("bad")
        self.settle()
        shutil.copytree(home, home.with_name("copy"))
        other = stored_tokens(home.with_name("other"))
        self.foreign = other.add("foreign", role="admin")
        self.known = KnownTokens([], self.store)
        assert [self.answer(one) for one in (self.good, self.bad)] == ["let in", "refused"]

    def settle(self):
        """Have all in the file itself, without a log."""
        with closing(SqliteDatabase(self.file)) as database:
            database.shrink()

    def answer(self, token):
        """What a server would say to a token."""
        try:
            found = self.known.find(_digest(token.encode()))
        except OneToolError:
            return "error"
        return "refused" if found is None or found.refusal else "let in"

    def sql(self, *statements, file=None):
        with closing(sqlite3.connect(file or self.file, isolation_level=None)) as connection:
            for one in statements:
                connection.executescript(one)

    def overwrite(self, start, data, end=""):
        with open(f"{self.file}{end}", "r+b") as stream:
            stream.seek(start)
            stream.write(data)

    def put(self, data, end=""):
        """Put another file in its place."""
        new = self.home / "new"
        new.write_bytes(data)
        new.chmod(0o600)
        os.replace(new, f"{self.file}{end}")

    def swap(self, folder):
        for end in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self.file}{end}")
        shutil.copy2(self.home.with_name(folder) / "state.db", self.file)

    def make(self, *statements):
        """Put a database of these statements in its place."""
        made = self.home / "made.db"
        self.sql(*statements, file=made)
        made.chmod(0o600)
        for end in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self.file}{end}")
        os.replace(made, self.file)

    def forge(self, body):
        """Write another document of tokens, as somebody who can write the file."""
        self.sql(f"UPDATE documents SET body = x'{body.hex()}', version = version + 1 WHERE kind = 'tokens'")


def a_pipe(place, end=""):
    with suppress(FileNotFoundError):
        os.unlink(f"{place.file}{end}")
    os.mkfifo(f"{place.file}{end}", 0o600)


def a_socket(place):
    os.unlink(place.file)
    here = os.getcwd()
    os.chdir(place.home)
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("state.db")
    finally:
        os.chdir(here)


def a_folder(place, end=""):
    with suppress(FileNotFoundError):
        os.unlink(f"{place.file}{end}")
    os.mkdir(f"{place.file}{end}", 0o700)


def a_link(place, end=""):
    with suppress(FileNotFoundError):
        os.unlink(f"{place.file}{end}")
    os.symlink(place.home.with_name("before") / "state.db", f"{place.file}{end}")


def a_linked_home(place):
    os.rename(place.home, place.home.with_name("away"))
    os.symlink(place.home.with_name("before"), place.home)


def a_log_of_the_version_before(place):
    place.sql("PRAGMA journal_mode = WAL")
    for end in ("-wal", "-shm"):
        found = place.home.with_name("before") / f"state.db{end}"
        place.put(found.read_bytes() if found.exists() else b"", end)


TABLES = "CREATE TABLE documents (kind, name, version, body); CREATE TABLE counters (name, value);"
ATTEMPTS = {
    "emptied": lambda place: os.truncate(place.file, 0),
    "cut in half": lambda place: os.truncate(place.file, place.file.stat().st_size // 2),
    "cut to a page": lambda place: os.truncate(place.file, 4096),
    "cut to its header": lambda place: os.truncate(place.file, 100),
    "cut within its header": lambda place: os.truncate(place.file, 20),
    "a sparse gigabyte": lambda place: os.truncate(place.file, 2**30),
    "another header": lambda place: place.overwrite(0, b"no database here"),
    "pages of no size": lambda place: place.overwrite(16, b"\x00\x03"),
    "a page overwritten": lambda place: place.overwrite(4096, os.urandom(4096)),
    "all pages overwritten": lambda place: place.overwrite(4096, os.urandom(place.file.stat().st_size - 4096)),
    "zeroes": lambda place: place.overwrite(0, bytes(place.file.stat().st_size)),
    "deleted": lambda place: place.file.unlink(),
    "everything deleted": lambda place: [one.unlink() for one in place.home.glob("state.db*")],
    "the folder deleted": lambda place: shutil.rmtree(place.home),
    "a file that is no database": lambda place: place.put(b"SQLite format 3\x00" + b"x" * 9_000),
    "a database of others": lambda place: place.make("CREATE TABLE x (y); INSERT INTO x VALUES (1)"),
    "an empty database": lambda place: place.make("PRAGMA user_version = 0"),
    "tables of the same names": lambda place: place.make(TABLES),
    "a newer schema": lambda place: place.sql("PRAGMA user_version = 99999"),
    "an older schema": lambda place: place.sql("PRAGMA user_version = 0"),
    "a negative schema": lambda place: place.sql("PRAGMA user_version = -1"),
    "no table of documents": lambda place: place.sql("DROP TABLE documents"),
    "an endless view": lambda place: place.sql(
        "ALTER TABLE documents RENAME TO d; CREATE VIEW documents AS WITH RECURSIVE n(x) AS "
        "(SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 300000) SELECT d.* FROM d, n LIMIT 3"
    ),
    "UTF-16": lambda place: place.make("PRAGMA encoding = 'UTF-16'; CREATE TABLE x (y)"),
    "a link": a_link,
    "a folder": a_folder,
    "a pipe": a_pipe,
    "a socket": a_socket,
    "a log that is a link": lambda place: a_link(place, "-wal"),
    "a log that is a folder": lambda place: a_folder(place, "-wal"),
    "a log that is a pipe": lambda place: a_pipe(place, "-wal"),
    "an index that is a pipe": lambda place: a_pipe(place, "-shm"),
    "a journal that is a pipe": lambda place: a_pipe(place, "-journal"),
    "a log of random bytes": lambda place: place.put(os.urandom(40_000), "-wal"),
    "an index of random bytes": lambda place: place.put(os.urandom(32_768), "-shm"),
    "a journal of random bytes": lambda place: place.put(os.urandom(9_000), "-journal"),
    "the log of the version before": a_log_of_the_version_before,
    "a mode for others": lambda place: place.file.chmod(0o666),
    "a mode for a group": lambda place: place.file.chmod(0o660),
    "the folder is a link": a_linked_home,
    "no tokens": lambda place: place.sql("DELETE FROM documents"),
    "tokens of no bytes": lambda place: place.forge(b""),
    "tokens that are no JSON": lambda place: place.forge(b"{"),
    "tokens that are null": lambda place: place.forge(b"null"),
    "tokens nested deeply": lambda place: place.forge(b"[" * 100_000 + b"]" * 100_000),
    "tokens of a million parts": lambda place: place.forge(b"[" + b"[]," * 600_000 + b"[]]"),
    "tokens of other types": lambda place: place.forge(json.dumps({"tokens": {"a": 1}, "revoked": []}).encode()),
    "tokens with a number of 5,000 digits": lambda place: place.forge(b'{"tokens": [], "x": ' + b"9" * 5_000 + b"}"),
    "the file from before the revocation": lambda place: place.swap("before"),
}


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "home")


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_store_that_is_not_what_it_was(place, attempt):
    ATTEMPTS[attempt](place)
    for _ in range(3):  # the first one may find it out, the second one open a new file
        assert place.answer(place.bad) != "let in"
        assert place.answer(place.foreign) != "let in"
        assert place.answer("ot_nobody") != "let in"
        assert place.store.guards
    with suppress(OneToolError):
        place.store.revoke("good")  # it is refused, or it counts
        assert place.answer(place.good) != "let in"


@pytest.mark.parametrize("attempt", ["emptied", "zeroes", "deleted", "a pipe", "a folder", "a newer schema"])
def test_a_transaction_that_is_under_way_ends(place, attempt):
    """The file is changed in the middle of a write of its own."""
    database = SqliteDatabase(place.file)

    def write(work):
        work.execute("INSERT INTO counters VALUES ('x', 1)")
        ATTEMPTS[attempt](place)

    with suppress(OneToolError):
        if attempt == "a newer schema":  # another connection waits for this one
            with suppress(sqlite3.OperationalError):
                database.write(write)
        else:
            database.write(write)
    for _ in range(3):
        assert place.answer(place.bad) != "let in"
        assert place.store.guards
    database.close()


def test_what_is_restored_counts_again(place):
    place.swap("other")
    assert place.answer(place.good) != "let in"
    place.swap("copy")
    assert [place.answer(one) for one in (place.good, place.bad, place.foreign)] == ["let in", "refused", "refused"]
