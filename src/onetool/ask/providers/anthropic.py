"""The adapter of Anthropic's Messages API: https://platform.claude.com/docs/en/api/messages.

Models require their earlier thoughts in each request, but only after exactly the same messages as before: otherwise the
API refuses the request. So each thought is kept with a fingerprint of everything before it, and is omitted if that has
changed (omitted messages, other tools, another model).
https://platform.claude.com/docs/en/build-with-claude/preserved-thinking
"""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from onetool.ask.errors import ModelError, Reason
from onetool.ask.messages import (
    Assistant,
    Call,
    Delta,
    ModelPrompt,
    ModelReply,
    Result,
    Stop,
    TextDelta,
    ThoughtDelta,
    Usage,
)
from onetool.ask.providers import Adapter, ProviderRequest
from onetool.ask.providers._reading import (
    LEFT_OUT_TEXT,
    a_call,
    a_count,
    a_text,
    an_object,
    arguments_limit,
    as_json,
    body_text,
    default_order,
    garbled_error,
    is_blank,
    listed_models,
    pieces_in_order,
    reason_of_status,
    text_limit,
    thoughts_limit,
    with_files,
)
from onetool.core.text import replace_surrogates

_KINDS: dict[str, tuple[Reason, bool]] = {
    "authentication_error": ("unauthorized", False),
    "permission_error": ("unauthorized", False),
    "billing_error": ("quota", False),
    "not_found_error": ("model_not_found", False),
    "request_too_large": ("too_long", False),
    "rate_limit_error": ("rate_limited", True),
    "timeout_error": ("timeout", True),
    "overloaded_error": ("overloaded", True),
    "api_error": ("overloaded", True),
}
_TOO_LONG = re.compile(r"prompt is too long(?:: \d+ tokens > (\d{1,12}) maximum)?")
_NO_ROOM = re.compile(r"exceed context limit: \d+ \+ (\d{1,12}) > (\d{1,12})\b")
_QUOTA = re.compile(r"credit balance|usage limits", re.IGNORECASE)
_FILTERED = re.compile(r"blocked by content filtering", re.IGNORECASE)

NAME = "anthropic"

# Cached for the last prompts: their replies need it again, and hashing a long history is slow.
_fingerprints: deque[tuple[ModelPrompt, str]] = deque(maxlen=8)


# Errors


def error_of(body: Any, status: int | None = None) -> ModelError:
    """Return the error of a response whose status is not 2xx; without `status`, one sent instead of an answer."""
    error = body.get("error") if isinstance(body, dict) else None
    error = error if isinstance(error, dict) else {}
    kind, text = (error[key] if isinstance(error.get(key), str) else "" for key in ("type", "message"))
    reason, again, window = _reason(status, kind, text, error.get("details"))
    hints: list[str] = []
    if status in (404, 405) and not error:  # not a response of this API
        reason = "bad_request"
        hints.append("is base_url right? OneTool appends /v1, unless base_url ends with it")
    if reason == "bad_request" and "temperature" in text:
        hints.append("this model only accepts its default temperature: leave it out")
    begins = f"answered {status}" if status else "reported an error"
    message = f"the model's API {begins}: {body_text(text or body) or '(nothing)'}"
    return ModelError(message, reason, hints, status=status, again=again, window=window)


def _reason(status: int | None, kind: str, text: str, details: Any) -> tuple[Reason, bool, int | None]:
    if isinstance(details, dict) and details.get("error_code") == "enforced_spend_limit_reached":
        return "quota", False, None
    if kind != "invalid_request_error":
        return *(_KINDS.get(kind) or reason_of_status(status or 500)), None
    if found := _TOO_LONG.search(text):
        return "too_long", False, int(found[1]) if found[1] else None
    if found := _NO_ROOM.search(text):
        return "too_long", False, max(int(found[2]) - int(found[1]), 0) or None
    if _QUOTA.search(text):
        return "quota", False, None
    return "refused" if _FILTERED.search(text) else "bad_request", False, None


# Prompts


