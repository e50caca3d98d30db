"""Bodies that arrive: large ones have few places, and nobody's slow bodies or long calls hold up those of others."""

import asyncio
import json
import select
import socket
from contextlib import ExitStack
from hashlib import sha256

import httpx
import pytest
from helpers import until
from interfaces.http.conftest import TOKEN, Served
from interfaces.http.test_mount import served

import onetool
from onetool import App
from onetool.config.model import HttpConfig
from onetool.http.asgi import HEAD, HttpError
from onetool.interfaces.http import guard
from onetool.interfaces.http.guard import LARGE_BODIES, MIB, Guard, GuardedRequest, Route
from onetool.interfaces.http.listen import BoundAddress
from onetool.interfaces.http.rules import AccessRules

pytestmark = pytest.mark.attack("other callers")

NAMES = ("ann", "bob", "eve")
TOKENS = {name: f"ot_{name}-0123456789-0123456789-0123456789" for name in NAMES}
GATE = '''"""Waits."""

import time
from pathlib import Path


def wait(file: str, text: str) -> int:
    """Wait until a file is there."""
    while not Path(file).exists():
        time.sleep(0.02)
    return len(text)
'''
PART = 1_000_000  # bytes; less than what is large


def config(**changes):
    tokens = [
        {"name": name, "hash": f"sha256:{sha256(token.encode()).hexdigest()}", "role": "edit"}
        for name, token in TOKENS.items()
    ]
    return {"http": {"token": TOKEN, "tokens": tokens, **changes}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Served(tmp_path_factory.mktemp("server"), "--port", "0", config=config())
    yield running
    assert running.stop() == 0


@pytest.fixture
def mounted(tmp_path):
    """The port of a web app of somebody else, and how many places for large bodies are free there."""
    (tmp_path / "onetool.yaml").write_text(json.dumps(config()))
    with App.open(tmp_path / "onetool.yaml") as app:
        asgi = onetool.asgi(app)
        with served(asgi) as url:
            yield httpx.URL(url).port, lambda: asgi._site.places._value


def head(path, *lines, caller=None, kind="application/json"):
    first = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", *lines]
    first += [f"Authorization: Bearer {TOKENS[caller]}"] if caller else []
    return "\r\n".join([*first, "", ""]).encode()


async def nothing(scope, receive, send): ...


def chunk(size):
    return b"%x\r\n%s\r\n" % (size, b" " * size)


def unfinished(size, is_chunked):
    """The header lines and the bytes of a body of which one byte never comes."""
    if is_chunked:
        return "Transfer-Encoding: chunked", chunk(size)
    return f"Content-Length: {size + 1}", b" " * size


class Crowd(ExitStack):
    """Connections with requests that never end."""

    def __init__(self, port):
        super().__init__()
        self.port = port
        self.clients = []

    def add(self, data, address="127.0.0.1"):
        client = self.enter_context(socket.create_connection(("127.0.0.1", self.port), 20, (address, 0)))
        client.settimeout(20)
        client.sendall(data)
        self.clients.append(client)
        return client

    def answered(self):
        return select.select(self.clients, [], [], 0)[0]

    def replies(self, at_least):
        """All answers, once there are so many."""
        until(lambda: len(self.answered()) >= at_least)
        return [Served.read(client) for client in self.answered()]


def call(server, caller, size=100, path="/mcp"):
    return server.ask(path, "POST", [("Authorization", f"Bearer {TOKENS[caller]}")], b"x" * size)


def sign_in(server, token=TOKENS["ann"]):
    return server.ask("/login", "POST", body=json.dumps({"token": token}).encode())


# Signing in


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("size", [4096, 100_000, 4 * MIB])
def test_a_sign_in_of_more_than_4_kb_is_refused(server, size, is_chunked):
    line, data = unfinished(size, is_chunked)
    reply = server.send(head("/login", line) + data + (chunk(1) if is_chunked else b""))
    assert (reply.status, reply.code, reply.headers["connection"]) == (413, "too_large", "close")
    assert "at most 4 KiB" in reply.json["error"]["message"]


def test_a_sign_in_of_4_kb_is_read(server):
    body = json.dumps({"token": TOKENS["ann"]}).encode().ljust(4096)
    assert server.send(head("/login", "Content-Length: 4096") + body).status == 200


@pytest.mark.parametrize("is_chunked", [False, True])
def test_unfinished_sign_ins_hold_up_nobody(server, is_chunked):
    line, data = unfinished(4000, is_chunked)
    with Crowd(server.port) as crowd:
        for _ in range(300):
            crowd.add(head("/login", line) + data)
        assert call(server, "ann", 4 * MIB).json["size"] == 4 * MIB
        assert sign_in(server).status == 200
        assert crowd.answered() == []


def test_announced_bytes_that_never_come_cost_nothing(server):
    with Crowd(server.port) as crowd:
        for _ in range(300):
            crowd.add(head("/login", "Content-Length: 4096"))
            crowd.add(head("/mcp", f"Content-Length: {MIB}", caller="eve"))
        assert sign_in(server).status == 200
        assert call(server, "eve", MIB).status == 200
        assert crowd.answered() == []


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_request_that_shows_no_credential_is_answered_before_its_body_is_read(server, is_chunked):
    line, data = unfinished(PART, is_chunked)
    with Crowd(server.port) as crowd:
        for path in ("/mcp", "/call/time.now", "/tools/imports/zip", "/nothing"):
            reply = server.read(crowd.add(head(path, line) + data[:1000]))
            assert reply.status == 401, path


# Callers


def test_a_byte_at_a_time_is_counted_like_all_at_once(server):
    with Crowd(server.port) as crowd:
        slow = crowd.add(head("/mcp", "Content-Length: 2000", caller="eve"))
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2000):
            slow.send(b"x")
        assert server.read(slow).json["size"] == 2000


