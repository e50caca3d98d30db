"""A small MCP server over stdio with the standard library alone: it starts in a moment, and can be bent at every joint.

A script beside this one makes a subclass that misbehaves in one way, and runs it. `PIDS` names a file that gets the
process id of each start, a line each: tests count starts there, and look for what was left behind.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

NOTHING = {"type": "object", "properties": {}}


def tool(name: str, properties: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A definition. Every property is required."""
    schema = {"type": "object", "properties": properties, "required": list(properties)} if properties else NOTHING
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema, **fields}


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def note_pid(pid: int) -> None:
    if path := os.environ.get("PIDS"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{pid}\n")


class RequestError(Exception):
    """The request is answered with this error."""

    def __init__(self, message: str, code: int = -32602, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Call:
    """A request that is being answered in a thread of its own, and the way back to who made it."""

    def __init__(self, server: "Server", message: dict[str, Any]) -> None:
        self.server, self.message = server, message
        self.cancelled = threading.Event()

    def progress(self, done: float, total: float, words: str) -> None:
        token = self.message["params"].get("_meta", {}).get("progressToken")
        if token is not None:
            told = {"progressToken": token, "progress": done, "total": total, "message": words}
            self.server.notify("notifications/progress", told)

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask the client; its whole answer, result or error."""
        return self.server.ask(method, params)


class Server:
    """Speaks the handshake of 2025-11-25. Requests that it does not know are answered so, as the protocol wants it."""

    tools: Sequence[dict[str, Any]] = ()
    page = 1000

    def __init__(self) -> None:
        self.calls: dict[Any, Call] = {}
        self.waiting: dict[str, tuple[threading.Event, list[dict[str, Any]]]] = {}
        self.writing = threading.Lock()

    def run(self) -> None:
        note_pid(os.getpid())
        for line in sys.stdin:
            self.take(json.loads(line))

    def take(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method is None:
            self.answered(message)
        elif method == "notifications/cancelled":
            if call := self.calls.get(message["params"].get("requestId")):
                call.cancelled.set()
        elif "id" in message:
            known: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
                "initialize": self.initialize,
                "tools/list": self.list,
                "ping": lambda params: {},
                "logging/setLevel": lambda params: {},
            }
            if method == "tools/call":
                threading.Thread(target=self.run_call, args=(message,), daemon=True).start()
            elif method in known:
                self.reply(message["id"], known[method](message.get("params") or {}))
            else:
                self.fail(message["id"], -32601, f"unknown method {method}")

    def run_call(self, message: dict[str, Any]) -> None:
        call = self.calls[message["id"]] = Call(self, message)
        params = message["params"]
        try:
            self.reply(message["id"], self.call(params["name"], params.get("arguments") or {}, call))
        except RequestError as error:
            self.fail(message["id"], error.code, str(error), error.data)
        except TypeError as error:  # other arguments than it takes
            self.fail(message["id"], -32602, str(error))
        finally:
            del self.calls[message["id"]]

    def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": True}, "logging": {}},
            "serverInfo": {"name": "nasty", "version": "1.0"},
        }

    def list(self, params: dict[str, Any]) -> dict[str, Any]:
        start = int(params.get("cursor") or 0)
        more = {"nextCursor": str(start + self.page)} if start + self.page < len(self.tools) else {}
        return {"tools": self.tools[start : start + self.page], **more}

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        raise RequestError(f"unknown tool {name}")

    def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")

    def write(self, line: str) -> None:
        with self.writing:
            sys.stdout.write(line)
            sys.stdout.flush()

    def reply(self, id: Any, result: Any) -> None:
        self.send({"id": id, "result": result})

    def fail(self, id: Any, code: int, message: str, data: Any = None) -> None:
        more = {} if data is None else {"data": data}
        self.send({"id": id, "error": {"code": code, "message": message, **more}})

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.send({"method": method, **({"params": params} if params else {})})

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        id, done, answer = f"ask-{len(self.waiting)}", threading.Event(), []
        self.waiting[id] = (done, answer)
        self.send({"id": id, "method": method, "params": params})
        return answer[0] if done.wait(30) else {"error": {"message": "no answer within 30 s"}}

    def answered(self, message: dict[str, Any]) -> None:
        if waiting := self.waiting.get(message.get("id")):
            waiting[1].append(message)
            waiting[0].set()
