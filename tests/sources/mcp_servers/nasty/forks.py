"""Starts a child that keeps its pipes open, and outlives it. `exits` ends the parent only."""

import os
import signal
import time
from typing import Any

from wire import Call, Server, note_pid, text, tool

if (child := os.fork()) == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
    os._exit(0)
note_pid(child)


class Forks(Server):
    tools = (
        tool("fine"),
        tool("exits"),
    )

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        if name == "exits":
            os._exit(7)
        return text("fine")


Forks().run()
