"""Bodies that wait in memory: nobody fills it with unfinished requests, and nobody's large bodies hold up others."""

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
from onetool.core.principal import Principal
from onetool.http.asgi import HEAD, SEND_WHOLE, HttpError
from onetool.interfaces.http.exchange import (
    FULL_SHARES,
    MAX_PER_ADDRESS,
    MAX_PER_CALLER,
    MIB,
    BodyMemory,
    Exchange,
    Route,
)

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
HELD = MAX_PER_ADDRESS // 4000 - 1  # sign-ins of 4,000 bytes that are read: there is room for one more


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
    """The port of a web app of somebody else, and how many bytes of bodies OneTool holds there."""
    (tmp_path / "onetool.yaml").write_text(json.dumps(config()))
    with App.open(tmp_path / "onetool.yaml") as app:
        asgi = onetool.asgi(app)
        with served(asgi) as url:
            yield httpx.URL(url).port, lambda: asgi._site.bodies.total


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
def test_unfinished_sign_ins_hold_little_memory_and_nobody_else(server, is_chunked):
    line, data = unfinished(4000, is_chunked)
    with Crowd(server.port) as crowd:
        for _ in range(300):
            crowd.add(head("/login", line) + data)
        refused = crowd.replies(300 - HELD)
        assert len(refused) == 300 - HELD
        assert {(one.status, one.code) for one in refused} == {(503, "too_many_bodies")}
        assert all(int(one.headers["retry-after"]) > 0 for one in refused)
        assert call(server, "ann", 4 * MIB).json["size"] == 4 * MIB
        assert sign_in(server).status == 200
        body = json.dumps({"token": TOKENS["ann"]}).encode()
        other = crowd.add(head("/login", f"Content-Length: {len(body)}") + body, "127.0.0.2")
        assert server.read(other).status == 200


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


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/mcp", "application/json"),
        ("/call/time.now", "application/json"),
        ("/run", "application/json"),
        ("/ask", "application/json"),
        ("/tools/imports/zip", "application/zip"),
    ],
)
def test_unfinished_bodies_of_one_caller_are_bounded(server, path, kind, is_chunked):
    line, data = unfinished(PART, is_chunked)
    count = MAX_PER_CALLER // PART
    with Crowd(server.port) as crowd:
        for _ in range(2 * count):
            crowd.add(head(path, line, caller="eve", kind=kind) + data)
        refused = crowd.replies(count)
        assert count <= len(refused) < 2 * count
        assert {(one.status, one.code) for one in refused} == {(503, "too_many_bodies")}
        assert all(int(one.headers["retry-after"]) > 0 for one in refused)
        assert call(server, "bob", 4 * MIB).json["size"] == 4 * MIB
        assert sign_in(server).status == 200
    until(lambda: call(server, "eve", MIB).status == 200)


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


@pytest.mark.parametrize("is_chunked", [False, True])
def test_one_large_body_of_a_caller_is_read_at_a_time(mounted, is_chunked):
    port, held = mounted
    size = MIB + 100_000
    line, data = unfinished(size, is_chunked)

    def called(caller, size):
        return head("/call/time.now", f"Content-Length: {size}", caller=caller) + b"{}".rjust(size)

    with Crowd(port) as crowd:
        first = crowd.add(head("/call/time.now", line, caller="eve") + data)
        until(lambda: held() == size)
        second = crowd.add(called("eve", 2 * MIB))
        for caller, size in (("eve", 2), ("eve", PART), ("bob", 2 * MIB)):
            assert Served.read(crowd.add(called(caller, size))).status == 200
        assert second not in crowd.answered()
        first.sendall(b"1\r\nx\r\n0\r\n\r\n" if is_chunked else b"x")
        assert Served.read(first).status == 400  # no JSON
        assert Served.read(second).status == 200


def test_a_client_that_hangs_up_gives_its_turn_to_the_next(server):
    with Crowd(server.port) as crowd:
        first = crowd.add(large("eve")[:-1])
        assert call(server, "eve").status == 200
        gone = crowd.add(large("eve")[:-1])
        third = crowd.add(large("eve"))
        assert call(server, "eve").status == 200
        assert crowd.answered() == []
        gone.close()
        first.close()
        assert server.read(third).json["size"] == 2 * MIB


