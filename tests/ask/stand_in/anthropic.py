"""Anthropic's messages: /v1/messages, /v1/models; both versions of the API that there are."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from ask.stand_in.script import Fails, Says
from ask.stand_in.seen import Seen
from ask.stand_in.wire import About, compact, is_object, listed, one_of, twice

STREAM = "text/event-stream; charset=utf-8"
BASE = ""
WORDS = {"length": "max_tokens", "refused": "refusal"}
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
PARAMETERS = one_of(
    "cache_control container diagnostics inference_geo max_tokens messages metadata model output_config service_tier "
    "speed stop_sequences stream system thinking tool_choice tools user_profile_id workspace_id"
)
VERSIONS = {"2023-06-01": PARAMETERS | {"temperature", "top_k", "top_p"}, "2026-10-21": PARAMETERS}
NO_VERSION = "anthropic-version: header is required"
SIGNATURE = "c2lnbmVkIGJ5IHRoZSBzdGFuZC1pbg=="


def is_own(path: str, headers: Mapping[str, str]) -> bool:
    return path.startswith("/v1/messages") or "anthropic-version" in headers


def is_chat(path: str) -> bool:
    return path == "/v1/messages"


def about(path: str, body: Mapping[str, Any]) -> About:
    names = [tool.get("name") for tool in listed(body.get("tools")) if is_object(tool)]
    return About(body.get("stream") is True, str(body.get("model", "")), names, listed(body.get("messages")))


def keyless(seen: Seen) -> Fails | None:
    has_token = seen.headers.get("authorization", "").startswith("Bearer ")
    return None if has_token or seen.headers.get("x-api-key") else Fails(401, "x-api-key header is required")


def unknown(model: str) -> Fails:
    return Fails(404, f"model: {model}")


def other(seen: Seen, models: list[str]) -> Any:
    if (seen.method, seen.path) != ("GET", "/v1/models"):
        return None
    at = "2026-05-14T00:00:00Z"
    data = [
        {"type": "model", "id": name, "display_name": name.title(), "created_at": at, "lifecycle": "active"}
        for name in models
    ]
    return {"data": data, "has_more": False, "first_id": models[0], "last_id": models[-1]}


def error(fails: Fails, seen: Seen) -> Any:
    kind = fails.kind or TYPES.get(fails.status, "api_error")
    told = {"type": kind, "message": fails.message}
    return {"type": "error", "error": told, "request_id": f"req_{seen.number:024}"}


def error_event(fails: Fails, seen: Seen) -> bytes:
    return _event(error(fails, seen))


def whole(says: Says, seen: Seen) -> Any:
    return {
        **_message(seen),
        "content": _blocks(says, seen),
        "stop_reason": says.word(WORDS, "end_turn", "tool_use"),
        "usage": _usage(says),
    }


def events(says: Says, seen: Seen) -> Iterator[bytes]:
    yield _event(
        {"type": "message_start", "message": {**_message(seen), "usage": {**_usage(says), "output_tokens": 1}}}
    )
    for index, block in enumerate(_blocks(says, seen)):
        yield _event({"type": "content_block_start", "index": index, "content_block": _begun(block)})
        if index == 0:
            yield _event({"type": "ping"})
        for delta in _deltas(says, block):
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": says.word(WORDS, "end_turn", "tool_use"), "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": says.output}})
    yield _event({"type": "message_stop"})


def _message(seen: Seen) -> dict[str, Any]:
    told = {"id": f"msg_{seen.number:024}", "type": "message", "role": "assistant", "model": seen.model}
    return {**told, "content": [], "stop_reason": None, "stop_sequence": None}


def _blocks(says: Says, seen: Seen) -> list[dict[str, Any]]:
    """What is said, in whole. Malformed input stands there as its text."""
    blocks: list[dict[str, Any]] = []
    if says.thinking:
        blocks.append({"type": "thinking", "thinking": says.thinking, "signature": SIGNATURE})
    if says.text:
        blocks.append({"type": "text", "text": says.text})
    for index, call in enumerate(says.calls):
        id = seen.call_id("toolu_", index) if call.id is None else call.id
        args = dict(call.args) if call.raw is None else call.raw
        blocks.append({"type": "tool_use", "id": id, "name": call.name, "input": args})
    return blocks


def _begun(block: dict[str, Any]) -> dict[str, Any]:
    empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}, "tool_use": {"input": {}}}
    return {**block, **empty[block["type"]]}


def _deltas(says: Says, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "thinking":
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in says.cut(block["thinking"]))
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "text":
            yield from ({"type": "text_delta", "text": piece} for piece in says.cut(block["text"]))
        case _:
            args = block["input"] if isinstance(block["input"], str) else compact(block["input"]).decode()
            yield {"type": "input_json_delta", "partial_json": ""}
            if block["input"]:
                yield from ({"type": "input_json_delta", "partial_json": piece} for piece in says.cut(args))


def _usage(says: Says) -> dict[str, Any]:
    return {
        "input_tokens": says.input - says.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": says.cached,
        "output_tokens": says.output,
        "service_tier": "standard",
    }


def _event(value: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (value["type"].encode(), compact(value))


def _bad(words: str) -> Fails:
    return Fails(400, words)


def problems(seen: Seen, strict: bool) -> Iterator[Fails]:
    body = seen.body
    version = seen.headers.get("anthropic-version")
    if version not in VERSIONS:
        yield _bad(f'anthropic-version: "{version}" is not a valid version' if version else NO_VERSION)
    for name in ("model", "messages", "max_tokens"):
        if name not in body:
            yield _bad(f"{name}: Field required")
    for name in sorted(body.keys() - VERSIONS[str(version)]):
        yield _bad(f"{name}: Extra inputs are not permitted")
    if not isinstance(body["max_tokens"], int) or body["max_tokens"] < 1:
        yield _bad("max_tokens: Input should be greater than or equal to 1")
    if not 0 <= body.get("temperature", 1) <= 1:
        yield _bad("temperature: range: 0..1")
    if any(block.get("text") == "" for block in listed(body.get("system"))):
        yield _bad("system: text content blocks must be non-empty")
    yield from _tool_problems(body)
    yield from _role_problems(seen.messages)
    for index, message in enumerate(seen.messages):
        yield from _content_problems(message, f"messages.{index}")
    yield from _pair_problems(seen.messages)
    if strict and "tools" not in body and any(_ids(m, "tool_use", "id") for m in seen.messages):
        yield _bad("Requests which have `tool_use` or `tool_result` blocks in messages must define tools.")


def _tool_problems(body: Mapping[str, Any]) -> Iterator[Fails]:
    if "tool_choice" in body and not listed(body.get("tools")):
        yield _bad("tool_choice: tool_choice may only be specified while providing tools.")
    for index, tool in enumerate(listed(body.get("tools"))):
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", str(tool.get("name", ""))):
            yield _bad(f"tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if not is_object(tool.get("input_schema")):
            yield _bad(f"tools.{index}.custom.input_schema: Field required")
        if tool["input_schema"].get("type") != "object":
            yield _bad(f"tools.{index}.custom.input_schema.type: Input should be 'object'")
        for name in sorted(tool["input_schema"].keys() & {"oneOf", "allOf", "anyOf"}):
            said = "input_schema does not support oneOf, allOf, or anyOf at the top level"
            yield _bad(f"tools.{index}.custom.input_schema: {said} ({name})")
    if twice(str(tool.get("name")) for tool in listed(body.get("tools"))) is not None:
        yield _bad("tools: Tool names must be unique.")


def _role_problems(messages: list[Any]) -> Iterator[Fails]:
    if not messages:
        yield _bad("messages: at least one message is required")
    roles = [message.get("role") for message in messages]
    if set(roles) - {"user", "assistant"}:
        yield _bad("messages: Unexpected role. The Messages API accepts a top-level `system` parameter.")
    if roles[0] != "user":
        yield _bad('messages: first message must use the "user" role')
    for before, role in pairwise(roles):
        if before == role:
            said = f'roles must alternate between "user" and "assistant", but found multiple "{role}" roles in a row'
            yield _bad(f"messages: {said}")
    if roles[-1] == "assistant":
        yield _bad("This model does not support assistant message prefill.")


def _content_problems(message: Any, where: str) -> Iterator[Fails]:
    content = message.get("content")
    if not content:
        yield _bad(f"{where}: all messages must have non-empty content")
    for index, block in enumerate(listed(content)):
        at = f"{where}.content.{index}"
        match block.get("type"):
            case "text":
                if not str(block.get("text", "")).strip():
                    yield _bad("messages: text content blocks must be non-empty")
            case "tool_use":
                if not is_object(block.get("input")):
                    yield _bad(f"{at}.tool_use.input: Input should be a valid dictionary")
                if not re.fullmatch(r"[a-zA-Z0-9_-]+", str(block.get("id", ""))):
                    yield _bad(f"{at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
                if not re.fullmatch(r"[a-zA-Z0-9_-]{1,200}", str(block.get("name", ""))):
                    yield _bad(f"{at}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$'")
            case "tool_result":
                if any(not one.get("text", "-") for one in listed(block.get("content"))):
                    yield _bad("messages: text content blocks must be non-empty")
            case "thinking":
                if block.get("signature") != SIGNATURE:
                    yield _bad(f"{at}: Invalid `signature` in `thinking` block")
            case "image" | "document" | "redacted_thinking":
                pass
            case kind:
                yield _bad(f"{at}: Input tag '{kind}' found using 'type' does not match any of the expected tags")


def _ids(message: Any, kind: str, key: str) -> list[str]:
    return [block.get(key) for block in listed(message.get("content")) if block.get("type") == kind]


def _pair_problems(messages: list[Any]) -> Iterator[Fails]:
    called: list[str] = []
    for index, message in enumerate([*messages, {"content": []}]):
        blocks, results = listed(message.get("content")), _ids(message, "tool_result", "tool_use_id")
        first = [block.get("tool_use_id") for block in blocks[: len(results)]]  # nothing may stand before them
        if missing := [id for id in called if id not in first]:
            yield _bad(
                f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )
        if extra := [id for id in results if id not in called]:
            yield _bad(
                f"messages.{index}.content.{results.index(extra[0])}: unexpected `tool_use_id` found in `tool_result` "
                f"blocks: {extra[0]}. Each `tool_result` block must have a corresponding `tool_use` block in the "
                "previous message."
            )
        if (again := twice(results)) is not None:
            said = f"each tool_use must have a single result. Found multiple `tool_result` blocks with id: {again}"
            yield _bad(f"messages.{index}.content: {said}")
        called = _ids(message, "tool_use", "id")
        if twice(called) is not None:
            yield _bad(f"messages.{index}: `tool_use` ids must be unique")
