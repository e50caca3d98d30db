"""Prints rubbish lines before, between and after its messages, as programs do that log to the wrong place."""

import json
import sys
from typing import Any

from wire import Call, Server, text, tool

RUBBISH = [
    "",
    "INFO starting up …",
    "{not json",
    "[]",
    "null",
    "42",
    '"text"',
    '{"hello": "world"}',
    "\x1b[31mred\x1b[0m",
    "💥",
]


class Spams(Server):
    tools = (tool("echo", {"text": {"type": "string"}}),)

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        return text(args["text"])

    def send(self, message: dict[str, Any]) -> None:
        self.spam()
        self.write(json.dumps({"jsonrpc": "2.0", **message}) + "\r\n")
        self.spam()

    def spam(self) -> None:
        self.write("".join(f"{line}\n" for line in RUBBISH * 20))
        with self.writing:
            sys.stdout.buffer.write(b"\xff\xfe not utf-8 \x80\n")
            sys.stdout.flush()


Spams().run()
