"""The REST API behind a real server."""

import pytest
from interfaces.rest.served import Api
from postgres import database, database_url, postgres

__all__ = ["database", "database_url", "postgres"]


@pytest.fixture(scope="module")
def api():
    running = Api()
    yield running
    assert running.stop() == 0


@pytest.fixture
def start():
    """Others, with options; all of them are ended with the test."""
    running = []

    def one(**options):
        running.append(Api(**options))
        return running[-1]

    yield one
    for api in running:
        api.stop()
