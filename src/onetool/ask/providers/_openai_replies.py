"""Reads responses of servers with OpenAI's API: errors, and replies, streamed or whole.

A reply has text, thoughts and tool calls, in pieces. An error becomes a ModelError.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from onetool.ask.errors import ModelError, Reason
from onetool.ask.messages import Call, Delta, ModelPrompt, ModelReply, Stop, TextDelta, ThoughtDelta, Usage
from onetool.ask.providers._reading import (
    MAX_TOOL_NAME,
    NO_TOOLS_HINTS,
    SizeLimit,
    a_count,
    a_list,
    a_name,
    a_text,
    an_object,
    arguments,
    arguments_limit,
    as_json,
    body_text,
    garbled_error,
    has_no_tools,
    is_too_long,
    reason_of_status,
    text_limit,
    thoughts_limit,
    too_large_error,
    window_in,
)

_REASON_BY_CODE: dict[str, Reason] = {
    "insufficient_quota": "quota",
    "billing_hard_limit_reached": "quota",
    "billing_not_active": "quota",
    "context_length_exceeded": "too_long",
    "exceed_context_size_error": "too_long",
    "model_not_found": "model_not_found",
    "invalid_model": "model_not_found",
    "content_filter": "refused",
    "content_policy_violation": "refused",
    "invalid_api_key": "unauthorized",
    "authentication_error": "unauthorized",
}
# Compiled when needed, to keep the import fast.
_NO_MODEL = (
    r"(?is)\bmodel\b.{0,200}?(?:not found|not exist|not a valid|not available)|(?:invalid|unknown|no such) model"
    r"|not a valid model"
)
_BAD_KEY = r"(?i)(?:invalid|incorrect) api key|api key not valid"
_WAIT = r"try again in (?:(\d{1,4})h)?(?:(\d{1,4})m(?!s))?(?:(\d{1,6}(?:\.\d{1,6})?)(m?)s)?"

NAME = "openai"
KEPT_CALL_MEMBERS = ("extra_content", "provider_specific_fields")  # signatures of Gemini's thoughts, for example

_ESCAPED = re.compile(r"\\.", re.DOTALL)


# Errors


class _ErrorText(NamedTuple):
    message: str
    code: str
    kind: str
    error: dict[str, Any]


def error_from_status(status: int, body: Any) -> ModelError:
    """Return the error for a response whose status is not 2xx."""
    error_text = _read_error(body)
    return _error(status, error_text, f"the model's API answered {status}: {error_text.message or '(nothing)'}")


def error_from_body(data: dict[str, Any]) -> ModelError | None:
    """Return an error sent as the answer or during it; None if there is none."""
    if not data.get("error") and str(data.get("object")).lower() != "error":
        return None
    error_text = _read_error(data)
    words = f"{error_text.code} {error_text.kind}"
    if error_text.code.isdecimal() and 400 <= int(error_text.code[:9]) < 600:
        status = int(error_text.code)
    elif "rate_limit" in words:
        status = 429
    else:
        status = 500 if "server" in words or "overloaded" in words else 400
    message = error_text.message or "(no message)"
    return _error(status, error_text, f"the model's API reported an error: {message}")


def _read_error(body: Any) -> _ErrorText:
    if isinstance(body, list) and body:  # from Gemini's compatible API
        body = body[0]
    error = (body.get("error") or body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return _ErrorText(body_text(error), "", "", {})
    words = next((error[key] for key in ("message", "detail", "msg") if error.get(key)), error)
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None  # OpenRouter: the message of its provider
    message = body_text(f"{words}: {body_text(raw)}" if raw and isinstance(words, str) else words)
    code, kind = (str(error.get(key) or "").lower() for key in ("code", "type"))
    return _ErrorText(message, code, kind, error)


def _error(status: int, error_text: _ErrorText, message: str) -> ModelError:
    reason, again = _reason(status, error_text)
    return ModelError(
        message,
        reason,
        _hints(status, reason, error_text),
        status=status,
        again=again,
        wait=_wait(error_text.message) if again else None,
        window=(a_count(error_text.error.get("n_ctx")) or window_in(error_text.message))
        if reason == "too_long"
        else None,
    )


def _reason(status: int, error_text: _ErrorText) -> tuple[Reason, bool]:
    """Return the reason for an error, and whether to retry. The text is more reliable than the status."""
    for word in (error_text.code, error_text.kind):
        if word in _REASON_BY_CODE:
            return _REASON_BY_CODE[word], False
    if has_no_tools(error_text.message):
        return "bad_request", False
    if status == 429:
        return ("too_long", False) if "request too large" in error_text.message.lower() else ("rate_limited", True)
    if status not in (401, 403) and is_too_long(error_text.message):
        return "too_long", False
    if status in (400, 404, 422) and re.search(_NO_MODEL, error_text.message):
        return "model_not_found", False
    if status == 400 and re.search(_BAD_KEY, error_text.message):
        return "unauthorized", False
    metadata = error_text.error.get("metadata")
    if status == 403 and isinstance(metadata, dict) and metadata.get("reasons"):  # OpenRouter's moderation
        return "refused", False
    return reason_of_status(status)


def _hints(status: int, reason: Reason, error_text: _ErrorText) -> tuple[str, ...]:
    param = error_text.error.get("param")
    if has_no_tools(error_text.message):
        server = "start vLLM with --enable-auto-tool-choice and --tool-call-parser to call tools"
        return (server, *NO_TOOLS_HINTS) if "auto-tool-choice" in error_text.message else NO_TOOLS_HINTS
    if param == "reasoning_effort":
        return ("the model does not call tools over this API: choose another (--model)", NO_TOOLS_HINTS[1])
    if param == "temperature":
        return ("this model only accepts its default temperature: leave it out",)
    if reason == "bad_request" and status in (404, 405):
        return ("is base_url right? For most servers it ends with /v1",)
    return ()


def _wait(message: str) -> float | None:
    found = re.search(_WAIT, message)
    if found is None or not any(found.groups()):
        return None
    hours, minutes, seconds = (float(part or 0) for part in found.group(1, 2, 3))
    return hours * 3600 + minutes * 60 + (seconds / 1000 if found[4] else seconds)


# Tool calls in pieces


class CallPieces:
    """The tool calls of a reply, joined from pieces by index, which many servers set wrongly or not at all."""

    def __init__(self, limit: SizeLimit) -> None:
        """Create an empty collection. `limit` limits the data kept for the server."""
        self._limit = limit
        self._all: list[_Pieces] = []
        self._last: dict[int | None, _Pieces] = {}  # by index; None: the last of all
        self._ids: dict[tuple[int | None, str], _Pieces] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def take(self, item: dict[str, Any], is_whole: bool) -> None:
        function = an_object(item.get("function"), "the function of a tool call")
        id, name = a_text(item.get("id"), "the id of a call"), a_name(function.get("name"))
        args = function.get("arguments")
        text = args if isinstance(args, str) else "" if args is None else as_json(args)
        index = item.get("index")
        index = index if isinstance(index, int) else None
        call = None if is_whole else self._continued(index, id, name)
        if call is None:
            call = _Pieces()
            self._all.append(call)
        kept = {key: item[key] for key in KEPT_CALL_MEMBERS if item.get(key)}
        if kept:
            self._limit.take(as_json(kept))
        call.take(id, name, text, kept)
        self._last[index] = self._last[None] = call
        self._ids[index, call.id] = self._ids[None, call.id] = call

    def _continued(self, index: int | None, id: str, name: str) -> "_Pieces | None":
        """Return the call that this piece continues; None if the piece starts a new call."""
        last = self._last.get(index)
        if last is None or (not id and not name):
            return last
        if id and last.id:
            return self._ids.get((index, id))
        if not name or not last.name:
            return last
        # Only a name: a repeated name, or the start of the next call if the last one is complete.
        return None if index is None or name != last.name or last.is_whole else last

    def read(self, prompt: ModelPrompt) -> Iterator[Call]:
        names = prompt.tools.names(NAME)
        for call in self._all:
            args, malformed = call.arguments()
            name = names.from_provider(call.name) or call.name
            yield Call(id=call.id, name=name, args=args, malformed=malformed, kept=call.kept)


class _Pieces:
    """The received pieces of a call."""

    def __init__(self) -> None:
        self.id = self.name = ""
        self.kept: dict[str, Any] = {}
        self._args: list[str] = []
        self._limit = arguments_limit()
        self._balance = JsonBalance()
        self._counted = 0  # pieces passed to the balance, on demand: most calls don't need this

    def take(self, id: str, name: str, args: str, kept: dict[str, Any]) -> None:
        self.id = self.id or id
        if name != self.name and not self._args:  # some servers repeat the name with every piece
            self.name += name
            if len(self.name) > MAX_TOOL_NAME:
                raise too_large_error(MAX_TOOL_NAME, "the name of a tool")
        if args:
            self._args.append(self._limit.take(args))
        self.kept |= kept

    def arguments(self) -> tuple[dict[str, Any], str | None]:
        return arguments("".join(self._args))

    @property
    def is_whole(self) -> bool:
        for piece in self._args[self._counted :]:
            self._balance.feed(piece)
        self._counted = len(self._args)
        return self._balance.is_even


class JsonBalance:
    """A counter of brackets, which tells whether JSON received in pieces is complete."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_text = self._after_backslash = self._has_content = False

    def feed(self, piece: str) -> None:
        text = _ESCAPED.sub("", f"\\{piece}" if self._after_backslash else piece)
        self._after_backslash = text.endswith("\\")
        stretches = text.split('"')
        outside = "".join(stretches[1 if self._in_text else 0 :: 2])
        self._depth += outside.count("{") - outside.count("}")
        self._in_text ^= len(stretches) % 2 == 0
        self._has_content = self._has_content or len(stretches) > 1 or "{" in outside

    @property
    def is_even(self) -> bool:
        """Whether every opened bracket is closed, and there was any content."""
        return self._has_content and not self._in_text and self._depth <= 0


