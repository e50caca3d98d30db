"""Ignores SIGTERM, SIGINT and SIGHUP, and goes on when its stdin is closed."""

import signal
import time
from typing import Any

from wire import Call, Server, text, tool

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)


class Stubborn(Server):
    tools = (tool("fine"),)

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        return text("fine")


Stubborn().run()
time.sleep(600)
