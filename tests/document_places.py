"""Where documents are kept, for suites over both backends: a folder, then a database.

@pytest.fixture
def two(places):
    return TokenStore(places("tokens")), TokenStore(places("tokens"))
"""

import pytest
from postgres import database, database_url, postgres

__all__ = ["database", "database_url", "places", "postgres"]

SECRET = b"a secret that all replicas know, and nobody else"


@pytest.fixture(params=["files", "postgres"])
def places(request, tmp_path):
    """`places(kind)` gives one as a process of its own has it. `follow` is that of whoever opens it."""
    if request.param == "files":
        yield lambda kind, follow=None: tmp_path / kind
        return
    from onetool.app.documents import KINDS
    from onetool.database.documents import Documents
    from onetool.database.encryption import Seal
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