class AnthropicHistory:
    """The messages in the form of the API: alternating roles, with all results of a turn in one message."""

    def __init__(self, prompt: ModelPrompt) -> None:
        self.messages: list[dict[str, Any]] = []
        self._names = prompt.tools.names(NAME)
        tools = bytes(prompt.tools.written(NAME)) if prompt.offers_tools else b""
        self._seen = sha256(msgspec.json.encode([prompt.model, replace_surrogates(prompt.system)]) + tools)
        for message in prompt.messages:
            if is_blank(message):
                continue
            if isinstance(message, Assistant):
                self._add("assistant", self._assistant_blocks(message))
            elif isinstance(message, Result):
                content = replace_surrogates(message.content)
                block = {"type": "tool_result", "tool_use_id": message.call, "content": content}
                if not message.ok:  # the API refuses empty errors
                    block |= {"is_error": True, "content": content or "The call failed."}
                self._add("user", [block])
            else:
                blocks: list[dict[str, Any]] = [
                    {"type": "image", "source": {"type": "base64", "media_type": file.kind, "data": file.data}}
                    for file in message.files
                    if file.data is not None
                ]
                text = with_files(message)
                self._add("user", [*blocks, text_block(text)] if text.strip() else blocks)
        _fingerprints.append((prompt, self.fingerprint))

    @property
    def fingerprint(self) -> str:
        """A fingerprint of all messages so far, the system prompt and the tools."""
        return self._seen.hexdigest()[:32]

    def _add(self, role: str, blocks: list[dict[str, Any]]) -> None:
        if blocks and role == "assistant" and not self.messages:
            self._add("user", [text_block(LEFT_OUT_TEXT)])
        for block in blocks:
            self._seen.update(msgspec.json.encode([role, block]))
            if self.messages and self.messages[-1]["role"] == role:
                self.messages[-1]["content"].append(block)
            else:
                self.messages.append({"role": role, "content": [block]})

    def _assistant_blocks(self, message: Assistant) -> list[dict[str, Any]]:
        pieces = None
        if message.provider == NAME and message.kept.get("after") == self.fingerprint:
            pieces = pieces_in_order(message, message.kept.get("order"))
        blocks: list[dict[str, Any]] = []
        for what, kept in pieces or default_order(message):
            if isinstance(what, Call):
                given = msgspec.Raw(as_json(dict(what.args)).encode())
                name = self._names.to_provider(what.name)
                blocks.append({"type": "tool_use", "id": what.id, "name": name, "input": given})
            elif what is None and isinstance(kept.get("thought"), Mapping):
                blocks.append(dict(kept["thought"]))
            elif what and what.strip():  # the API refuses blank text
                blocks.append(text_block(what))
        return blocks


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": replace_surrogates(text)}


# Replies, streamed or whole

_STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "end",  # "tools" if there are calls
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
_THOUGHTS = ("thinking", "redacted_thinking")
_DELTAS = {  # kind -> the member with the piece, and its member in the block
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "input"),
}


