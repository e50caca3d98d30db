"""Sessions over both backends, for the tests of what each of them has to do.

harness.open(owner)                  the sessions of an owner, as another process would open them
harness.set_modified(id, at)         as if it had been used then
harness.add(id, b"…")                a line that another version, or an accident, has put there
"""

import os

import pytest

from onetool.ask.sessions import SessionStore
from onetool.ask.sessions.database import DatabaseSessions, SessionKey, add_records

NOW = 1_794_000_000.25


class FolderStage:
    def __init__(self, folder):
        self._folder = folder

    def open(self, owner=""):
        return SessionStore(self._folder, now=lambda: NOW, owner=owner)

    def _file(self, id):
        return self._folder / f"{id}.jsonl"

    def set_modified(self, id, at):
        os.utime(self._file(id), (at, at))

    def add(self, id, line):
        with self._file(id).open("ab") as file:
            file.write(line)

    def data(self, id):
        return self._file(id).read_bytes()

    def is_left(self, id):
        return self._file(id).exists()


class DatabaseStage:
    def __init__(self, database):
        self.database = database

    def open(self, owner=""):
        return DatabaseSessions(self.database, now=lambda: NOW, owner=owner)

    def set_modified(self, id, at):
        self._write("UPDATE ask_sessions SET modified = %s WHERE id = %s", at, id)

    def add(self, id, line):
        summary = self.open()._summary
        key = SessionKey("", id)
        self.database.write(lambda work: add_records(work, key, summary(work, id), line.splitlines(keepends=True)))

    def data(self, id):
        return b"".join(
            body for (body,) in self._write("SELECT body FROM ask_records WHERE id = %s ORDER BY number", id)
        )

    def is_left(self, id):
        return bool(self._write("SELECT id FROM ask_sessions WHERE id = %s", id))

    def _write(self, sql, *params):
        return self.database.write(lambda work: work.execute(sql, params))


@pytest.fixture(params=["files", "postgres"])
def harness(request, tmp_path):
    if request.param == "files":
        return FolderStage(tmp_path / "home" / "sessions")
    return DatabaseStage(request.getfixturevalue("database"))
