"""Documents for suites over both drivers: SQLite, then PostgreSQL.

@pytest.fixture
def two(places):
    return TokenStore(places("tokens")), TokenStore(places("tokens"))

`in_home` gives the documents of a state folder; `stored_tokens`, its tokens.
"""

import pytest
from postgres import database, database_url, postgres

from onetool.app.documents import KINDS
from onetool.database.documents import Documents
from onetool.database.encryption import Seal
from onetool.database.sqlite import SqliteDatabase
from onetool.services.access_tokens import TokenStore

__all__ = ["KeptLogin", "database", "database_url", "in_home", "places", "postgres", "stored_tokens"]

SECRET = b"a secret that all replicas know, and nobody else"


def in_home(home, kind, follow=None):
    """The documents of a state folder, as a process of its own has them."""
    return Documents(SqliteDatabase(home / "state.db", makes_folder=True), kind, None, follow or KINDS[kind].follow)


def stored_tokens(home, *args):
    return TokenStore(in_home(home, "tokens"), *args, home=home)


class KeptLogin:
    """A login that tests read and change as text, like a file."""

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
    """`places(kind)` gives one as a process of its own has it. `follow` is that of whoever opens it."""
    if request.param == "sqlite":
        yield lambda kind, follow=None: in_home(tmp_path, kind, follow)
        return
    from onetool.database.postgres import Postgres

    request.getfixturevalue("database")  # makes the tables
    opened = []

    def place(kind, follow=None):
        opened.append(Postgres(request.getfixturevalue("database_url")))
        keeping = KINDS[kind]
        seal = Seal(lambda: [SECRET]) if keeping.is_sealed else None
        return Documents(opened[-1], kind, seal, follow or keeping.follow)

    yield place
    for one in opened:
        one.close()
