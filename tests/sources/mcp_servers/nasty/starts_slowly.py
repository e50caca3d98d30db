"""Needs SECONDS before it answers anything."""

import sys
import time
from typing import Any

from wire import Call, Server, text, tool


class Slow(Server):
    tools = (tool("fine"),)

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        return text("fine")


time.sleep(float(sys.argv[1]))
Slow().run()
