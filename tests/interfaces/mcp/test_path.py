"""How straight the way of a request is: few frames until the call, one piece of response, no thread for each list."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from helpers import until
from interfaces.http.matrix import exchange, served
from interfaces.mcp.peers import META, NEW, HttpPeer
from interfaces.mcp.servers import environment
from interfaces.mcp.test_counted import kept

from onetool import App
from onetool.core.call import ToolResult

MAX_FRAMES = 7  # of interfaces/mcp between the route and `App.call`
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "one", "version": "1"}}
CALL = {"name": "time__now", "arguments": {}}


@pytest.fixture
def frames(monkeypatch):
    """The functions of interfaces/mcp that were active when `App.call` was called, the outermost first."""
    found = []

    async def call(*_args, **_more):
        frame = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if f"interfaces{os.sep}mcp" in code.co_filename and "tests" not in code.co_filename:
                found.insert(0, code.co_qualname)
            frame = frame.f_back
        return ToolResult(ok=True, data=1, error=None, meta={})

    monkeypatch.setattr(App, "call", call)
    return found


@pytest.fixture
def site(tmp_path):
    app, site = served(tmp_path / "it", {"menu": "direct"})
    yield site
    app.close()


def post(site, method, params, *headers):
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return exchange(site, "/mcp", "POST", headers, json.dumps(message).encode())


def test_a_call_in_a_session(site, frames):
    async def ask():
        _, headers, _ = await post(site, "initialize", HELLO)
        return await post(site, "tools/call", CALL, ("mcp-session-id", headers[b"mcp-session-id"].decode()))

    status, _, body = asyncio.run(ask())
    assert (status, json.loads(body)["result"]["content"][0]["text"]) == (200, "1")
    assert frames[0] == "McpHttpApp.__call__"
    assert len(frames) - 1 <= MAX_FRAMES, frames


def test_a_call_that_stands_alone(site, frames):
    about = {f"{META}protocolVersion": NEW, f"{META}clientCapabilities": {}}
    names = (("mcp-protocol-version", NEW), ("mcp-method", "tools/call"), ("mcp-name", CALL["name"]))
    status, _, body = asyncio.run(post(site, "tools/call", {**CALL, "_meta": about}, *names))
    assert status == 200, body
    assert len(frames) - 1 <= MAX_FRAMES, frames


def test_lists_take_no_thread_each(serve):
    """64 threads would measure the same menu at once, and the event loop would wait for each of them."""
    server = serve("--menu", "direct")
    peer = HttpPeer(server, "old")
    peer.result("tools/list")
    tasks = f"/proc/{server.process.pid}/task"
    if not os.path.isdir(tasks):
        pytest.skip("threads are counted in /proc")
    before = len(os.listdir(tasks))
    for pending in [peer.begin("tools/list") for _ in range(40)]:
        assert pending.answer()["result"]["tools"]
    until(lambda: kept(server.folder, "SELECT count(*) FROM events WHERE kind = 'menu'") == [(41,)])
    assert len(os.listdir(tasks)) < before + 20


def test_a_stdio_server_loads_nothing_of_http_rest_the_page_or_the_cluster(tmp_path):
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    call = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "run", "arguments": {"code": "1 + 1"}},
    }
    code = (
        "import atexit, sys; atexit.register(lambda: print('modules:', *sys.modules, file=sys.stderr)); "
        "from onetool.interfaces.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "mcp"],
        input="".join(f"{json.dumps(one)}\n" for one in (hello, call)),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(tmp_path),
        timeout=60,
    )
    assert json.loads(done.stdout.splitlines()[-1])["id"] == 2, done.stderr
    (loaded,) = [line for line in done.stderr.splitlines() if line.startswith("modules:")]
    unwanted = (
        "onetool.interfaces.http",
        "onetool.interfaces.rest",
        "onetool.interfaces.web",
        "onetool.cluster",
        "uvicorn",
    )
    assert not [name for name in loaded.split() if name.startswith(unwanted)]
