"""A server with a page, as MCP Apps (2026-01-26) have them. `NAME` stands in its page and in its answers.

It declares prompts and does not know `prompts/list`, nor the methods that are its arguments.
"""

import json
import os
import sys
from typing import Any

from wire import Call, RequestError, Server, text, tool

NAME = os.environ.get("NAME", "apps")
PAGE = "ui://view/index.html"
HTML = "text/html;profile=mcp-app"
CSP = {"ui": {"csp": {"connectDomains": ["https://api.example.com"]}, "prefersBorder": True}}
ICONS = [{"src": "https://example.com/icon.png", "mimeType": "image/png"}]
HINTS = {
    "title": "Show",
    "readOnlyHint": True,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}
META = {"ui": {"resourceUri": PAGE}, "ui/resourceUri": PAGE, "example.com/a": [1, None], "onetool/forged": True}


class Apps(Server):
    client: Any = None

    tools = (
        tool("show", title="Show it", annotations=HINTS, icons=ICONS, _meta=META),
        tool("refresh", _meta={"ui": {"resourceUri": PAGE, "visibility": ["app"]}}),
        tool(f"only_{NAME}"),
        tool("for_models", _meta={"ui": {"visibility": ["model"]}}),
        tool("client_capabilities"),
    )

    def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        self.client = params["capabilities"]
        told = super().initialize(params)
        return {**told, "capabilities": {**told["capabilities"], "resources": {}, "prompts": {}}}

    def take(self, message: dict[str, Any]) -> None:
        match message.get("method"):
            case str(method) if method in sys.argv:
                super().take(message)
            case "resources/list":
                page = {"uri": PAGE, "name": "view", "title": "The view", "mimeType": HTML, "_meta": CSP}
                self.reply(message["id"], {"resources": [page, {"uri": f"notes://{NAME}", "name": "notes"}]})
            case "resources/templates/list":
                self.reply(message["id"], {"resourceTemplates": [{"uriTemplate": "ui://part/{id}", "name": "part"}]})
            case "resources/read":
                self.reply(message["id"], {"contents": self.parts(message["params"]["uri"])})
            case _:
                super().take(message)

    def parts(self, uri: str) -> list[dict[str, Any]]:
        if uri.startswith("notes://"):
            two = ({"uri": f"{uri}/{n}", "mimeType": "text/plain", "text": f"note {n}"} for n in (1, 2))
            return list(two)
        return [{"uri": uri, "mimeType": HTML, "text": f"<p>{NAME} {uri}</p>", "_meta": CSP}]

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        if name == "client_capabilities":
            return text(json.dumps(self.client))
        if name not in {one["name"] for one in self.tools}:
            raise RequestError(f"unknown tool {name}")
        link = {"type": "resource_link", "uri": PAGE, "name": "view"}
        content = [{"type": "text", "text": f"{NAME}.{name}"}, link]
        return {"content": content, "_meta": {"ui": {"resourceUri": PAGE}, "viewUUID": "1"}}


if __name__ == "__main__":
    Apps().run()
