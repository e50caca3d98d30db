"""OpenAI's chat completions: /v1/chat/completions, /v1/models."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from ask.stand_in.script import Fails, Says
from ask.stand_in.seen import Seen
from ask.stand_in.wire import About, compact, is_object, listed, one_of

STREAM = "text/event-stream; charset=utf-8"
BASE = "/v1"
WORDS = {"refused": "content_filter"}
CREATED = 1_790_000_000
PARAMETERS = one_of(
    "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages "
    "metadata modalities model moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key "
    "prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier "
    "stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity "
    "web_search_options"
)
NO_KEY = (
    "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth "
    "(i.e. Authorization: Bearer YOUR_KEY)."
)


def is_own(_path: str, _headers: Mapping[str, str]) -> bool:
    return False  # the server takes what nobody else does for OpenAI's


def is_chat(path: str) -> bool:
    return path == "/v1/chat/completions"


def about(path: str, body: Mapping[str, Any]) -> About:
    names = [tool.get("function", {}).get("name") for tool in listed(body.get("tools")) if is_object(tool)]
    return About(body.get("stream") is True, str(body.get("model", "")), names, listed(body.get("messages")))


def keyless(seen: Seen) -> Fails | None:
    kind, _, key = seen.headers.get("authorization", "").partition(" ")
    return None if kind == "Bearer" and key.strip() else Fails(401, NO_KEY)


def unknown(model: str) -> Fails:
    words = f"The model `{model}` does not exist or you do not have access to it."
    return Fails(404, words, "model_not_found")


def other(seen: Seen, models: list[str]) -> Any:
    if (seen.method, seen.path) != ("GET", "/v1/models"):
        return None
    data = [{"id": name, "object": "model", "created": CREATED - i, "owned_by": "us"} for i, name in enumerate(models)]
    return {"object": "list", "data": data}


def error(fails: Fails, seen: Seen) -> Any:
    kinds = {429: ("requests", "rate_limit_exceeded"), 500: ("server_error", None), 503: ("server_error", None)}
    type_, code = kinds.get(fails.status, ("invalid_request_error", None))
    if fails.kind == "insufficient_quota":
        type_ = fails.kind
    return {"error": {"message": fails.message, "type": type_, "param": fails.param, "code": fails.kind or code}}


def error_event(fails: Fails, seen: Seen) -> bytes:
    return _event(error(fails, seen))


def whole(says: Says, seen: Seen) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": says.text or None, "refusal": None, "annotations": []}
    if says.thinking:
        message["reasoning_content"] = says.thinking  # not OpenAI's own: of many that are compatible with it
    if says.calls:
        message["tool_calls"] = _calls(says, seen)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _word(says)}
    return {**_frame(seen, "chat.completion"), "choices": [choice], "usage": _usage(says)}


def events(says: Says, seen: Seen) -> Iterator[bytes]:
    frame = {**_frame(seen, "chat.completion.chunk"), "obfuscation": "xK3f9"}
    with_usage = (seen.body.get("stream_options") or {}).get("include_usage") is True
    if with_usage:
        frame["usage"] = None
    for delta in _deltas(says, seen):
        yield _event({**frame, "choices": [_choice(delta, None)]})
    yield _event({**frame, "choices": [_choice({}, _word(says))]})
    if with_usage:
        yield _event({**frame, "choices": [], "usage": _usage(says)})
    yield b"data: [DONE]\n\n"


def _deltas(says: Says, seen: Seen) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": "" if says.text else None, "refusal": None}
    yield from ({"reasoning_content": piece} for piece in says.cut(says.thinking))
    yield from ({"content": piece} for piece in says.cut(says.text))
    for index, call in enumerate(_calls(says, seen)):
        function = {"name": call["function"]["name"], "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": function}]}
        for piece in says.cut(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _calls(says: Says, seen: Seen) -> list[dict[str, Any]]:
    return [
        {
            "id": seen.call_id("call_", index) if call.id is None else call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.text},
        }
        for index, call in enumerate(says.calls)
    ]


def _frame(seen: Seen, kind: str) -> dict[str, Any]:
    frame = {"id": f"chatcmpl-{seen.number:024}", "object": kind, "created": CREATED, "model": seen.model}
    return {**frame, "service_tier": "default", "system_fingerprint": None}


def _choice(delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _word(says: Says) -> str:
    return says.word(WORDS, "stop", "tool_calls")


def _usage(says: Says) -> dict[str, Any]:
    return {
        "prompt_tokens": says.input,
        "completion_tokens": says.output,
        "total_tokens": says.input + says.output,
        "prompt_tokens_details": {"cached_tokens": says.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _event(value: Any) -> bytes:
    return b"data: " + compact(value) + b"\n\n"


def problems(seen: Seen, strict: bool) -> Iterator[Fails]:
    body = seen.body
    for name in sorted(body.keys() - PARAMETERS):
        yield Fails(400, f"Unrecognized request argument supplied: {name}")
    if not body.get("model"):
        yield Fails(400, "you must provide a model parameter")
    if not listed(body.get("messages")):
        yield Fails(400, "Missing required parameter: 'messages'.", "missing_required_parameter", param="messages")
    if "stream_options" in body and not seen.stream:
        yield Fails(400, "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
    yield from _tool_problems(body, strict)
    yield from _message_problems(seen.messages)
    yield from _pair_problems(seen.messages)
    if strict:
        yield from _order_problems(seen.messages)


def _tool_problems(body: Mapping[str, Any], strict: bool) -> Iterator[Fails]:
    if "tools" not in body:
        if "tool_choice" in body or "parallel_tool_calls" in body:
            yield Fails(
                400, "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."
            )
        return
    tools = listed(body["tools"])
    if not tools:
        yield Fails(400, "Invalid 'tools': empty array. Expected an array with minimum length 1.", "empty_array")
    if strict and len(tools) > 128:
        words = f"Expected an array with maximum length 128, but got an array with length {len(tools)} instead."
        yield Fails(400, f"Invalid 'tools': array too long. {words}", "array_above_max_length", param="tools")
    for index, tool in enumerate(tools):
        function = tool.get("function") if is_object(tool) and tool.get("type") == "function" else None
        if not is_object(function):
            yield Fails(400, f"Missing required parameter: 'tools[{index}].function'.", "missing_required_parameter")
            return
        name, schema = str(function.get("name", "")), function.get("parameters", {"type": "object"})
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
            where, pattern = f"tools[{index}].function.name", "'^[a-zA-Z0-9_-]+$'"
            words = f"Invalid '{where}': string does not match pattern. Expected a string that matches {pattern}."
            yield Fails(400, words, "invalid_value", param=where)
        if not is_object(schema) or schema.get("type") != "object":
            words = f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"'."
            yield Fails(400, words, "invalid_function_parameters", param=f"tools[{index}].function.parameters")


def _message_problems(messages: list[Any]) -> Iterator[Fails]:
    roles = ("system", "developer", "user", "assistant", "tool")
    for index, message in enumerate(messages):
        if not is_object(message) or message.get("role") not in roles:
            yield Fails(400, f"Invalid value: 'messages[{index}].role'. Supported values are: {roles}", "invalid_value")
            return
        calls, content = message.get("tool_calls"), message.get("content")
        if calls is not None and not listed(calls):
            words = "empty array. Expected an array with minimum length 1, but got an empty array instead."
            yield Fails(400, f"Invalid 'messages[{index}].tool_calls': {words}", "empty_array")
        if content is None and not calls:
            yield Fails(400, f"Invalid value for 'content' of messages[{index}]: expected a string, got null.")
        for call in calls or []:
            function = call.get("function", {})
            if not isinstance(call.get("id"), str) or call.get("type") != "function":
                yield Fails(400, f"Missing required parameter: 'messages[{index}].tool_calls[0].id'.")
            if not isinstance(function.get("arguments"), str):
                where = f"messages[{index}].tool_calls[0].function.arguments"
                yield Fails(400, f"Invalid type for '{where}': expected a string.", "invalid_type", param=where)
            if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", str(function.get("name", ""))):
                where = f"messages[{index}].tool_calls[0].function.name"
                yield Fails(400, f"Invalid '{where}': string does not match pattern.", "invalid_value", param=where)


def _pair_problems(messages: list[Any]) -> Iterator[Fails]:
    """Every call is answered before anything else is said, and nothing is answered that was not called."""
    open_: list[str] = []
    for index, message in enumerate([*messages, {"role": "end"}]):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_:
                words = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                yield Fails(400, f"Invalid parameter: {words}", param=f"messages.[{index}].role")
                return
            open_.remove(message["tool_call_id"])
            continue
        if open_:
            words = (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                "'tool_call_id'. The following tool_call_ids did not have response messages: "
            )
            yield Fails(400, words + ", ".join(open_), param=f"messages.[{index}].role")
        open_ = [call["id"] for call in message.get("tool_calls") or []]


def _order_problems(messages: list[Any]) -> Iterator[Fails]:
    """Not OpenAI's own rules: Mistral's, and those of templates that servers fill in for a model."""
    for before, message in pairwise(messages):
        roles = (before["role"], message["role"])
        if roles == ("tool", "user"):
            yield Fails(400, "Unexpected role 'user' after role 'tool'", "3230")
        if roles in (("user", "user"), ("assistant", "assistant")):
            yield Fails(400, "After the optional system message, conversation roles must alternate user and assistant")
