"""Clients and servers for the tests of MCP. What many tests can share is started once per process of tests."""

from contextlib import ExitStack, asynccontextmanager

import pytest
from interfaces.mcp.peers import HttpPeer, StdioPeer
from interfaces.mcp.servers import CONFIG, PATIENCE, Server, ended_well, environment
from warm import program

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
    """One peer for each way and menu, as long as it lives."""
    known = {}
    with ExitStack() as ends:

        def peer(way, menu="direct"):
            transport, era = way.split("-")
            found = known.get((way, menu))
            if found is None or not found.is_alive:
                if transport == "stdio":
                    found = StdioPeer(tmp_path_factory.mktemp(way), era, "--menu", menu)
                else:
                    found = HttpPeer(shared_server, era, query=f"?menu={menu}")
                ends.callback(ended_well, found.close)
                known[way, menu] = found
            found.forget()
            return found

        yield peer


@pytest.fixture(params=WAYS)
def peer(request, shared_peers):
    """A client, in each of the four ways: it can be asked everything, and has menu direct."""
    found = shared_peers(request.param)
    yield found
    assert getattr(found, "other_lines", []) == []


@pytest.fixture(params=WAYS)
def runner(request, shared_peers):
    """The same with menu run."""
    found = shared_peers(request.param, "run")
    yield found
    assert getattr(found, "other_lines", []) == []


@pytest.fixture
def http_peer(shared_server):
    """Make clients of the shared server."""
    with ExitStack() as ends:

        def make(era="old", **options):
            made = HttpPeer(shared_server, era, **options)
            ends.callback(made.close)
            return made

        yield make


@pytest.fixture
def stdio_peer(tmp_path):
    """Make clients with a server of their own at the other end of a pipe."""
    with ExitStack() as ends:

        def make(era="old", *args, **options):
            folder = tmp_path / f"pipe-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            made = StdioPeer(folder, era, *args, **options)
            ends.callback(made.close)
            return made

        yield make


@pytest.fixture
def serve(tmp_path):
    """Start servers; all of them are ended with the test."""
    with ExitStack() as ends:

        def start(*args, **options):
            folder = tmp_path / f"server-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            server = Server(folder, *args, **options)
            ends.callback(server.stop)
            return server

        yield start


@pytest.fixture(params=WAYS)
def connect(request, shared_server, tmp_path):
    """The official client, in each of the four ways: `async with connect(**options) as client`.

    Another config than that of all tests gets a server of its own.
    """
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    transport, era = request.param.split("-")
    ends = ExitStack()

    def place(config, menu, log):
        if transport == "stdio":
            env = environment(tmp_path)
            command, *rest = program(["--config", str(config), "mcp", "--menu", menu], env)
            return stdio_client(StdioServerParameters(command=command, args=rest, env=env), errlog=log)
        if config == CONFIG:
            return f"{shared_server.url}?menu={menu}"
        server = Server(tmp_path, "--menu", menu, config=config)
        ends.callback(ended_well, server.stop)
        return server.url

    @asynccontextmanager
    async def connected(config=CONFIG, menu="direct", **options):
        with (tmp_path / "mcp.log").open("w") as log:
            mode = "auto" if era == "new" else "legacy"
            server = place(config, menu, log)
            async with Client(server, mode=mode, read_timeout_seconds=PATIENCE, cache=None, **options) as client:
                yield client

    connected.is_new = era == "new"
    with ends:
        yield connected
