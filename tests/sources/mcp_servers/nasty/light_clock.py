"""`mcp-server-time` as far as tests need it, in a tenth of the second and more that the real one takes to start."""

import json
from datetime import UTC, datetime
from typing import Any

from wire import Call, RequestError, Server, text, tool


class Clock(Server):
    tools = (tool("get_current_time", {"timezone": {"type": "string"}}),)

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        if name != "get_current_time" or args["timezone"] != "UTC":
            raise RequestError("only UTC is known here")
        return text(json.dumps({"timezone": "UTC", "datetime": datetime.now(UTC).isoformat()}))


if __name__ == "__main__":
    Clock().run()
