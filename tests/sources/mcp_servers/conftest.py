"""What the tests of other people's servers share."""

import pytest
from sources.mcp_servers.nasty.http_server import HttpServer
from sources.mcp_servers.stage import Stage


@pytest.fixture
def stage(tmp_path):
    stage = Stage(tmp_path)
    yield stage
    assert stage.left() == []


@pytest.fixture
def http():
    with HttpServer() as server:
        yield server
