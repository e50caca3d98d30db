"""Sessions in a database, for the tests of what they have to do.

    harness.open(owner)                  the sessions of an owner
    harness.set_modified(id, at)         as if it had been used then
    harness.add(id, b"…")                a record that another version, or an import, has put there

It is SQLite. A test marked with `on_both` runs with PostgreSQL, too.
"""

import pytest

from onetool.ask.sessions import SessionStore
from onetool.database.sqlite import SqliteDatabase

NOW = 1_794_000_000.25


class Harness:
    def __init__(self, database):
        self.database = database

    def open(self, owner=""):
        return SessionStore(self.database, now=lambda: NOW, owners=(owner,))

    def set_modified(self, id, at):
        self.write("UPDATE ask_sessions SET modified = %s WHERE id = %s", at, id)

    def add(self, id, body, kind=""):
        """Make the session if it isn't there."""
        self.write("INSERT INTO ask_sessions VALUES ('', %s, 0, NULL) ON CONFLICT DO NOTHING", id)
        next_number = "(SELECT coalesce(max(number), -1) + 1 FROM ask_messages WHERE id = %s)"
        self.write(f"INSERT INTO ask_messages VALUES ('', %s, {next_number}, %s, %s)", id, id, kind, body)

    def data(self, id):
        sql = "SELECT body FROM ask_messages WHERE id = %s ORDER BY number"
        return [bytes(body) for (body,) in self.write(sql, id)]

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
