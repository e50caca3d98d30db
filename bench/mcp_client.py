"""A lean client, the same for all servers: messages of 2026-07-28 as bytes, over a pipe or one kept connection.

Nothing is parsed but where a reply ends; whoever wants to see it decodes it.
"""

import json
import select
import socket
from collections.abc import Mapping
from os import read, write
from subprocess import Popen
from time import perf_counter
from typing import Any

REVISION = "2026-07-28"
PATIENCE = 60.0  # seconds
META = "io.modelcontextprotocol/"
ABOUT = {
    f"{META}protocolVersion": REVISION,
    f"{META}clientCapabilities": {},
    f"{META}clientInfo": {"name": "bench", "version": "1"},
}

Message = dict[str, Any]


class NoReply(Exception):  # noqa: N818 - it reads as what it says
    """The server has gone, or takes too long."""


def listing(cursor: str | None = None) -> Message:
    return _message("tools/list", {"cursor": cursor} if cursor else {})


def calling(name: str, args: Mapping[str, Any]) -> Message:
    return _message("tools/call", {"name": name, "arguments": args})


def _message(method: str, params: Mapping[str, Any]) -> Message:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": ABOUT}}


def as_line(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


def as_post(message: Message, port: int) -> bytes:
    """The whole request, as it goes over the wire."""
    body = json.dumps(message).encode()
    name = message["params"].get("name")
    head = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {len(body)}",
        f"MCP-Protocol-Version: {REVISION}",
        f"Mcp-Method: {message['method']}",
        *([f"Mcp-Name: {name}"] if name else []),
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


class Wire:
    """One client's way to a server. `reply` sends bytes and waits for all of the reply."""

    def encoded(self, message: Message) -> bytes:
        raise NotImplementedError

    def reply(self, data: bytes) -> bytes:
        """The reply's body."""
        raise NotImplementedError

    def ask(self, message: Message) -> Any:
        """The result. Raises where there is none, or the tool says that it failed."""
        reply = json.loads(self.reply(self.encoded(message)))
        if "error" in reply or reply["result"].get("isError"):
            raise ValueError(f"{json.dumps(message)} got {json.dumps(reply)[:1000]}")
        return reply["result"]

    def times(self, message: Message, most: int, seconds: float) -> list[float]:
        """Seconds of each of so many calls, one after the other; no new one after that time."""
        data = self.encoded(message)
        taken: list[float] = []
        until = perf_counter() + seconds
        while len(taken) < most and perf_counter() < until:
            started = perf_counter()
            self.reply(data)
            taken.append(perf_counter() - started)
        return taken


class Pipe(Wire):
    """Over a process's standard input and output."""

    def __init__(self, process: "Popen[bytes]") -> None:
        assert process.stdin
        assert process.stdout
        self._sink, self._source = process.stdin.fileno(), process.stdout.fileno()

    def encoded(self, message: Message) -> bytes:
        return as_line(message)

    def reply(self, data: bytes) -> bytes:
        write(self._sink, data)
        parts: list[bytes] = []
        while not (parts and parts[-1].endswith(b"\n")):
            if not select.select([self._source], [], [], PATIENCE)[0]:
                raise NoReply(f"nothing within {PATIENCE:g} s")
            parts.append(read(self._source, 1 << 20))
            if not parts[-1]:
                raise NoReply("the server has closed its end")
        return b"".join(parts)


class Connection(Wire):
    """Over one HTTP connection that is kept."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def encoded(self, message: Message) -> bytes:
        return as_post(message, self._port)

    def reply(self, data: bytes) -> bytes:
        self._socket.sendall(data)
        come = b""
        while (end := end_of_reply(come)) is None or len(come) < end[1]:
            part = self._socket.recv(1 << 20)
            if not part:
                raise NoReply(f"the server has closed the connection after {come[:500]!r}")
            come += part
        return come[end[0] : end[1]]


def end_of_reply(come: bytes) -> tuple[int, int] | None:
    """Where the body of a reply begins and ends; None while its head is not whole."""
    head = come.find(b"\r\n\r\n")
    if head < 0:
        return None
    if not come.startswith(b"HTTP/1.1 200"):
        raise ValueError(f"not the reply that was wanted: {come[:1000]!r}")
    upper = come[:head].lower()
    start = upper.find(b"content-length:")
    if start < 0:
        raise ValueError(f"a reply of unknown length: {come[:1000]!r}")
    length = int(upper[start + 15 :].split(b"\r\n", 1)[0])
    return head + 4, head + 4 + length
