"""A lean client of the REST API: requests as bytes over one connection that is kept."""

import json
import socket
from typing import Any

from bench.mcp_client import PATIENCE, NoReply


def request(port: int, method: str, target: str, body: Any = None) -> bytes:
    """The whole request, as it goes over the wire."""
    data = b"" if body is None else json.dumps(body).encode()
    head = [f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{port}"]
    if data:
        head += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    return "\r\n".join([*head, "", ""]).encode() + data


def tool_at(bundle: str, slug: str, version: str = "1.0") -> str:
    return f"/tools/bundles/{bundle}/tools/{slug}/version/{version}"


class Rest:
    def __init__(self, port: int) -> None:
        self.port = port
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, method: str, target: str, body: Any = None) -> Any:
        """The answer as data; ValueError where it is a refusal."""
        return json.loads(self.send(request(self.port, method, target, body)) or b"null")

    def send(self, data: bytes) -> bytes:
        """The body of the answer, which is not looked at but for its status."""
        self._socket.sendall(data)
        come = b""
        while (head := come.find(b"\r\n\r\n")) < 0 or len(come) < head + 4 + _length(come[:head]):
            part = self._socket.recv(1 << 20)
            if not part:
                raise NoReply(f"the server has closed the connection after {come[:500]!r}")
            come += part
        if not come.startswith(b"HTTP/1.1 2"):
            raise ValueError(f"{data[:300]!r} got {come[:1000]!r}")
        return come[head + 4 :]

    def close(self) -> None:
        self._socket.close()


def _length(head: bytes) -> int:
    _, there, rest = head.lower().partition(b"content-length:")
    return int(rest.split(b"\r\n", 1)[0]) if there else 0
