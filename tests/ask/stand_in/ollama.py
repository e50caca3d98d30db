"""Ollama's own API: /api/chat, /api/tags, /api/show, /api/version."""

from collections.abc import Iterator, Mapping
from typing import Any

from ask.stand_in.script import Fails, Says
from ask.stand_in.seen import Seen
from ask.stand_in.wire import About, compact, is_object, listed

STREAM = "application/x-ndjson"
BASE = ""
WORDS = {"refused": "stop"}  # it knows no such thing
AT = "2026-09-21T12:00:00.123456789Z"
DETAILS = {
    "parent_model": "",
    "format": "gguf",
    "family": "llama",
    "families": ["llama"],
    "parameter_size": "8.0B",
    "quantization_level": "Q4_K_M",
}


def is_own(path: str, _headers: Mapping[str, str]) -> bool:
    return path.startswith("/api") or path == "/"


def is_chat(path: str) -> bool:
    return path == "/api/chat"


def about(path: str, body: Mapping[str, Any]) -> About:
    names = [tool.get("function", {}).get("name") for tool in listed(body.get("tools")) if is_object(tool)]
    is_stream = body.get("stream") is not False  # it streams unless it is told not to
    return About(is_stream, str(body.get("model", "")), names, listed(body.get("messages")))


def keyless(seen: Seen) -> Fails | None:
    return None  # it wants none


def unknown(model: str) -> Fails:
    return Fails(404, f"model '{model}' not found")


def other(seen: Seen, models: list[str]) -> Any:
    match seen.method, seen.path:
        case "GET", "/api/version":
            return {"version": "0.21.0"}
        case "GET", "/api/tags":
            return {"models": [_tag(name) for name in models]}
        case "POST", "/api/show":
            asked = seen.body.get("model") if is_object(seen.body) else None
            if asked not in models:
                return unknown(str(asked))
            info = {"general.architecture": "llama", "llama.context_length": 8192}
            shown = {"modelfile": "", "parameters": "", "template": "", "details": DETAILS, "model_info": info}
            return {**shown, "capabilities": ["completion", "tools"], "modified_at": AT}
        case "GET", "/":
            return b"Ollama is running"
    return None


def _tag(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "model": name,
        "modified_at": AT,
        "size": 4_920_753_328,
        "digest": "0" * 64,
        "details": DETAILS,
    }


def error(fails: Fails, seen: Seen) -> Any:
    return {"error": fails.message}


def error_event(fails: Fails, seen: Seen) -> bytes:
    return compact(error(fails, seen)) + b"\n"


def whole(says: Says, seen: Seen) -> Any:
    if says.malformed is not None:
        return _unreadable(says.malformed)
    message: dict[str, Any] = {"role": "assistant", "content": says.text}
    if says.thinking:
        message["thinking"] = says.thinking
    if says.calls:
        message["tool_calls"] = _calls(says)
    return {**_frame(seen, message), **_end(says)}


def events(says: Says, seen: Seen) -> Iterator[bytes]:
    for piece in says.cut(says.thinking):
        yield _line(_frame(seen, {"role": "assistant", "content": "", "thinking": piece}))
    for piece in says.cut(says.text):
        yield _line(_frame(seen, {"role": "assistant", "content": piece}))
    if says.malformed is not None:
        yield error_event(_unreadable(says.malformed), seen)
        return
    for call in _calls(says):
        yield _line(_frame(seen, {"role": "assistant", "content": "", "tool_calls": [call]}))
    yield _line({**_frame(seen, {"role": "assistant", "content": ""}), **_end(says)})


def _unreadable(raw: str) -> Fails:
    return Fails(500, f"error parsing tool call: raw='{raw}', err=unexpected end of JSON input")


def _calls(says: Says) -> list[dict[str, Any]]:
    return [
        {
            **({} if call.id is None else {"id": call.id}),
            "function": {"index": index, "name": call.name, "arguments": dict(call.args)},
        }
        for index, call in enumerate(says.calls)
    ]


def _frame(seen: Seen, message: dict[str, Any]) -> dict[str, Any]:
    return {"model": seen.model, "created_at": AT, "message": message, "done": False}


def _end(says: Says) -> dict[str, Any]:
    return {
        "done": True,
        "done_reason": says.word(WORDS, "stop", "stop"),
        "total_duration": 4_883_583_458,
        "load_duration": 1_334_875,
        "prompt_eval_count": says.input,
        "prompt_eval_duration": 342_546_000,
        "eval_count": says.output,
        "eval_duration": 4_535_599_000,
    }


def _line(value: Any) -> bytes:
    return compact(value) + b"\n"


def problems(seen: Seen, strict: bool) -> Iterator[Fails]:
    """It knows next to no rules, but reads into types: what is of another one is refused."""
    body = seen.body
    if not body.get("model"):
        yield Fails(400, "model is required")
    if not isinstance(body.get("messages", []), list):
        yield _wrong_type("messages", "[]api.Message")
    for tool in listed(body.get("tools")):
        if not is_object(tool) or not is_object(tool.get("function")):
            yield _wrong_type("tools.function", "api.ToolFunction")
            return
        if (tool["function"].get("parameters") or {}).get("type") != "object":
            yield _wrong_type("tools.function.parameters.type", "string")
    for message in seen.messages:
        yield from _message_problems(message)


def _message_problems(message: Any) -> Iterator[Fails]:
    if not is_object(message) or message.get("role") not in ("system", "user", "assistant", "tool"):
        yield Fails(400, f"invalid role: {message}")
        return
    if not isinstance(message.get("content") or "", str):
        yield _wrong_type("messages.content", "string")
    if not isinstance(message.get("tool_name", ""), str):
        yield _wrong_type("messages.tool_name", "string")
    if not all(isinstance(image, str) for image in listed(message.get("images"))):
        yield _wrong_type("messages.images", "api.ImageData")
    for call in listed(message.get("tool_calls")):
        if not is_object(call) or not is_object(call.get("function")):
            yield _wrong_type("messages.tool_calls.function", "api.ToolCallFunction")
            return
        if not is_object(call["function"].get("arguments")):
            yield _wrong_type("messages.tool_calls.function.arguments", "api.ToolCallFunctionArguments")


def _wrong_type(field: str, type_: str) -> Fails:
    return Fails(400, f"json: cannot unmarshal value into Go struct field ChatRequest.{field} of type {type_}")
