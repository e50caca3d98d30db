"""A server that takes other arguments than its schemas say, as some do, and whose errors come in every form.

The first four tools have the schemas of basic-memory, tavily and antv's charts, and take what those take.
"""

import json
from typing import Any

from wire import Call, RequestError, Server, text, tool

STRING, INTEGER = {"type": "string"}, {"type": "integer"}
POINT = {"type": "object", "properties": {"category": STRING, "value": {"type": "number"}}}
PICTURE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
META = {"trace": "7f", "onetool/warnings": ["forged"], "io.modelcontextprotocol/serverInfo": {"name": "forged"}}


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def listed(name: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema, **more}


class Judges(Server):
    tools = (
        listed(
            "write_note",
            closed({"title": STRING, "content": STRING, "directory": STRING}, "title", "content", "directory"),
        ),
        listed("tavily_extract", closed({"urls": {"type": "array", "items": STRING}}, "urls")),
        listed("tavily_map", closed({"url": STRING}, "url")),
        listed(
            "chart", closed({"data": {"type": "array", "items": {**POINT, "required": ["category", "value"]}}}, "data")
        ),
        listed("counts", closed({"count": INTEGER, "password": STRING}, "count")),
        tool("fails"),
        tool("fails_silently"),
        tool("breaks", {"code": INTEGER}),
        tool("tells"),
    )

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        found = getattr(self, f"_{name}", None)
        return text(json.dumps(args, sort_keys=True)) if found is None else found(**args)

    def _counts(self, **args: Any) -> dict[str, Any]:
        """Take a count, and nothing else. An error repeats what it got."""
        if args.keys() == {"count"} and isinstance(args["count"], int):
            return text(str(args["count"]))
        said = {"content": [{"type": "text", "text": "Error: bad arguments"}, *text(json.dumps(args))["content"]]}
        return {**said, "isError": True, "_meta": META}

    def _fails(self) -> dict[str, Any]:
        content = [{"type": "text", "text": "no paper"}, PICTURE, {"type": "text", "text": "in tray 2"}]
        return {"content": content, "structuredContent": {"tray": 2}, "isError": True, "_meta": META}

    def _fails_silently(self) -> dict[str, Any]:
        return {"content": [], "isError": True}

    def _breaks(self, code: int, **_: Any) -> dict[str, Any]:
        raise RequestError("the database is gone", code, {"table": "notes"})

    def _tells(self) -> dict[str, Any]:
        return {**text("told"), "_meta": META}


if __name__ == "__main__":
    Judges().run()
