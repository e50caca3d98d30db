"""Says its secret wherever it can: on stderr, in a result, in an error, in a description."""

import os
import sys
from typing import Any

from wire import Call, RequestError, Server, text, tool

SECRET = os.environ["API_KEY"]


class Tells(Server):
    tools = (
        tool("result"),
        tool("fails"),
        tool("refuses"),
        {**tool("says_so"), "description": f"My key is {SECRET}."},
    )

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        if name == "refuses":
            raise RequestError(f"the key {SECRET} is no longer valid")
        return {**text(f"the key is {SECRET}"), "isError": name == "fails"}


print(f"starting with key {SECRET}", file=sys.stderr, flush=True)
Tells().run()
