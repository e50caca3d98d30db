"""What the tests of other people's servers share."""

import pytest
from sources.mcp_servers.harness import Harness
from sources.mcp_servers.nasty.http_server import HttpServer


@pytest.fixture
def harness(tmp_path):
    harness = Harness(tmp_path)
    yield harness
    assert harness.left() == []


@pytest.fixture
def http():
    with HttpServer() as server:
        yield server
