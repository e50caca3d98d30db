"""Writes MB to stderr at its start and in every call, more than a pipe holds."""

import sys
from typing import Any

from wire import Call, Server, text, tool

MB = int(sys.argv[1])


def flood() -> None:
    for n in range(MB * 10_000):
        sys.stderr.write(f"{n:08d} {'.' * 90}\n")
    sys.stderr.write("the last line\n")
    sys.stderr.flush()


class Floods(Server):
    tools = (tool("fine"),)

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        flood()
        return text("fine")


flood()
Floods().run()