# Large bodies


def large(caller, size=2 * MIB, path="/mcp"):
    return head(path, f"Content-Length: {size}", caller=caller) + b"x" * size


def fill(crowd, free, is_chunked):
    """Begin as many large bodies as there are places."""
    size = MIB + 100_000
    line, data = unfinished(size, is_chunked)
    firsts = [crowd.add(head("/call/time.now", line, caller="eve") + data) for _ in range(LARGE_BODIES)]
    until(lambda: free() == 0)
    return firsts


def called(caller, size):
    return head("/call/time.now", f"Content-Length: {size}", caller=caller) + b"{}".rjust(size)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_large_body_waits_for_a_place_and_small_ones_do_not(mounted, is_chunked):
    port, free = mounted
    with Crowd(port) as crowd:
        first, *_ = fill(crowd, free, is_chunked)
        waiting = crowd.add(called("bob", 2 * MIB))
        for caller, size in (("eve", 2), ("eve", PART), ("bob", PART)):
            assert Served.read(crowd.add(called(caller, size))).status == 200
        assert waiting not in crowd.answered()
        first.sendall(b"1\r\nx\r\n0\r\n\r\n" if is_chunked else b"x")
        assert Served.read(first).status == 400  # no JSON
        assert Served.read(waiting).status == 200
    until(lambda: free() == LARGE_BODIES)


def test_a_client_that_hangs_up_gives_its_place_to_the_next(mounted):
    port, free = mounted
    with Crowd(port) as crowd:
        first, *_ = fill(crowd, free, False)
        gone, waiting = crowd.add(called("eve", 2 * MIB)[:-1]), crowd.add(called("bob", 2 * MIB))
        gone.close()
        first.close()
        assert Served.read(waiting).status == 200


def test_a_body_that_does_not_arrive_gives_its_place_back_and_may_go_on(mounted, monkeypatch):
    port, free = mounted
    with Crowd(port) as crowd:
        monkeypatch.setattr(guard, "PLACE_S", 0.5)
        first, *_ = fill(crowd, free, False)
        assert Served.read(crowd.add(called("bob", 2 * MIB))).status == 200
        until(lambda: free() == LARGE_BODIES)
        first.sendall(b"x")
        assert Served.read(first).status == 400  # no JSON
        assert free() == LARGE_BODIES


