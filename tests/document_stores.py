"""Document stores for tests that run with both SQLite and PostgreSQL.

@pytest.fixture
def two(places):
    return TokenStore(places("tokens")), TokenStore(places("tokens"))
"""

import pytest
from postgres import database, database_url, postgres

from onetool.app.documents import KINDS
from onetool.database.documents import Documents
from onetool.database.encryption import Seal
from onetool.database.sqlite import SqliteDatabase
from onetool.services.access_tokens import TokenStore

__all__ = ["KeptLogin", "database", "database_url", "in_home", "places", "postgres", "stored_tokens"]

SECRET = b"a secret that only the replicas share"


def in_home(home, kind, follow=None):
    """Open the documents of one kind in a state folder, with a connection of their own."""
    return Documents(SqliteDatabase(home / "state.db", makes_folder=True), kind, None, follow or KINDS[kind].follow)


def stored_tokens(home, *args):
    """Open the access tokens of a state folder."""
    return TokenStore(in_home(home, "tokens"), *args, home=home)


class KeptLogin:
    """A stored login with the methods of a `Path`, for tests that read and change its text."""

    def __init__(self, logins, key):
        self._logins, self._key = logins, key

    def exists(self):
        return self._key in self._logins.keys()  # noqa: SIM118 - no dict

    def read_bytes(self):
        return self._logins.read(self._key)

    def read_text(self):
        return self.read_bytes().decode()

    def write_text(self, text):
        self._logins.write(self._key, text.encode())


@pytest.fixture(params=["sqlite", "postgres"])
def places(request, tmp_path):
    """Return a function that opens documents of a kind as another process would, with SQLite or PostgreSQL."""
    if request.param == "sqlite":
        yield lambda kind, follow=None: in_home(tmp_path, kind, follow)
        return
    from onetool.database.postgres import Postgres

    request.getfixturevalue("database")  # makes the tables
    opened = []

    def open_documents(kind, follow=None):
        opened.append(Postgres(request.getfixturevalue("database_url")))
        keeping = KINDS[kind]
        seal = Seal(lambda: [SECRET]) if keeping.is_sealed else None
        return Documents(opened[-1], kind, seal, follow or keeping.follow)

    yield open_documents
    for opened_database in opened:
        opened_database.close()