class AnthropicStreamReader:
    def __init__(self, prompt: ModelPrompt) -> None:
        self._prompt = prompt
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, Any] = {}
        self._ending: dict[str, Any] = {}
        self._text_limit, self._thoughts_limit = text_limit(), thoughts_limit()
        self.has_ended = False
        self._last_index = -1  # the block of the last text …
        self._last_text = ""  # … and the last piece of text

    def feed(self, event: Any) -> Iterable[Delta]:
        if self.has_ended:
            return ()
        event = an_object(event, "an event")
        match event.get("type"):
            case "message_start":
                self._count(an_object(event.get("message"), "message"))
            case "content_block_start" | "content_block_delta" | "content_block_stop" if self.is_complete:
                return ()  # after the end
            case "content_block_start":
                block = _Block(an_object(event.get("content_block"), "content_block"))
                self._blocks[_index(event)] = block
                return self._deltas(_index(event), block.start)
            case "content_block_delta":
                return self._add(_index(event), an_object(event.get("delta"), "delta"))
            case "content_block_stop":
                self._block(_index(event)).is_whole = True
            case "message_delta":
                self._ending |= an_object(event.get("delta"), "delta")
                self._count(event)
            case "message_stop":
                self.has_ended = True
            case "error":
                raise error_of(event)
        return ()  # pings and unknown events

    @property
    def is_complete(self) -> bool:
        return self.has_ended or isinstance(self._ending.get("stop_reason"), str)

    def reply(self) -> ModelReply:
        blocks = [block.read() for block in self._blocks.values() if block.is_whole or block.type not in _THOUGHTS]
        return reply_of(blocks, self._ending, self._usage, self._prompt)

    def _count(self, message: dict[str, Any]) -> None:
        usage = an_object(message.get("usage"), "usage")
        self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _block(self, index: int) -> "_Block":
        if index not in self._blocks:
            raise garbled_error(f"block {index} continues, but was not started")
        return self._blocks[index]

    def _add(self, index: int, delta: dict[str, Any]) -> Iterable[Delta]:
        block = self._block(index)
        kind = a_text(delta.get("type"), "delta.type")
        if kind not in _DELTAS:
            return ()
        key, member = _DELTAS[kind]
        piece = a_text(delta.get(key), f"delta.{key}")
        room = {"text": self._text_limit, "input": block.limit}.get(member, self._thoughts_limit)
        block.pieces.setdefault(member, []).append(room.take(piece))
        return self._deltas(index, {"type": block.type, member: piece})

    def _deltas(self, index: int, block: dict[str, Any]) -> Iterable[Delta]:
        """Return the deltas of a block or a piece of it."""
        if block.get("type") == "text" and (text := a_text(block.get("text"), "text")):
            gap = "" if index == self._last_index else _paragraph_gap(self._last_text, text)
            self._last_index, self._last_text = index, text
            return (TextDelta(gap + text),)
        if block.get("type") == "thinking" and (text := a_text(block.get("thinking"), "thinking")):
            return (ThoughtDelta(text),)
        return ()


class _Block:
    """A block of a streamed answer: its start and the following pieces."""

    def __init__(self, start: dict[str, Any]) -> None:
        self.start = start
        self.type = start.get("type")
        self.pieces: dict[str, list[str]] = {}
        self.limit = arguments_limit()
        self.is_whole = False

    def read(self) -> dict[str, Any]:
        block = dict(self.start)
        for member, pieces in self.pieces.items():
            first = block.get(member)
            block[member] = (first if isinstance(first, str) else "") + "".join(pieces)
        return block


def _index(event: dict[str, Any]) -> int:
    if not isinstance(event.get("index"), int):
        raise garbled_error(f"a {event['type']} has no index")
    return event["index"]


def _paragraph_gap(before: str, text: str) -> str:
    """Return the gap between two blocks of text: a blank line, unless there is white space already."""
    return "\n\n" if before and text and not before[-1].isspace() and not text[0].isspace() else ""


def reply_of(
    blocks: list[dict[str, Any]], ending: dict[str, Any], usage: dict[str, Any], prompt: ModelPrompt
) -> ModelReply:
    names = prompt.tools.names(NAME)
    room, room_for_kept = text_limit(), thoughts_limit()
    texts: list[str] = []
    last = ""
    calls: list[Call] = []
    order: list[dict[str, Any]] = []
    for block in blocks:
        if block.get("type") == "text":
            text = a_text(block.get("text"), "text")
            gap = _paragraph_gap(last, text)
            texts += (gap, room.take(text))
            last = text or last
            order += [*([{"gap": len(gap)}] if gap else []), {"text": len(text)}]
        elif block.get("type") == "tool_use":
            calls.append(a_call(names, block.get("id"), block.get("name"), block.get("input")))
            order.append({"call": True})
        elif block.get("type") in _THOUGHTS:
            thought = {key: room_for_kept.take(value) for key, value in block.items() if isinstance(value, str)}
            order.append({"thought": thought})
    kept: Mapping[str, Any] = {}
    if any("thought" in piece for piece in order):
        known = (fingerprint for request, fingerprint in tuple(_fingerprints) if request is prompt)
        kept = {"after": next(known, None) or AnthropicHistory(prompt).fingerprint, "order": order}
    stop, why = _stop(ending, bool(calls))
    cached = a_count(usage.get("cache_read_input_tokens"))
    fresh = a_count(usage.get("input_tokens")) + a_count(usage.get("cache_creation_input_tokens"))
    return ModelReply(
        text="".join(texts),
        calls=tuple(calls),
        stop=stop,
        why=why,
        usage=Usage(input=fresh + cached, output=a_count(usage.get("output_tokens")), cached=cached),
        kept=kept,
    )


