"""Speaks JSON-RPC wrongly, or describes its tools so: how is the argument."""

import sys
from typing import Any

from wire import NOTHING, Call, Server, text, tool

HOW = sys.argv[1]
STRING = {"type": "string"}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


REMOTE = {"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1:9/schema.json"}}}
BACKTRACKS = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
LOOP = {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}
FINE = tool("fine", {"text": STRING})
LISTS: dict[str, Any] = {
    "schemas": [
        {**tool("remote"), "inputSchema": REMOTE},
        {**tool("deep"), "inputSchema": deep(80)},
        {**tool("huge"), "inputSchema": {"type": "object", "properties": {f"p{n}": STRING for n in range(50_000)}}},
        {**tool("backtracks"), "inputSchema": BACKTRACKS},
        {**tool("loop"), "inputSchema": LOOP},
        {**tool("bad_output"), "outputSchema": {"type": "object", "properties": {"x": {"type": "objekt"}}}},
        FINE,
    ],
    "names": [
        tool("twice"),
        {**tool("twice"), "description": "The second of that name."},
        tool(""),
        tool(" "),
        tool("with space"),
        tool("with.dot"),
        tool("with-dash"),
        tool("with/slash"),
        tool("new\nline"),
        tool("esc\x1b[31m"),
        tool("größe"),
        tool("class"),
        tool("_hidden"),
        tool("__import__"),
        tool("n" * 1000),
        {**tool("loud"), "description": "x" * 1_000_000},
        FINE,
    ],
    "shapes": [
        {**tool("wrong_type"), "inputSchema": {"type": "objekt"}},
        {**tool("no_object"), "inputSchema": {"type": "array"}},
        {**tool("empty_schema"), "inputSchema": {}},
        {"name": "no_schema"},
        {"name": 5, "inputSchema": NOTHING},
        "not a tool",
        FINE,
    ],
    "too_deep": [{**tool("deep"), "inputSchema": deep(400)}, FINE],
    "no_list": "tools? what tools?",
    "endless_pages": [FINE],
}


class Wrong(Server):
    tools = (
        tool("wrong_shape"),
        tool("no_content"),
        tool("wrong_id"),
        tool("both"),
        tool("null_id_error"),
        FINE,
    )

    def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        if HOW == "ids":
            self.reply(4711, {"nobody": "asked"})
            self.fail("who?", -1, "nobody asked")
        if HOW == "handshake":
            return {"protocolVersion": ["1"], "capabilities": 5}
        if HOW == "version":
            return {**super().initialize(params), "protocolVersion": "1999-01-01"}
        return super().initialize(params)

    def list(self, params: dict[str, Any]) -> dict[str, Any]:
        if HOW == "endless_pages":
            return {
                "tools": [tool(f"t{params.get('cursor') or 0}")],
                "nextCursor": str(int(params.get("cursor") or 0) + 1),
            }
        return {"tools": LISTS[HOW]} if HOW in LISTS else super().list(params)

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        id = call.message["id"]
        if name == "wrong_shape":
            return {"content": "just text", "isError": "no"}
        if name == "no_content":
            return {}
        if name == "wrong_id":
            self.reply("another", text("for somebody else"))
        if name == "both":
            self.send({"id": id, "result": text("fine"), "error": {"code": 1, "message": "and not"}})
        if name == "null_id_error":
            self.fail(None, -32700, "what did you say?")
        return text("fine")


Wrong().run()
