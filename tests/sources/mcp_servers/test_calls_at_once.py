"""Two calls on one connection to a web server: the fault of one is not the other's, and what may cost is done once."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler

import pytest
from helpers import until_async
from sources.mcp_servers.nasty.http_server import HELLO, Quiet, tool

from onetool import ToolCall

PATIENCE = 60


class Shop(BaseHTTPRequestHandler):
    """`pay` is noted, and answered when `go` is set: with an error, or with a stream that breaks off."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._say(b"", 405)

    def do_DELETE(self):
        self._say(b"", 200)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message:
            self._say(b"", 202)
        elif message["method"] == "tools/call" and message["params"]["name"] == "pay":
            self._pay(message["id"])
        else:
            self._answer(message)

    def _answer(self, message):
        known = {
            "initialize": HELLO,
            "tools/list": {"tools": [tool("pay"), tool("ping")]},
            "tools/call": {"content": [{"type": "text", "text": "pong"}]},
        }
        unknown = {"error": {"code": -32601, "message": "unknown"}}
        reply = {"result": known[message["method"]]} if message["method"] in known else unknown
        self._say(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}).encode())

    def _pay(self, id):
        self._head(200, "text/event-stream")
        self.wfile.write(b": under way\n\n")
        self.server.paid.append(id)
        self.server.go.wait(PATIENCE)
        if self.server.how == "error":
            error = {"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": "paid, but no receipt"}}
            self.wfile.write(f"event: message\ndata: {json.dumps(error)}\n\n".encode())

    def _say(self, body, status=200):
        self._head(status, "application/json", {"Content-Length": str(len(body)), "Mcp-Session-Id": "x"})
        self.wfile.write(body)

    def _head(self, status, kind, more=None):
        """One request a connection, so that each has to connect."""
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Connection": "close", **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_):
        """Not on the test's stderr."""


class Opened:
    """The shop, open to new customers as long as it is not closed; those inside are served in any case."""

    def __init__(self, how, port=0, paid=None, go=None):
        self.server = Quiet(("127.0.0.1", port), Shop)
        self.server.how, self.server.paid = how, [] if paid is None else paid
        self.server.go = go or threading.Event()
        self.port = self.server.server_address[1]
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self):
        self.server.shutdown()
        self._thread.join()
        self.server.socket.close()


async def call(app, name):
    return await app.call(ToolCall(id=name, name=f"shop.{name}", args={}, source="test"))


@pytest.mark.parametrize("how", ["error", "breaks off"])
def test_a_call_that_finds_nobody_does_not_have_another_done_twice(harness, how):
    first = Opened(how)
    paid, go = first.server.paid, first.server.go
    opened = [first]

    async def scene(app):
        assert (await call(app, "ping")).data == "pong"
        paying = asyncio.create_task(call(app, "pay"))
        await until_async(lambda: paid)
        await asyncio.to_thread(first.close)
        other = asyncio.create_task(call(app, "ping"))  # nobody is there
        await asyncio.sleep(0.3)
        opened.append(Opened(how, first.port, paid, go))
        go.set()
        return await asyncio.wait_for(paying, PATIENCE), await asyncio.wait_for(other, PATIENCE)

    try:
        with harness.app({"shop": {"url": f"http://127.0.0.1:{first.port}/mcp", "timeout": PATIENCE}}) as app:
            payment, other = asyncio.run(scene(app))
            assert len(paid) == 1
            assert payment.error is not None
            assert how != "error" or "paid, but no receipt" in payment.error.message
            assert other.data == "pong" or other.error.reason == "source_unavailable"
            assert asyncio.run(call(app, "ping")).data == "pong"
    finally:
        go.set()
        opened[-1].close()


def test_one_that_was_not_heard_is_told_so_and_the_other_gets_its_answer(harness):
    """Nobody opens again: who came too late hears that, and who was inside gets what it waits for."""
    shop = Opened("error")

    async def scene(app):
        assert (await call(app, "ping")).data == "pong"
        paying = asyncio.create_task(call(app, "pay"))
        await until_async(lambda: shop.server.paid)
        await asyncio.to_thread(shop.close)
        other = await asyncio.wait_for(call(app, "ping"), PATIENCE)
        shop.server.go.set()
        return other, await asyncio.wait_for(paying, PATIENCE)

    try:
        block = {"url": f"http://127.0.0.1:{shop.port}/mcp", "timeout": PATIENCE, "connect_timeout": 3}
        with harness.app({"shop": block}) as app:
            other, payment = asyncio.run(scene(app))
            assert other.error.reason == "source_unavailable"
            assert "paid, but no receipt" in payment.error.message
            assert len(shop.server.paid) == 1
    finally:
        shop.server.go.set()
