"""A server that behaves, with a tool for each thing that a result can be. An argument N gives it N more tools."""

import base64
import json
import os
import sys
from typing import Any

from wire import Call, RequestError, Server, text, tool

PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(64)).decode()
SOUND = base64.b64encode(b"RIFF" + bytes(64)).decode()
BLOB = base64.b64encode(bytes(range(256))).decode()
STRING, NUMBER = {"type": "string"}, {"type": "number"}
LINK = {"type": "resource_link", "uri": "file:///notes/today.txt", "name": "today", "mimeType": "text/plain"}
CONTENTS: dict[str, list[dict[str, Any]]] = {
    "picture": [{"type": "image", "data": PICTURE, "mimeType": "image/png"}],
    "sound": [{"type": "audio", "data": SOUND, "mimeType": "audio/wav"}],
    "blob": [
        {"type": "resource", "resource": {"uri": "file:///b.bin", "blob": BLOB, "mimeType": "application/octet-stream"}}
    ],
    "note": [{"type": "resource", "resource": {"uri": "file:///n.txt", "text": "a note", "mimeType": "text/plain"}}],
    "link": [LINK],
    "mixed": [
        {"type": "text", "text": "before"},
        {"type": "image", "data": PICTURE, "mimeType": "image/png"},
        {"type": "text", "text": "after"},
    ],
    "nothing": [],
    "json_text": [{"type": "text", "text": json.dumps({"a": [1, 2], "b": None})}],
}
FORM = {"type": "object", "properties": {"name": STRING}, "required": ["name"]}


class Ok(Server):
    tools = (
        tool("echo", {"text": STRING}, annotations={"readOnlyHint": True}),
        tool("add", {"a": NUMBER, "b": NUMBER}),
        tool("structured", {"city": STRING}, outputSchema={"type": "object", "properties": {"c": {"type": "integer"}}}),
        tool("slow", {"seconds": NUMBER}),
        tool("cancelled"),
        *(tool(name) for name in CONTENTS),
        tool("fails", {"why": STRING}),
        tool("refuses", {"why": STRING}),
        tool("grow"),
        tool("logs", {"words": STRING}),
        tool("asks"),
        tool("samples"),
        tool("big", {"bytes": {"type": "integer"}}),
        tool("environment"),
        tool("pid"),
        tool("get-it.now", {"the-city": STRING}),
    )
    page = 10

    def __init__(self, more: int) -> None:
        super().__init__()
        self.stopped: list[float] = []
        self.tools = (*self.tools, *(tool(f"more_{n}", {"text": STRING}) for n in range(more)))

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        if name in CONTENTS:
            return {"content": CONTENTS[name]}
        if name.startswith("more_") or name == "grown":
            return text(name)
        if answer := getattr(self, f"_{name}", None):
            return answer(call, **args)
        if name == "get-it.now":
            return text(args["the-city"])
        raise RequestError(f"unknown tool {name}")

    def _echo(self, call: Call, text: str) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": text}]}

    def _add(self, call: Call, a: float, b: float) -> dict[str, Any]:
        return text(json.dumps(a + b))

    def _structured(self, call: Call, city: str) -> dict[str, Any]:
        return {**text("21 degrees"), "structuredContent": {"c": 21, "city": city}}

    def _slow(self, call: Call, seconds: float) -> dict[str, Any]:
        for step in range(1, 11):
            if call.cancelled.wait(seconds / 10):
                self.stopped.append(seconds)
                return text("cancelled")
            call.progress(step, 10, f"step {step}")
        return text("done")

    def _cancelled(self, call: Call) -> dict[str, Any]:
        return text(json.dumps(self.stopped))

    def _fails(self, call: Call, why: str) -> dict[str, Any]:
        return {**text(why), "isError": True}

    def _refuses(self, call: Call, why: str) -> dict[str, Any]:
        raise RequestError(why)

    def _grow(self, call: Call) -> dict[str, Any]:
        self.tools = (*self.tools, tool("grown"))
        self.notify("notifications/tools/list_changed")
        return text("grown")

    def _logs(self, call: Call, words: str) -> dict[str, Any]:
        self.notify("notifications/message", {"level": "warning", "logger": "ok", "data": words})
        return text("logged")

    def _asks(self, call: Call) -> dict[str, Any]:
        answer = call.ask("elicitation/create", {"mode": "form", "message": "Who?", "requestedSchema": FORM})
        return text(json.dumps({key: answer.get(key) for key in ("result", "error")}))

    def _samples(self, call: Call) -> dict[str, Any]:
        words = {"role": "user", "content": {"type": "text", "text": "Say hello."}}
        answer = call.ask("sampling/createMessage", {"messages": [words], "maxTokens": 10})
        return text(json.dumps({key: answer.get(key) for key in ("result", "error")}))

    def _big(self, call: Call, bytes: int) -> dict[str, Any]:
        return text("x" * bytes)

    def _environment(self, call: Call) -> dict[str, Any]:
        return {"content": [], "structuredContent": dict(os.environ)}

    def _pid(self, call: Call) -> dict[str, Any]:
        return text(str(os.getpid()))


if __name__ == "__main__":
    Ok(int(sys.argv[1]) if len(sys.argv) > 1 else 0).run()