def test_large_bodies_that_wait_are_bounded_and_leave_room_for_the_one_that_is_read(server):
    with Crowd(server.port) as crowd:
        first = crowd.add(large("eve", 4 * MIB)[:-1])
        assert call(server, "eve").status == 200
        for _ in range(60):
            crowd.add(head("/mcp", f"Content-Length: {2 * MIB}", caller="eve"))
        refused = crowd.replies(60 - MAX_PER_CALLER // 2 // (320 * 1024))
        assert {(one.status, one.code) for one in refused} == {(503, "too_many_bodies")}
        first.sendall(b"x")
        assert server.read(first).json["size"] == 4 * MIB
    until(lambda: call(server, "eve", 2 * MIB).status == 200)


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


def test_in_a_web_app_300_unfinished_sign_ins_hold_a_megabyte(mounted):
    port, held = mounted
    line, data = unfinished(4000, is_chunked=True)
    with Crowd(port) as crowd:
        for _ in range(300):
            crowd.add(head("/login", line) + data)
        assert len(crowd.replies(300 - HELD)) == 300 - HELD
        assert held() == HELD * 4000 < MAX_PER_ADDRESS
    until(lambda: held() == 0)


@pytest.mark.parametrize("size", [10, PART, 3 * MIB])
def test_what_is_refused_cut_off_or_answered_is_given_back(mounted, size):
    port, held = mounted
    line, data = unfinished(size, is_chunked=True)
    with Crowd(port) as crowd:
        cut_off = crowd.add(head("/call/time.now", line, caller="eve") + data)
        until(lambda: held() == size)
        answered = crowd.add(head("/call/time.now", line, caller="bob") + data + b"0\r\n\r\n")
        assert Served.read(answered).status == 400  # no JSON
        too_large = crowd.add(head("/call/time.now", line, caller="bob") + data + chunk(4 * MIB))
        assert Served.read(too_large).status == 413
        until(lambda: held() == size)
        cut_off.close()
        until(lambda: held() == 0)


def test_all_callers_together_have_so_much_and_there_is_room_for_one_more():
    memory = BodyMemory()
    for caller in "abc":
        assert memory.take(caller, MAX_PER_CALLER, MAX_PER_CALLER)
        assert not memory.take(caller, 1, MAX_PER_CALLER)
    assert memory.total == (FULL_SHARES - 1) * MAX_PER_CALLER == 48 * MIB
    for number, size in enumerate([8 * MIB, 4 * MIB, 2 * MIB, MIB]):
        assert not memory.take(f"caller {number}", size + 1, MAX_PER_CALLER)
        assert memory.take(f"caller {number}", size, MAX_PER_CALLER)
    assert memory.take("address", 4096, MAX_PER_ADDRESS)
    assert memory.total < 64 * MIB
    memory.give_back("a", MAX_PER_CALLER)
    assert memory.take("d", 8 * MIB, MAX_PER_CALLER)


@pytest.mark.parametrize(("caller", "is_ours", "counted"), [("ann", True, 0), ("ann", False, 4096), (None, True, 4096)])
def test_small_bodies_count_unless_the_caller_and_the_server_are_known(caller, is_ours, counted):
    async def receive():
        return {"type": "http.request", "body": bytes(4096), "more_body": False}

    async def send(_message):
        raise AssertionError("refused")

    memory, route = BodyMemory(), Route("/x", nothing)
    scope = {"method": "POST", "path": "/x", HEAD: {b"content-length": b"4096"}, "client": ("9.9.9.9", 1), "log": {}}
    if is_ours:
        scope[SEND_WHOLE] = lambda *_: True
    exchange = Exchange(memory, route, MIB, scope, receive, send)
    exchange.check_length()
    if caller is not None:
        exchange.count_for(Principal(name=caller, owner=caller))
    assert len(asyncio.run(exchange.receive())["body"]) == 4096
    assert memory.total == counted
    exchange.close()
    assert memory.total == 0


def test_a_response_that_has_begun_gets_no_second_one():
    async def answer():
        sent = []

        async def send(message):
            sent.append(message["type"])

        exchange = Exchange(BodyMemory(), Route("/x", nothing), MIB, {"method": "GET", "log": {}}, nothing, send)
        begin = {"type": "http.response.start", "status": 200, "headers": []}
        await exchange.send({**begin})
        await exchange.send({"type": "http.response.body", "body": b"x", "more_body": True})
        with pytest.raises(RuntimeError, match="second response"):
            await exchange.send({**begin, "status": 503})
        await exchange.refuse(HttpError(500, "internal", "a bug"))
        return sent, exchange.status

    assert asyncio.run(answer()) == (["http.response.start", "http.response.body"], 200)
