"""A server to borrow from that costs next to nothing: a loop over lines, or over requests. Started by its path.

    servers_bare.py stdio|http TOOLS SECONDS TALLY

It has `add` and so many others, answers nothing before so many seconds have passed, and adds a line to the file TALLY
when it is started: so it can be seen that nobody did. It speaks the revisions of both ages of the protocol.
"""

import json
import socketserver
import sys
from time import sleep
from typing import Any

NUMBER = {"type": "integer"}
SCHEMA = {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]}
ABOUT = {"capabilities": {"tools": {}}, "serverInfo": {"name": "bare", "version": "1"}}
WHOLE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}  # what lists have to say of themselves today


def reply(line: bytes, tools: int) -> bytes | None:
    """What to answer; None to what wants no answer."""
    message = json.loads(line)
    if "id" not in message:
        return None
    params: dict[str, Any] = message.get("params") or {}
    match message["method"]:
        case "tools/call":
            args = params["arguments"]
            result = {"resultType": "complete", "content": [{"type": "text", "text": str(args["a"] + args["b"])}]}
        case "tools/list":
            names = ["add", *(f"tool_{number}" for number in range(tools))]
            described = [{"name": name, "description": "Add two numbers.", "inputSchema": SCHEMA} for name in names]
            result = {**WHOLE, "tools": described}
        case "server/discover":
            result = {**WHOLE, **ABOUT, "supportedVersions": ["2026-07-28"]}
        case "initialize":
            result = {**ABOUT, "protocolVersion": "2025-11-25"}
        case _:
            result = {}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()


def stdio(tools: int) -> None:
    for line in sys.stdin.buffer:
        if answer := reply(line, tools):
            sys.stdout.buffer.write(answer + b"\n")
            sys.stdout.buffer.flush()


class Door(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128
    tools = 0


class Connection(socketserver.StreamRequestHandler):
    """One that is kept, request after request."""

    disable_nagle_algorithm = True

    def handle(self) -> None:
        assert isinstance(self.server, Door)
        while first := self.rfile.readline():
            length = 0
            while (line := self.rfile.readline().strip()) != b"":
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            body = self.rfile.read(length)
            if not first.startswith(b"POST"):
                self._say(b"405 Method Not Allowed", b"")
            elif answer := reply(body, self.server.tools):
                self._say(b"200 OK", answer)
            else:
                self._say(b"202 Accepted", b"")

    def _say(self, status: bytes, body: bytes) -> None:
        head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        self.wfile.write(head + body)


def http(tools: int) -> None:
    with Door(("127.0.0.1", 0), Connection) as door:
        door.tools = tools
        print(json.dumps({"port": door.server_address[1]}), flush=True)
        door.serve_forever()


if __name__ == "__main__":
    transport, tools, seconds, tally = sys.argv[1:]
    with open(tally, "a") as file:
        file.write("started\n")
    sleep(float(seconds))
    (http if transport == "http" else stdio)(int(tools))
