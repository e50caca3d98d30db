"""Says that it has other tools, and does not tell which before the file GATE is there. GATE.asked: it was asked."""

import os
import sys
import threading
import time
from pathlib import Path
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
            Path(f"{sys.argv[1]}.asked").touch()
            while not os.path.exists(sys.argv[1]):
                time.sleep(0.01)
        return super().list(params)

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        if name == "grow":
            self.tools = (*self.tools, tool("grown"))
            self.notify("notifications/tools/list_changed")
        return text(args.get("text", str(os.getpid())))


ListsSlowly().run()
