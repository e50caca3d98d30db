"""OneTool in front of somebody's servers: a folder with a config, clients of it, and every process known by its id."""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path

from helpers import until
from interfaces.mcp.peers import HttpPeer, StdioPeer
from interfaces.mcp.servers import PATIENCE, Server, environment
from sources.mcp_servers.harness import Harness
from warm import program

SCRIPT = Path(__file__).parent / "fixture" / "upstream.py"
CHANGED = "notifications/tools/list_changed"


class Site(Harness):
    """`upstream` is the block of a server that is `fixture/upstream.py`."""

    def __init__(self, folder):
        super().__init__(folder)
        self._server = None
        self._peers = []

    def upstream(self, *args, **settings):
        block = self.nasty("ok", *args, **settings)
        return {**block, "args": [str(SCRIPT) if arg.endswith("ok.py") else arg for arg in block["args"]]}

    def file(self, name):
        """A path that nothing is at yet."""
        return self.folder / f"{name}-{len(list(self.folder.iterdir()))}"

    @property
    def server(self):
        """`onetool serve` with what is configured, started when it is first wanted."""
        if self._server is None:
            self._server = Server(self.folder, config=self.folder / "onetool.yaml")
        return self._server

    def peer(self, way, menu="direct", **options):
        transport, era = way.split("-")
        if transport == "http":
            made = HttpPeer(self.server, era, query=f"?menu={menu}", **options)
        else:
            made = StdioPeer(self.folder, era, "--menu", menu, config=self.folder / "onetool.yaml", **options)
        self._peers.append(made)
        return made

    @asynccontextmanager
    async def client(self, way, menu="direct", **options):
        """The official one."""
        from mcp.client import Client
        from mcp.client.stdio import StdioServerParameters, stdio_client

        transport, era = way.split("-")
        with (self.folder / "client.log").open("w") as log:
            if transport == "http":
                place = f"{self.server.url}?menu={menu}"
            else:
                args, env = ["mcp", "--menu", menu], environment(self.folder)
                command, *rest = program(["--config", str(self.folder / "onetool.yaml"), *args], env)
                place = stdio_client(StdioServerParameters(command=command, args=rest, env=env), errlog=log)
            mode = "auto" if era == "new" else "legacy"
            async with Client(place, mode=mode, read_timeout_seconds=PATIENCE, cache=None, **options) as client:
                yield client

    def close(self):
        """Whatever was started must be gone, and nothing went wrong that nobody foresaw."""
        for peer in self._peers:
            was_alive = peer.is_alive
            if was_alive or isinstance(peer, StdioPeer):
                assert peer.close() == 0 or not was_alive
        if self._server is not None:
            was_alive = self._server.process.poll() is None
            assert self._server.stop() == 0 or not was_alive
        for log in self.folder.glob("*.log"):
            said = log.read_text()
            at = said.find("Traceback")
            assert at < 0, said[max(at - 1_000, 0) : at + 4_000]
        assert self.left() == []


def with_client(connected, work):
    """Do something with a client that is connected."""
    wrong = []

    async def run():
        async with connected as client:
            try:
                await asyncio.wait_for(work(client), 60)
            except Exception as error:  # told outside: the client would wrap it in group after group
                wrong.append(error)

    asyncio.run(run())
    for error in wrong:
        raise error


def names(peer):
    """Of the tools that it is shown."""
    return {tool["name"] for tool in listing(peer)}


def listing(peer):
    found, cursor = [], None
    while True:
        result = peer.result("tools/list", {"cursor": cursor} if cursor else {})
        found += result["tools"]
        cursor = result.get("nextCursor")
        if cursor is None:
            return found


def up(peer, *packs):
    """Wait until these have come."""
    wanted = {f"{pack}__echo" for pack in packs}
    until(lambda: wanted <= names(peer))


def listen(peer):
    """Hear of changes from now on."""
    if peer.is_new:
        peer.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        peer.hear("notifications/subscriptions/acknowledged")
    elif isinstance(peer, HttpPeer):
        peer.listen()


def heard(peer, method=CHANGED):
    return [one.get("params", {}) for one in peer.heard if one["method"] == method]


def said(peer, tool, arguments=None, **more):
    """Return the data that a tool answers with, as structured content or as a text with JSON."""
    result = peer.call(tool, arguments, **more)
    return result.get("structuredContent") or json.loads(result["content"][0]["text"])
