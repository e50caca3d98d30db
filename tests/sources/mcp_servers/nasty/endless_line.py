"""Prints MB of one line without an end: as the answer to `initialize` (`start`), or to a call (`call`)."""

import sys
from typing import Any

from wire import Call, Server, text, tool

WHERE, MB = sys.argv[1], int(sys.argv[2])


class Endless(Server):
    tools = (
        tool("endless"),
        tool("fine"),
    )

    def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        if WHERE == "start":
            self.print_it()
        return super().initialize(params)

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        if name == "endless":
            self.print_it()
        return text("fine")

    def print_it(self) -> None:
        for _ in range(MB):
            self.write("x" * 1_000_000)


Endless().run()
