import time

import pytest
from postgres import database, database_url, postgres

from onetool.database.postgres import Postgres
from onetool.sources.bundles.store.store import database_store


@pytest.fixture
def replica(database_url, database, tmp_path):
    """Opens stores of one database as replicas do: with connections and an index of their own."""
    opened = []

    def one(*built_in, state=None, **options):
        own = Postgres(database_url)
        store = database_store(own, state or tmp_path / f"replica-{len(opened)}", built_in, **options)
        opened.append((own, store))
        return store

    yield one
    for own, store in opened:
        store.close()
        own.close()


@pytest.fixture
def wait_until():
    def wait(condition, seconds=60):
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until
            time.sleep(0.005)

    return wait


__all__ = ["database", "database_url", "postgres"]
