"""Closes its standard output, and lives on; slow to go, too. `open_files` tells what it was given beside the three."""

import os
import threading
import time
from typing import Any

from wire import Call, Server, text, tool


class HangsUp(Server):
    tools = (tool("pid"), tool("last"), tool("never"), tool("open_files"))

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        if name == "last":  # answered, then it hangs up
            threading.Timer(0.1, os.close, [1]).start()
            return text("bye")
        if name == "never":
            os.close(1)
            time.sleep(60)
        if name == "open_files":
            return {"content": [], "structuredContent": {"files": _open_files()}}
        return text(str(os.getpid()))


def _open_files() -> dict[str, str]:
    found: dict[str, str] = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the one with which we look
            continue
    return found


HangsUp().run()
time.sleep(0.5)
