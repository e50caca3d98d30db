"""How many functions and files of ours a warm call passes: until its answer is sent, and with what follows.

Fewer steps are faster and easier to read. `COUNTED` has the last figures; a change may add a tenth.

`python tests/interfaces/test_call_path.py` prints the functions in their order.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest
from interfaces.mcp.servers import environment
from upstream import Reply, Upstream

TRACED = Path(__file__).with_name("traced.py")
PACK = "def add(x: int, y: int = 1) -> int:\n    '''Add two numbers.'''\n    return x + y\n"
META = "io.modelcontextprotocol/"
CALLS = 5
SETTLED_S = 3.0  # after which counts are written, and only what is done regularly goes on
QUEUES = ("onetool-events", "onetool-audit")  # their threads do what follows
WRITES = ("interfaces/http/guard.py GuardedRequest.send", "interfaces/mcp/stdio.py StdoutWriter._write")
COUNTED = {  # functions and files until the answer is sent, and with what follows
    "tools/call over HTTP, stateless": ((97, 38), (154, 47)),
    "tools/call over HTTP, in a session": ((92, 37), (150, 47)),
    "REST invoke of an HTTP tool": ((124, 55), (200, 69)),
    "run with one inner call, stdio": ((174, 39), (197, 46)),
}


class Traced:
    """`onetool` with its calls of functions noted."""

    def __init__(self, folder, *args, host="127.0.0.1", stdin=subprocess.DEVNULL, stdout=None):
        self.calls = folder / "calls"
        (folder / "packs").mkdir()
        (folder / "packs" / "adding.py").write_text(PACK)
        (folder / "onetool.yaml").write_text(
            f"packs: [packs]\nallowedHosts: [{{host: '{host}', allowPrivate: true}}]\n"
        )
        env = environment(folder, CALL_PATH_FILE=str(self.calls))
        command = [sys.executable, str(TRACED), "--config", str(folder / "onetool.yaml"), *args]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, env=env, cwd=folder, stdin=stdin, stdout=stdout or log, stderr=log)
        self.log = folder / "log"

    def path_of(self, call):
        """Call several times, and return the shortest path, without what the server does anyway."""
        for _ in range(CALLS):
            call()
        times = []
        for _ in range(CALLS):
            time.sleep(1.5)  # what follows a call is over
            began = time.monotonic_ns()
            call()
            times.append((began, time.monotonic_ns()))
        time.sleep(SETTLED_S)
        idle = time.monotonic_ns()
        time.sleep(SETTLED_S)
        os.kill(self.process.pid, signal.SIGUSR1)
        while not self.calls.exists():
            time.sleep(0.01)
        lines = [line.split(" ", 2) for line in self.calls.read_text().splitlines()]
        noted = [(int(at), name) for at, _, name in lines]
        at_once = [(int(at), name) for at, thread, name in lines if thread not in QUEUES]
        besides = {*in_order(noted, idle, sys.maxsize)}
        ends = [began for began, _ in times[1:]] + [idle]
        answered = min((in_order(at_once, began, sent(noted, began, until)) for began, until in times), key=len)
        followed = min((in_order(noted, began, end) for (began, _), end in zip(times, ends, strict=True)), key=len)
        return answered, [name for name in followed if name in answered or name not in besides]

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


def sent(noted, began, until):
    """Return the time just after the answer was written, which is before its client has it."""
    return max(at for at, name in noted if began <= at < until and name.split(":")[0] in WRITES) + 1


def in_order(noted, began, end):
    """Return the distinct functions between two times."""
    return list(dict.fromkeys(name for at, name in noted if began <= at < end))


@contextmanager
def served(folder, **options):
    """A server and one connection to it."""
    server = Traced(folder, "serve", "--port", "0", "--menu", "direct", **options)
    try:
        while b"/mcp" not in (said := server.log.read_bytes()):
            time.sleep(0.05)
            assert server.process.poll() is None, said
        port = int(re.search(rb"http://127\.0\.0\.1:(\d+)/mcp", said)[1])
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        yield server, connection
        connection.close()
    finally:
        server.close()


def send(connection, method, path, body, headers=None):
    kept = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **(headers or {})}
    connection.request(method, path, json.dumps(body), kept)
    response = connection.getresponse()
    text = response.read()
    assert response.status < 300, text
    return response, text


def message(method, **params):
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


HELLO = message(
    "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "path", "version": "1"}
)
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def stateless_call(folder):
    with served(folder) as (server, connection):
        meta = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}}
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "adding__add"}
        call = message("tools/call", name="adding__add", arguments={"x": 1}, _meta=meta)

        def once():
            assert json.loads(send(connection, "POST", "/mcp", call, headers)[1])["result"]["content"][0]["text"] == "2"

        return server.path_of(once)


def session_call(folder):
    with served(folder) as (server, connection):
        response, _ = send(connection, "POST", "/mcp", HELLO)
        headers = {"Mcp-Session-Id": response.headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-11-25"}
        send(connection, "POST", "/mcp", INITIALIZED, headers)
        call = message("tools/call", name="adding__add", arguments={"x": 1})

        def once():
            assert json.loads(send(connection, "POST", "/mcp", call, headers)[1])["result"]["content"][0]["text"] == "2"

        return server.path_of(once)


def rest_invoke(folder):
    with Upstream() as upstream, served(folder, host=upstream.url.partition("//")[2]) as (server, connection):
        upstream.say(Reply(body=b'{"ok": true}'))
        bundle = "/tools/bundles/01890a5d-ac96-774b-bcce-000000000001"
        tool = f"{bundle}/tools/ping/version/1"
        request = {"urlTemplate": f"{upstream.url}/x", "method": "GET"}
        definition = {"type": "http", "httpImpl": {"request": request, "response": {}}, "argSchema": {}}
        send(connection, "PUT", bundle, {"slug": "net"})
        send(connection, "PUT", tool, definition)

        def once():
            _, text = send(connection, "POST", f"{tool}/invoke", {"args": {}})
            assert json.loads(text) == {"ok": True, "value": {"ok": True}}, text

        return server.path_of(once)


def run_over_stdio(folder):
    server = Traced(folder, "mcp", "--menu", "run", stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(body):
        server.process.stdin.write(json.dumps(body).encode() + b"\n")
        server.process.stdin.flush()
        return json.loads(server.process.stdout.readline()) if "id" in body else None

    try:
        ask(HELLO)
        ask(INITIALIZED)
        call = message("tools/call", name="run", arguments={"code": "adding.add(x=1)"})

        def once():
            assert ask(call)["result"]["content"][0]["text"] == "2"

        return server.path_of(once)
    finally:
        server.close()


WAYS = dict(zip(COUNTED, (stateless_call, session_call, rest_invoke, run_over_stdio), strict=True))


def files_of(functions):
    return {name.split(" ")[0] for name in functions}


@pytest.mark.long
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="counted with Python 3.11")
@pytest.mark.parametrize("way", COUNTED)
def test_no_longer_than_it_was(way, tmp_path):
    for functions, limits in zip(WAYS[way](tmp_path), COUNTED[way], strict=True):
        counted = (len(functions), len(files_of(functions)))
        assert all(number <= 1.1 * limit for number, limit in zip(counted, limits, strict=True)), (counted, functions)


if __name__ == "__main__":
    for way in sys.argv[1:] or WAYS:
        with tempfile.TemporaryDirectory() as folder:
            answered, everything = next(WAYS[name] for name in WAYS if way in name)(Path(folder))
        print(f"\n{way}: {len(answered)} functions in {len(files_of(answered))} files until the answer, ", end="")
        print(f"{len(everything)} in {len(files_of(everything))} with what follows")
        print(*(f"  {name}" for name in answered), "  after the answer:", sep="\n")
        print(*(f"  {name}" for name in everything if name not in answered), sep="\n")
