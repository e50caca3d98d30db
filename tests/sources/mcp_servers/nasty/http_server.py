"""MCP over HTTP, a way to misbehave a path: in threads of the test's own process, so that tests see what arrived.

    with HttpServer() as server:
        server.url("forgets")        # its sessions are gone after a call of `forget`
        server.requests              # what came in, oldest first

`sse` is the old transport of 2024. All others take POSTs, as of 2025; what has no session is refused, and nobody here
knows `server/discover`.
"""

import json
import queue
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

STRING = {"type": "string"}
TOKEN = "token-of-the-server"


def tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema}


TOOLS = [
    tool("echo", text=STRING),
    tool("drop"),
    tool("forget"),
    tool("hang"),
    tool("fail"),
    tool("forbid"),
    tool("huge"),
    tool("lists"),
]
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "nasty-http", "version": "1.0"},
}


@dataclass(frozen=True)
class Request:
    way: str
    verb: str
    headers: dict[str, str]
    method: str = ""  # of the message


@dataclass
class State:
    requests: list[Request] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)
    streams: dict[str, "queue.Queue[dict[str, Any]]"] = field(default_factory=dict)  # of the old transport
    made: int = 0
    not_yet: int = 2  # requests that `later` refuses
    slow: float = 2.0
    target: str = ""  # where `redirects` leads to
    ending: threading.Event = field(default_factory=threading.Event)
    connections: set[socket.socket] = field(default_factory=set)


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Clients that go away are no news."""


class HttpServer:
    def __init__(self, port: int = 0, handler: "type[Handler] | None" = None) -> None:
        self.state = State()
        handler = type("Here", (handler or Handler,), {"state": self.state})
        self._server = Quiet(("127.0.0.1", port), handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def url(self, way: str) -> str:
        return f"http://127.0.0.1:{self.port}/{way}"

    @property
    def requests(self) -> list[Request]:
        return self.state.requests

    def __enter__(self) -> "HttpServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.state.ending.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        for connection in list(self.state.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def setup(self) -> None:
        super().setup()
        self.state.connections.add(self.connection)

    def finish(self) -> None:
        self.state.connections.discard(self.connection)
        super().finish()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            message = json.loads(body)
        except ValueError:  # a form, of somebody who looks for a token
            message = {}
        way = self._noted(str(message.get("method", "")))
        if way == "messages":
            self._old_message(message)
        elif not self._refused(way):
            self._take(way, message)

    def do_GET(self) -> None:
        way = self._noted()
        if way == "sse":
            self._old_stream()
        elif not self._refused(way):
            self._plain(405, "no stream here")

    def do_DELETE(self) -> None:
        self._noted()
        self.state.sessions.discard(self.headers.get("Mcp-Session-Id", ""))
        self._plain(200, "")

    def log_message(self, *_: object) -> None:
        """Not on the test's stderr."""

    def _noted(self, method: str = "") -> str:
        way = urlsplit(self.path).path.strip("/")
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.state.requests.append(Request(way, self.command, headers, method))
        return way

    def _refused(self, way: str) -> bool:
        """Whether this way ends before any message is looked at."""
        if way == "unauthorized" or (way == "token" and self.headers.get("Authorization") != f"Bearer {TOKEN}"):
            self._plain(401, "who are you?", {"WWW-Authenticate": 'Bearer realm="nasty"'})
        elif way == "forbidden":
            self._plain(403, "not you")
        elif way == "forbidden_mutely":
            self._plain(403, "")
        elif way == "broken":
            self._plain(500, "Traceback (most recent call last): …")
        elif way == "html":
            self._plain(200, "<html>Please log in</html>", {"Content-Type": "text/html"})
        elif way == "redirects":
            self._plain(307, "", {"Location": self.state.target})
        elif way == "later" and self.state.not_yet > 0:
            self.state.not_yet -= 1
            self._plain(404, "not yet")
        elif way == "sse" or way.startswith(".well-known"):
            self._plain(405 if way == "sse" else 404, "")
        else:
            return False
        return True

    def _take(self, way: str, message: dict[str, Any]) -> None:
        session = self.headers.get("Mcp-Session-Id")
        if message.get("method") == "initialize":
            if way == "slow":
                self.state.ending.wait(self.state.slow)
            self.state.made += 1
            made = f"session-{self.state.made}"
            self.state.sessions.add(made)
            self._result(way, message, HELLO, {"Mcp-Session-Id": made})
        elif session is None:
            self._json(400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "no session"}})
        elif session not in self.state.sessions:
            self._json(404, {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "session not found"}})
        elif "id" not in message:
            self._plain(202, "")
        elif message.get("method") == "tools/call":
            self._call(way, message)
        else:
            self._result(way, message, {"tools": TOOLS} if message.get("method") == "tools/list" else {})

    def _call(self, way: str, message: dict[str, Any]) -> None:
        name = message["params"]["name"]
        if name == "drop":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        if name == "fail":
            self._plain(503, "overloaded")
            return
        if name == "forbid":
            self._plain(403, "\nyour plan has no writes\nsecond line")
            return
        if name == "hang":
            self.state.ending.wait(600)
        self._result(way, message, _value(name, message["params"].get("arguments") or {}))
        if name == "forget":
            self.state.sessions.clear()

    def _result(
        self, way: str, message: dict[str, Any], result: dict[str, Any], headers: dict[str, str] | None = None
    ) -> None:
        reply = {"jsonrpc": "2.0", "id": message.get("id"), "result": result}
        if way == "stream":
            body = f"event: message\ndata: {json.dumps(reply)}\n\n"
            self._plain(200, body, {"Content-Type": "text/event-stream", **(headers or {})})
        else:
            self._json(200, reply, headers)

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        self._plain(status, json.dumps(value), {"Content-Type": "application/json", **(headers or {})})

    def _plain(self, status: int, words: str, headers: dict[str, str] | None = None) -> None:
        body = words.encode()
        self.send_response(status)
        for name, value in {"Content-Type": "text/plain", "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    # The transport of 2024: one stream for all answers, and messages to another address.

    def _old_stream(self) -> None:
        self.state.made += 1
        id = f"stream-{self.state.made}"
        answers = self.state.streams[id] = queue.Queue()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self.wfile.write(f"event: endpoint\ndata: /messages?session={id}\n\n".encode())
        while not self.state.ending.is_set():
            try:
                answer = answers.get(timeout=0.05)
            except queue.Empty:
                continue
            self.wfile.write(f"event: message\ndata: {json.dumps(answer)}\n\n".encode())

    def _old_message(self, message: dict[str, Any]) -> None:
        id = parse_qs(urlsplit(self.path).query)["session"][0]
        self._plain(202, "Accepted")
        if "id" not in message:
            return
        method, reply = message.get("method"), {"jsonrpc": "2.0", "id": message["id"]}
        known = {"initialize": HELLO, "tools/list": {"tools": TOOLS}, "ping": {}}
        if method == "tools/call":
            known[method] = _value(message["params"]["name"], message["params"].get("arguments") or {})
        unknown = {"error": {"code": -32601, "message": f"unknown method {method}"}}
        self.state.streams[id].put({**reply, **({"result": known[method]} if method in known else unknown)})


def _value(name: str, args: dict[str, Any]) -> dict[str, Any]:
    if name == "lists":
        return {"content": [], "structuredContent": {"lists": [[]] * 600_000}}
    words = "x" * 50_000_000 if name == "huge" else args.get("text", name)
    return {"content": [{"type": "text", "text": words}]}


if __name__ == "__main__":  # to look at it by hand
    with HttpServer(8099) as server:
        print(server.url("ok"), flush=True)
        time.sleep(600)
