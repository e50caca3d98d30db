"""Says what it does on stderr, and answers nothing before a file is there. It does not end before that, either."""

import signal
import sys
import time
from pathlib import Path
from typing import Any

from wire import Call, Server, text, tool


class Slow(Server):
    tools = (tool("fine"),)

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        return text("fine")


signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("downloading the internet", file=sys.stderr, flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
Slow().run()
