"""A server whose tools `one` and `hidden` have the description that stands in a file: `described.py FILE`."""

import sys
from pathlib import Path
from typing import Any

from wire import Call, Server, text, tool

NAMES = ("one", "hidden")


class Described(Server):
    def list(self, params: dict[str, Any]) -> dict[str, Any]:
        words = Path(sys.argv[1]).read_text()
        return {"tools": [{**tool(name), "description": words} for name in NAMES]}

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        return text(f"It is {name}.")


if __name__ == "__main__":
    Described().run()
