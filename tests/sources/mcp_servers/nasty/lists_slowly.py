"""Says that it has other tools, and takes the seconds of its argument to tell which."""

import os
import sys
import threading
import time
from typing import Any

from wire import Call, Server, text, tool


class ListsSlowly(Server):
    tools = (tool("echo", {"text": {"type": "string"}}), tool("pid"), tool("grow"))
    listed = 0

    def take(self, message: dict[str, Any]) -> None:
        if message.get("method") == "tools/list":  # beside everything else
            threading.Thread(target=super().take, args=(message,), daemon=True).start()
        else:
            super().take(message)

    def list(self, params: dict[str, Any]) -> dict[str, Any]:
        self.listed += 1
        if self.listed > 1:
            time.sleep(float(sys.argv[1]))
        return super().list(params)

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        if name == "grow":
            self.tools = (*self.tools, tool("grown"))
            self.notify("notifications/tools/list_changed")
        return text(args.get("text", str(os.getpid())))


ListsSlowly().run()
