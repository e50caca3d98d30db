"""Answers nothing before the file GATE is there."""

import os
import sys
import time
from typing import Any

from wire import Call, Server, note_pid, text, tool


class Slow(Server):
    tools = (tool("fine"),)

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        return text("fine")


note_pid(os.getpid())
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
Slow().run()
