"""A server that lists everything with every member, with some that no protocol knows, and again with as few as can be.

One entry of each list is invalid, and one comes twice. A template without variables has the address of a resource.
"""

from typing import Any

from wire import Call, RequestError, Server, text, tool

ICONS = [{"src": "https://example.com/icon.png", "mimeType": "image/png", "purpose": "any"}]
META = {"example.com/a": [1, None]}
HINTS = {"title": "All", "readOnlyHint": False, "category": "notes", "conditions": ["a", {"b": None}]}
PLACE = {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z", "category": "notes"}
MORE = {"title": "All of it", "description": "Has all.", "icons": ICONS, "_meta": META}
ARGUMENT = {"name": "place", "title": "The place", "description": "Where.", "required": True}

TOOLS = [tool("all", annotations=HINTS, icons=ICONS, title="All of it", _meta=META), tool("few")]
PROMPTS = [
    {"name": "all", **MORE, "arguments": [ARGUMENT, {"name": "day"}]},
    {"name": "few"},
]
RESOURCES = [
    {"uri": "notes://all", "name": "all", **MORE, "mimeType": "text/plain", "size": 0, "annotations": PLACE},
    {"uri": "notes://few", "name": "few"},
]
TEMPLATES = [
    {"uriTemplate": "notes://all/{day}", "name": "all", **MORE, "mimeType": "text/plain", "annotations": PLACE},
    {"uriTemplate": "notes://few/{day}", "name": "few"},
    {"uriTemplate": "notes://all", "name": "all"},
]
LISTS = {
    "tools/list": ("tools", TOOLS, {"name": "bad"}),
    "prompts/list": ("prompts", PROMPTS, {"name": 5}),
    "resources/list": ("resources", RESOURCES, {"uri": "notes://bad", "name": "bad", "annotations": "bad"}),
    "resources/templates/list": ("resourceTemplates", TEMPLATES, {"name": "bad"}),
}
MESSAGE = {"role": "user", "content": {"type": "text", "text": "Hello.", "annotations": {"priority": 1}, "_meta": META}}
PROMPT = {"description": "What became of it.", "messages": [MESSAGE], "_meta": META}
CONTENTS = {"contents": [{"uri": "notes://all", "text": "all", "mimeType": "text/plain", "_meta": META}], "_meta": META}


class Lists(Server):
    def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**super().initialize(params), "capabilities": {"tools": {}, "prompts": {}, "resources": {}}}

    def take(self, message: dict[str, Any]) -> None:
        method = message.get("method", "")
        if method in LISTS:
            kind, listed, invalid = LISTS[method]
            self.reply(message["id"], {kind: [invalid, *listed, listed[0]]})
        elif method in ("prompts/get", "resources/read") and "few" in str(message["params"]):
            self.fail(message["id"], -32050, "not today", {"day": 1})
        elif method == "prompts/get":
            self.reply(message["id"], PROMPT)
        elif method == "resources/read":
            self.reply(message["id"], CONTENTS)
        else:
            super().take(message)

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        if name == "all":
            return text(name)
        raise RequestError(f"unknown tool {name}")


if __name__ == "__main__":
    Lists().run()