def _stop(ending: dict[str, Any], has_calls: bool) -> tuple[Stop, str]:
    reason = a_text(ending.get("stop_reason"), "stop_reason")
    stop = _STOPS.get(reason, "other") if reason else "end"
    if has_calls and stop in ("end", "other"):
        return "tools", ""
    if stop != "refused":
        return stop, reason if stop == "other" else ""
    details = an_object(ending.get("stop_details"), "stop_details")
    parts = (reason, details.get("category"), details.get("explanation"))
    return stop, ": ".join(body_text(word) for word in parts if isinstance(word, str) and word)


# The adapter

VERSION = "2023-06-01"  # newer versions have no temperature, and few other servers support them
MAX_TOKENS = 32_000  # required by the API, and accepted by all its models; includes thoughts
CACHED = {"type": "ephemeral"}  # a cached prefix costs a tenth if it is sent again within minutes


class Anthropic(Adapter):
    name = NAME
    base_url = "https://api.anthropic.com"
    model = "claude-sonnet-5-5"
    models_path = "/v1/models?limit=1000"
    rank = 2
    reader = AnthropicStreamReader

    def headers(self, key: str | None) -> list[tuple[str, str]]:
        return [*([("x-api-key", key)] if key else []), ("anthropic-version", VERSION)]

    def request(self, prompt: ModelPrompt, stream: bool) -> ProviderRequest:
        messages = AnthropicHistory(prompt).messages
        if messages and messages[-1]["role"] == "user":  # the next step begins with these messages
            content = messages[-1]["content"]
            content[-1] = {**content[-1], "cache_control": CACHED}
        body: dict[str, Any] = {
            "model": prompt.model,
            "max_tokens": prompt.max_tokens or MAX_TOKENS,
            "messages": messages,
            "stream": stream,
        }
        if prompt.offers_tools:
            body["tools"] = prompt.tools.written(NAME)
        elif not prompt.tools:  # then the API requires declarations of the tools called before
            names = prompt.tools.names(NAME)
            called = [call.name for reply in prompt.messages if isinstance(reply, Assistant) for call in reply.calls]
            gone = [
                {"name": name, "description": "No longer available.", "input_schema": {"type": "object"}}
                for name in dict.fromkeys(map(names.to_provider, called))
            ]
            body |= {"tools": gone, "tool_choice": {"type": "none"}} if gone else {}
        if prompt.system.strip():  # cached together with the tools, which precede it
            body["system"] = [{**text_block(prompt.system), "cache_control": CACHED}]
        if prompt.temperature is not None:
            body["temperature"] = prompt.temperature
        return ProviderRequest("/v1/messages", body)

    def reply(self, body: Any, prompt: ModelPrompt) -> ModelReply:
        message = an_object(body, "the response")
        if message.get("type") == "error":
            raise error_of(message)
        if not isinstance(message.get("content"), list):
            raise garbled_error(f"it contains no message: {body_text(body)}")
        blocks = [an_object(block, "a block of `content`") for block in message["content"]]
        return reply_of(blocks, message, an_object(message.get("usage"), "usage"), prompt)

    def failure(self, status: int, body: Any) -> ModelError:
        return error_of(body, status)

    def models(self, body: Any) -> list[str]:
        found = [model for model in listed_models(body, "data") if isinstance(model.get("id"), str)]
        found = [model for model in found if model.get("lifecycle") != "retired"]
        found.sort(key=lambda model: str(model.get("created_at") or ""), reverse=True)
        found.sort(key=lambda model: model.get("lifecycle") == "deprecated")
        return [model["id"] for model in found]


ADAPTER = Anthropic()
