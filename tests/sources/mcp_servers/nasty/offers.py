"""A server with a tool, a prompt and resources. It greets on standard error with its arguments and with GREETING.

Whoever reads a resource gets its arguments and the address that it was asked for. With TEMPLATE, this is all it offers.
"""

import os
import sys
from typing import Any

from wire import Call, Server, text, tool

LISTS: dict[str, dict[str, Any]] = {
    "prompts/list": {
        "prompts": [{"name": "ask", "description": "Asks about a place.", "arguments": [{"name": "place"}]}]
    },
    "resources/list": {
        "resources": [{"uri": "notes://today", "name": "today", "description": "Of today.", "mimeType": "text/plain"}]
    },
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "notes://day/{day}", "name": "day"}]},
}
if TEMPLATE := os.environ.get("TEMPLATE"):
    LISTS |= {
        "resources/list": {"resources": []},
        "resources/templates/list": {"resourceTemplates": [{"uriTemplate": TEMPLATE, "name": "any"}]},
    }


class Offers(Server):
    tools = (tool("one"),)

    def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        answer = super().initialize(params)
        return {**answer, "capabilities": {"tools": {}, "prompts": {}, "resources": {}}}

    def take(self, message: dict[str, Any]) -> None:
        if (answer := LISTS.get(message.get("method", ""))) is not None:
            self.reply(message["id"], answer)
        elif message.get("method") == "resources/read":
            uri = message["params"]["uri"]
            self.reply(message["id"], {"contents": [{"uri": uri, "text": f"{sys.argv[1:]} {uri}"}]})
        else:
            super().take(message)

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        return text(f"{name} of {sys.argv[1:]} with {os.environ.get('GREETING')}")


if __name__ == "__main__":
    print("hello", *sys.argv[1:], os.environ.get("GREETING"), file=sys.stderr, flush=True)
    Offers().run()
