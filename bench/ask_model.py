"""A model for measuring: a server on loopback that answers chat completions from a script, and keeps the requests."""

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Thread
from time import perf_counter
from typing import Any, Self

Script = Callable[[dict[str, Any]], dict[str, Any]]
"""A request's body to the message that answers it."""


class ScriptedModel:
    """`arrivals` has a time for each request; `bodies` the requests as they were sent."""

    def __init__(self, script: Script) -> None:
        self.arrivals: SimpleQueue[float] = SimpleQueue()
        self.bodies: list[bytes] = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                model.arrivals.put(perf_counter())
                body = self.rfile.read(int(self.headers["content-length"]))
                model.bodies.append(body)
                answer = _answer(script(json.loads(body)))
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: the table is what is printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def calls(name: str, args: dict[str, Any], number: int) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(args)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
    }


def _answer(message: dict[str, Any]) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "script", "choices": [choice]}
    return json.dumps({**whole, "usage": usage}).encode()