# The reply, joined from pieces

THOUGHTS = ("reasoning_content", "reasoning")  # members with thoughts; OpenAI doesn't send any
KEPT_MEMBERS = (*THOUGHTS, "reasoning_details", "extra_content")
GROWING_MEMBERS = ("text", "summary", "data")  # members of OpenRouter's blocks of thoughts that arrive in pieces

_DONE_EVENT = "[DONE]"
_STOPS: dict[str, Stop] = {
    "": "end",
    "stop": "end",
    "end_turn": "end",
    "eos": "end",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tools",
    "function_call": "tools",
    "content_filter": "refused",
}


class OpenAIStreamReader:
    """A reader of the events of one answer, or of a whole answer as the only event."""

    def __init__(self, prompt: ModelPrompt) -> None:
        self._prompt = prompt
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._thoughts: dict[str, list[str]] = {}
        self._details = _Details()
        self._extra: Any = None
        self._text_limit, self._thoughts_limit = text_limit(), thoughts_limit()
        self._calls = CallPieces(self._thoughts_limit)
        self._usage = Usage()
        self._finish = ""
        self.has_ended = False
        self.is_empty = True

    def feed(self, event: Any) -> Iterable[Delta]:
        """Read an event. Only the first choice is used."""
        if self.has_ended:
            return ()
        if isinstance(event, str):
            if event.strip() not in ("", _DONE_EVENT):
                raise garbled_error(f"an event is not JSON: {body_text(event)}")
            self.has_ended = bool(event.strip())
            return ()
        data = an_object(event, "an event")
        if error := error_from_body(data):
            raise error
        if isinstance(usage := data.get("usage"), dict) and usage:
            details = usage.get("prompt_tokens_details")
            cached = details.get("cached_tokens") if isinstance(details, dict) else None
            self._usage = Usage(
                input=a_count(usage.get("prompt_tokens")),
                output=a_count(usage.get("completion_tokens")),
                cached=a_count(cached) or a_count(usage.get("prompt_cache_hit_tokens")),  # the latter: DeepSeek
            )
        choices = a_list(data.get("choices"), "choices")
        if not choices:
            return []
        choice = an_object(choices[0], "choices[0]")
        if choice.get("index"):
            return []
        if error := error_from_body(choice):
            raise error
        finish = a_text(choice.get("finish_reason"), "finish_reason")
        if self._is_over and not finish:
            return []
        is_whole = "message" in choice and "delta" not in choice
        name = "message" if is_whole else "delta"
        self.is_empty = self.is_empty and choice.get(name) is None
        deltas = list(self._read_message(an_object(choice.get(name), f"choices[0].{name}"), is_whole))
        self._finish = finish or self._finish
        return deltas

    @property
    def is_complete(self) -> bool:
        return self.has_ended or bool(self._finish)

    @property
    def _is_over(self) -> bool:
        """Whether the reply has a finish reason and some content. Later pieces without a reason are ignored.

        Some servers send a finish reason with each piece, and some before the first: these have not finished.
        """
        return bool(self._finish) and bool(self._text or self._refusal or self._calls)

    def reply(self) -> ModelReply:
        calls = tuple(self._calls.read(self._prompt))
        stop = _STOPS.get(self._finish, "other")
        refusal = "".join(self._refusal)
        if calls and stop not in ("length", "refused"):
            stop = "tools"
        elif refusal:
            stop = "refused"
        elif stop == "tools":
            stop = "other"
        why = body_text(refusal or self._finish) if stop in ("refused", "other") else ""
        # Data to send back, but only to the same model, since many servers use this API.
        kept: dict[str, Any] = {key: "".join(parts) for key, parts in self._thoughts.items()}
        if details := self._details.read():
            kept["reasoning_details"] = details
        if self._extra:
            kept["extra_content"] = self._extra
        if kept or any(call.kept for call in calls):
            kept = {"model": self._prompt.model, **kept}
        text = "".join(self._text)
        return ModelReply(text=text, calls=calls, stop=stop, why=why, usage=self._usage, kept=kept)

    def _read_message(self, message: dict[str, Any], is_whole: bool) -> Iterator[Delta]:
        thoughts = next((key for key in THOUGHTS if isinstance(message.get(key), str) and message[key]), None)
        if thoughts:
            self._thoughts.setdefault(thoughts, []).append(self._thoughts_limit.take(message[thoughts]))
            yield ThoughtDelta(message[thoughts])
        for delta in _content(message.get("content")):
            if isinstance(delta, TextDelta):
                self._text.append(self._text_limit.take(delta.text))
            yield delta
        if refusal := a_text(message.get("refusal"), "refusal"):
            self._refusal.append(self._text_limit.take(refusal))
        for item in a_list(message.get("tool_calls"), "tool_calls"):
            self._calls.take(an_object(item, "a tool call"), is_whole)
        if message.get("function_call"):  # the older form, with a single call
            self._calls.take({"index": 0, "function": message["function_call"]}, is_whole)
        if isinstance(details := message.get("reasoning_details"), list) and details:
            self._thoughts_limit.take(as_json(details))
            self._details.take(details)
        if extra := message.get("extra_content"):
            self._thoughts_limit.take(as_json(extra))
            self._extra = extra


