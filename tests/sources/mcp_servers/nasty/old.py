"""A server from before 2026: a first message that is no `initialize` is the end of it."""

import os
import sys
from typing import Any

from wire import Call, Server, text, tool


class Old(Server):
    tools = (tool("fine"),)
    greeted = False

    def take(self, message: dict[str, Any]) -> None:
        if not self.greeted and message.get("method") != "initialize":
            print(f"Received {message.get('method')} before initialization was complete", file=sys.stderr, flush=True)
            os._exit(1)
        self.greeted = True
        super().take(message)

    def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**super().initialize(params), "protocolVersion": "2024-11-05"}

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        return text("fine")


Old().run()
