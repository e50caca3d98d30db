"""Sessions in a database, for the tests of what they have to do.

    harness.open(owner)                  the sessions of an owner
    harness.set_modified(id, at)         as if it had been used then
    harness.add(id, b"…")                a line that another version, or an import, has put there

It is SQLite. A test marked with `on_both` runs with PostgreSQL, too.
"""

import pytest

from onetool.ask.sessions import SessionStore
from onetool.ask.sessions.rows import SUMMARY, SessionKey, SessionSummary, add_records
from onetool.database.sqlite import SqliteDatabase

NOW = 1_794_000_000.25


class Harness:
    def __init__(self, database):
        self.database = database

    def open(self, owner=""):
        return SessionStore(self.database, now=lambda: NOW, owners=(owner,))

    def set_modified(self, id, at):
        self.write("UPDATE ask_sessions SET modified = %s WHERE id = %s", at, id)

    def add(self, id, line):
        """Make the session if it isn't there."""
        insert = f"INSERT INTO ask_sessions (owner, id, modified, {SUMMARY}) VALUES ('', %s, 0, 0, 0, %s, %s, %s, 0)"
        self.write(f"{insert} ON CONFLICT DO NOTHING", id, b"", b"", b"")

        def job(work):
            [row] = work.execute(f"SELECT {SUMMARY} FROM ask_sessions WHERE id = %s", (id,))
            add_records(work, SessionKey("", id), SessionSummary.of(row), line.splitlines(keepends=True))

        self.database.write(job)

    def data(self, id):
        sql = "SELECT body FROM ask_records WHERE id = %s ORDER BY number"
        return b"".join(bytes(body) for (body,) in self.write(sql, id))

    def is_left(self, id):
        return bool(self.write("SELECT id FROM ask_sessions WHERE id = %s", id))

    def write(self, sql, *params):
        return self.database.write(lambda work: work.execute(sql, params))


def sqlite_harness(home):
    return Harness(SqliteDatabase(home / "state.db", makes_folder=True))


on_both = pytest.mark.parametrize("harness", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def harness(request, tmp_path):
    if getattr(request, "param", "sqlite") == "postgres":
        yield Harness(request.getfixturevalue("database"))
        return
    found = sqlite_harness(tmp_path / "home")
    yield found
    found.database.close()