def _content(content: Any) -> Iterator[Delta]:
    """Yield the deltas of a string, or of a list of parts, as sent by Mistral's reasoning models."""
    if not isinstance(content, list):
        if text := a_text(content, "content"):
            yield TextDelta(text)
        return
    for part in content:
        part = an_object(part, "a part of the content")
        if text := a_text(part.get("text"), "a part of the content"):
            yield TextDelta(text)
        thinking = part.get("thinking")
        for thought in thinking if isinstance(thinking, list) else [{"text": thinking}]:
            if isinstance(thought, dict) and isinstance(thought.get("text"), str) and thought["text"]:
                yield ThoughtDelta(thought["text"])


class _Details:
    """OpenRouter's blocks of thoughts, which arrive in pieces and are sent back whole."""

    def __init__(self) -> None:
        self._all: list[Any] = []
        self._grown: dict[str, list[str]] = {}  # pieces of the last block

    def take(self, pieces: list[Any]) -> None:
        for piece in pieces:
            last = self._all[-1] if self._all else None
            if (
                isinstance(piece, dict)
                and isinstance(last, dict)
                and piece.get("index") is not None
                and all(piece.get(key) == last.get(key) for key in ("type", "index"))
            ):
                for key, value in piece.items():
                    if key in GROWING_MEMBERS and isinstance(value, str) and isinstance(before := last.get(key), str):
                        self._grown.setdefault(key, [before]).append(value)
                    elif value is not None:
                        last[key] = value
                        self._grown.pop(key, None)
            else:
                self._end()
                self._all.append(dict(piece) if isinstance(piece, dict) else piece)

    def read(self) -> list[Any]:
        self._end()
        return self._all

    def _end(self) -> None:
        for key, parts in self._grown.items():
            self._all[-1][key] = "".join(parts)
        self._grown = {}
