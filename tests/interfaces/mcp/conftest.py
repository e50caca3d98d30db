"""Clients and servers for the tests of MCP. What many tests can share is started once per process of tests."""

import sys
from contextlib import asynccontextmanager

import pytest
from interfaces.mcp.peers import CONFIG, HttpPeer, Server, StdioPeer, environment

WAYS = ["stdio-old", "stdio-new", "http-old", "http-new"]


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory):
    """`onetool serve`, in menu direct, for tests that leave it as it was."""
    server = Server(tmp_path_factory.mktemp("server"), "--menu", "direct")
    yield server
    code = server.stop()
    assert code == 0
    assert "Traceback" not in server.log()


@pytest.fixture(scope="session")
def shared_peers(tmp_path_factory, shared_server):
    """One peer for each way, as long as it lives."""
    known = {}

    def peer(way):
        transport, era = way.split("-")
        if way not in known or not known[way].is_alive:
            folder = tmp_path_factory.mktemp(way)
            known[way] = HttpPeer(shared_server, era) if transport == "http" else StdioPeer(folder, era, *DIRECT)
        return known[way]

    yield peer
    for one in known.values():
        assert one.close() == 0


DIRECT = ("--menu", "direct")


@pytest.fixture(params=WAYS)
def peer(request, shared_peers):
    """A client, in each of the four ways: it can be asked everything, and has menu direct."""
    found = shared_peers(request.param)
    found.forget()
    yield found
    assert getattr(found, "other_lines", []) == []


@pytest.fixture
def http_peer(shared_server):
    """Make clients of the shared server."""
    made = []

    def make(era="old", **options):
        made.append(HttpPeer(shared_server, era, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def stdio_peer(tmp_path):
    """Make clients with a server of their own at the other end of a pipe."""
    made = []

    def make(era="old", *args, **options):
        folder = tmp_path / f"pipe-{len(made)}"
        folder.mkdir()
        made.append(StdioPeer(folder, era, *args, **options))
        return made[-1]

    yield make
    for one in made:
        if one.is_alive:
            one.close()


@pytest.fixture
def serve(tmp_path):
    """Start servers; all of them are ended with the test."""
    running = []

    def start(*args, **options):
        folder = tmp_path / f"server-{len(running)}"
        folder.mkdir()
        running.append(Server(folder, *args, **options))
        return running[-1]

    yield start
    for server in running:
        server.stop()


@pytest.fixture(params=WAYS)
def connect(request, shared_server, tmp_path):
    """The official client, in each of the four ways: `async with connect(**options) as client`."""
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    transport, era = request.param.split("-")

    @asynccontextmanager
    async def connected(*args, **options):
        with (tmp_path / "mcp.log").open("w") as log:
            command = ["-m", "onetool", "--config", str(CONFIG), "mcp", *(args or DIRECT)]
            parameters = StdioServerParameters(command=sys.executable, args=command, env=environment(tmp_path))
            place = shared_server.url if transport == "http" else stdio_client(parameters, errlog=log)
            mode = "auto" if era == "new" else "legacy"
            async with Client(place, mode=mode, read_timeout_seconds=20, **options) as client:
                yield client

    connected.era, connected.transport = era, transport
    return connected
