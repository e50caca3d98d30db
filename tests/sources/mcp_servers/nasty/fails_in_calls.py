"""Hangs, exits or is killed in the middle of a call. `once` and `again` do so at their first call only (`MARK`)."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from wire import Call, Server, text, tool


class FailsInCalls(Server):
    tools = (
        tool("fine"),
        tool("hangs"),
        tool("exits"),
        tool("is_killed"),
        tool("once"),
        tool("again", annotations={"idempotentHint": True, "readOnlyHint": False}),
        tool("reads", annotations={"readOnlyHint": True}),
    )

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        if name == "hangs":
            with Path(os.environ["MARK"]).open("a") as mark:
                mark.write("hangs\n")
            time.sleep(600)
        elif name == "exits":
            print("out of memory, I give up", file=sys.stderr, flush=True)
            os._exit(7)
        elif name == "is_killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif name in ("once", "again", "reads"):
            with Path(os.environ["MARK"]).open("a+") as mark:
                mark.seek(0)
                first = not mark.read()
                mark.write(f"{name}\n")
            if first:
                os._exit(7)
        return text("fine")


FailsInCalls().run()