def test_a_large_body_without_a_place_is_refused_and_may_come_again(mounted, monkeypatch):
    port, free = mounted
    with Crowd(port) as crowd:
        fill(crowd, free, False)
        monkeypatch.setattr(guard, "PLACE_S", 0.1)
        for data in (called("bob", 2 * MIB), head("/call/time.now", unfinished(2 * MIB, True)[0], caller="bob")):
            data += b"" if b"Content-Length" in data else chunk(2 * MIB) + b"0\r\n\r\n"
            refused = Served.read(crowd.add(data))
            assert (refused.status, refused.json["code"]) == (503, "too_many_bodies")
            assert int(refused.headers["retry-after"]) > 0


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
STATELESS = ("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: gate__wait")


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate")
    (folder / "gate.py").write_text(GATE)
    running = Served(folder, "--port", "0", "--menu", "direct", config={"packs": ["gate.py"]}, real=True)
    yield running
    assert running.stop() == 0


def posted(path, body, *lines):
    data = json.dumps(body).encode()
    return head(path, f"Content-Length: {len(data)}", "Accept: application/json, text/event-stream", *lines) + data


def gate_call(way, id, file):
    """A call with a large body, which ends when the file is there."""
    arguments = {"file": str(file), "text": "x" * 2 * MIB}
    if way == "call":
        return posted("/call/gate.wait", arguments)
    params = {"name": "gate__wait", "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    if way == "stateless":
        params["_meta"] = META
        return posted("/mcp", message, *STATELESS)
    return posted("/mcp", message, f"Mcp-Session-Id: {way}", "MCP-Protocol-Version: 2025-06-18")


@pytest.mark.parametrize("way", ["call", "session", "stateless"])
def test_a_large_body_whose_call_takes_long_holds_up_no_other(gate, tmp_path, way):
    there, later = tmp_path / "there", tmp_path / "later"
    there.touch()
    if way == "session":
        begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": begin}
        way = gate.send(posted("/mcp", message)).headers["mcp-session-id"]
    with Crowd(gate.port) as crowd:
        first = crowd.add(gate_call(way, 1, later))
        second = gate.read(crowd.add(gate_call(way, 2, there)))
        assert (second.status, str(2 * MIB) in second.body.decode()) == (200, True), second.body
        assert first not in crowd.answered()
        later.touch()
        assert gate.read(first).status == 200


# What is given back


def test_the_place_of_a_body_that_is_refused_is_given_back(mounted):
    port, free = mounted
    line, data = unfinished(3 * MIB, is_chunked=True)
    with Crowd(port) as crowd:
        crowd.add(head("/call/time.now", line, caller="eve") + data)
        until(lambda: free() == LARGE_BODIES - 1)
        too_large = crowd.add(head("/call/time.now", line, caller="bob") + data + chunk(4 * MIB))
        assert Served.read(too_large).status == 413
        until(lambda: free() == LARGE_BODIES - 1)
    until(lambda: free() == LARGE_BODIES)


def test_a_response_that_has_begun_gets_no_second_one():
    async def answer():
        sent = []

        async def send(message):
            sent.append(message["type"])

        route = Route("/x", nothing)
        site = Guard([route], AccessRules(HttpConfig(), BoundAddress("127.0.0.1", 1)), MIB)
        exchange = GuardedRequest(site, route, {}, {"method": "GET", "log": {}, HEAD: {}}, nothing, send)
        begin = {"type": "http.response.start", "status": 200, "headers": []}
        await exchange.send({**begin})
        await exchange.send({"type": "http.response.body", "body": b"x", "more_body": True})
        with pytest.raises(RuntimeError, match="second response"):
            await exchange.send({**begin, "status": 503})
        await exchange.refuse(HttpError(500, "internal", "a bug"))
        return sent, exchange.status

    assert asyncio.run(answer()) == (["http.response.start", "http.response.body"], 200)
