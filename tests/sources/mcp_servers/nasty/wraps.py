"""A server whose tools answer as those of common SDKs do: values in a wrapper, JSON inside of texts, loose schemas."""

import json
import os
from typing import Any

from wire import Call, Server, text, tool

INTEGER, STRING = {"type": "integer"}, {"type": "string"}
ROWS = json.dumps({"rows": [[1, "a"], [2, "b"]], "success": True})


def wrapper(inner: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"result": inner}, "required": ["result"], **more}


ROW = {"$defs": {"Row": {"type": "object", "properties": {"n": INTEGER}, "required": ["n"]}}}
MARKED = {"x-fastmcp-wrap-result": True}
OUTPUTS: dict[str, Any] = {
    "add": wrapper({"type": "integer", "title": "Result"}, title="addOutput"),
    "query": wrapper(STRING, **MARKED),
    "zip_code": wrapper(STRING, title="zip_codeOutput"),
    "rows": wrapper({"type": "array", "items": {"$ref": "#/$defs/Row"}}, **MARKED, **ROW),
    "named": wrapper(INTEGER),  # an object whose only key happens to be called so
    "maybe": wrapper({"anyOf": [STRING, {"type": "null"}]}, title="maybeOutput"),
    "read": {"type": "object", "properties": {"content": STRING}, "required": ["content"]},
    "wrong": wrapper(INTEGER, title="wrongOutput"),
}
LONG = "a default that takes more than forty characters"
DEFAULTS = {"type": "object", "properties": {"words": {**STRING, "default": LONG}, "rest": STRING}}
VALUES: dict[str, Any] = {
    "query": ROWS,
    "zip_code": "00501",
    "rows": [{"n": 1}, {"n": 2}],
    "named": 3,
    "maybe": None,
}
LOOSE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"enum": ["png", "jpeg"], "default": "png"},
        "count": INTEGER,
        "ratio": {"type": "number"},
        "full": {"type": "boolean"},
        "codes": {"type": "array", "items": INTEGER},
        "options": {"type": "object", "properties": {"depth": INTEGER}},
        "either": {"anyOf": [INTEGER, {"type": "null"}]},
        "words": STRING,
        "tags": {"type": "array", "items": STRING},
        "some_tags": {"anyOf": [{"type": "array", "items": STRING}, {"type": "null"}]},
    },
    "required": ["type"],
}


class Wraps(Server):
    tools = (
        tool("add", {"a": INTEGER, "b": INTEGER}, outputSchema=OUTPUTS["add"]),
        *(tool(name, outputSchema=OUTPUTS[name]) for name in VALUES),
        tool("read", {"size": INTEGER}, outputSchema=OUTPUTS["read"]),
        tool("wrong", outputSchema=OUTPUTS["wrong"]),
        tool("empty", outputSchema=wrapper({"type": "array"}, title="emptyOutput")),
        {"name": "long_default", "description": "Nothing.", "inputSchema": DEFAULTS},
        tool("beside", {"size": INTEGER}),
        tool("summed_up", {"size": INTEGER}),
        tool("tells", {"words": STRING}),
        tool("echoes_key"),
        {"name": "loose", "description": "Says what it got.", "inputSchema": LOOSE},
        {"name": "closed", "description": "The same.", "inputSchema": {**LOOSE, "additionalProperties": False}},
    )

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        if name in VALUES:
            return self._wrapped(VALUES[name])
        return getattr(self, f"_{name}")(**args)

    def _wrapped(self, value: Any) -> dict[str, Any]:
        words = value if isinstance(value, str) else json.dumps(value, indent=2)
        return {**text(words), "structuredContent": {"result": value}}

    def _add(self, a: int, b: int) -> dict[str, Any]:
        return self._wrapped(a + b)

    def _read(self, size: int) -> dict[str, Any]:
        words = "hello world\n" * size
        return {**text(words), "structuredContent": {"content": words}}

    def _summed_up(self, size: int) -> dict[str, Any]:
        """Large structured content that nobody has announced, and few words about it."""
        return {**text("see the data"), "structuredContent": {"rows": ["a row"] * size}}

    def _beside(self, size: int) -> dict[str, Any]:
        """Structured content that nobody has announced, and a picture's link beside it."""
        link = {"type": "resource_link", "uri": "file:///a.txt", "name": "a", "_meta": {"of": "test"}}
        note = {"type": "text", "text": "x" * size, "annotations": {"audience": ["user"]}}
        return {"content": [note, link], "structuredContent": {"size": size}}

    def _empty(self) -> dict[str, Any]:
        """As FastMCP answers for an empty list: without a content block."""
        return {"content": [], "structuredContent": {"result": []}}

    def _wrong(self) -> dict[str, Any]:
        return self._wrapped("three")

    def _echoes_key(self) -> dict[str, Any]:
        key = os.environ["KEY"]
        return {**text(f"the key is {key}"), "structuredContent": {"key": key}}

    def _tells(self, words: str) -> dict[str, Any]:
        return text(words)

    def _loose(self, **args: Any) -> dict[str, Any]:
        return text(json.dumps(args))

    _closed = _loose


if __name__ == "__main__":
    Wraps().run()
