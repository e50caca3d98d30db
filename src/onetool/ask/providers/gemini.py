"""The adapter of Gemini's API with keys of Google AI Studio: https://ai.google.dev/api/generate-content.

Parts of an answer can have a signature of their thoughts, which must be sent back with the same part. Since Gemini 3, a
call without a signature is refused; calls of other models get a fixed value.
"""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import msgspec

from onetool.ask.errors import ModelError, Reason
from onetool.ask.messages import (
    Assistant,
    Call,
    Delta,
    Message,
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
    NO_TOOLS_HINTS,
    Piece,
    a_call,
    a_count,
    a_list,
    a_text,
    an_object,
    as_json,
    body_text,
    default_order,
    is_blank,
    is_too_long,
    listed_models,
    pieces_in_order,
    reason_of_status,
    text_limit,
    thoughts_limit,
    whole_reply,
    window_in,
    with_files,
)
from onetool.core.text import replace_surrogates

_STATUSES: dict[str, tuple[Reason, bool]] = {
    "UNAUTHENTICATED": ("unauthorized", False),
    "PERMISSION_DENIED": ("unauthorized", False),
    "NOT_FOUND": ("model_not_found", False),
    "INVALID_ARGUMENT": ("bad_request", False),
    "FAILED_PRECONDITION": ("bad_request", False),
    "RESOURCE_EXHAUSTED": ("rate_limited", True),
    "DEADLINE_EXCEEDED": ("timeout", True),
    "INTERNAL": ("overloaded", True),
    "UNAVAILABLE": ("overloaded", True),
}
_KEY_REASONS = frozenset(("API_KEY_INVALID", "API_KEY_EXPIRED", "API_KEY_SERVICE_BLOCKED"))
_BAD_KEY = re.compile(r"API key (?:not valid|expired|not found)", re.IGNORECASE)
_QUOTA = re.compile(r"limit: 0\b|per day|credits? (?:are|is|have been) depleted", re.IGNORECASE)
_NO_TOOLS = re.compile(r"function calling is not (?:enabled|supported)", re.IGNORECASE)  # Gemma, for example
_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


def only_item(body: Any) -> Any:
    """Return the item of a list with one item, which streams use for errors; else the body."""
    return body[0] if isinstance(body, list) and len(body) == 1 else body


def error_of(body: Any, status: int | None = None) -> ModelError:
    """Return the error of a response whose status is not 2xx; without `status`, one sent during an answer."""
    error = body.get("error") if isinstance(body, dict) else None
    error = error if isinstance(error, dict) else {}
    kind, message = (error[key] if isinstance(error.get(key), str) else "" for key in ("status", "message"))
    details = _objects(error.get("details"))
    reason, again = _STATUSES.get(kind) or reason_of_status(status or a_count(error.get("code")) or 500)
    if reason == "bad_request" and is_too_long(message):
        reason = "too_long"
    elif _BAD_KEY.search(message) or any(str(detail.get("reason")) in _KEY_REASONS for detail in details):
        reason, again = "unauthorized", False
    elif reason == "rate_limited":
        # The retry delay does not tell whether the quota is used up: it is as short as for a rate limit.
        violations = [violation for detail in details for violation in _objects(detail.get("violations"))]
        if _QUOTA.search(message) or any("PerDay" in str(violation.get("quotaId")) for violation in violations):
            reason, again = "quota", False
    hints = [*NO_TOOLS_HINTS] if _NO_TOOLS.search(message) else []
    if status in (404, 405) and not error:  # not a response of this API
        reason = "bad_request"
        hints.append("is base_url right? OneTool appends /v1beta, unless base_url ends with it")
    delays = (float(found[1]) for one in details if (found := _SECONDS.fullmatch(str(one.get("retryDelay")))))
    begins = f"answered {status}" if status else "reported an error"
    return ModelError(
        f"the model's API {begins}: {body_text(message or body) or '(nothing)'}",
        reason,
        hints,
        status=status,
        again=again,
        wait=next(delays, None) if again else None,
        window=window_in(message) if reason == "too_long" else None,
    )


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


# Replies, streamed or whole

NAME = "gemini"
SIGNATURE = "thoughtSignature"

_STOPS: dict[str, Stop] = {
    "STOP": "end",  # "tools" if there are calls
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "refused",
    "RECITATION": "refused",
    "BLOCKLIST": "refused",
    "PROHIBITED_CONTENT": "refused",
    "SPII": "refused",
    "IMAGE_SAFETY": "refused",
    "IMAGE_PROHIBITED_CONTENT": "refused",
    "IMAGE_RECITATION": "refused",
}


class GeminiStreamReader:
    """A reader of one streamed answer, or of a whole answer as the only event."""

    def __init__(self, prompt: ModelPrompt) -> None:
        self._prompt = prompt
        self._parts: list[_Part] = []
        self._usage: dict[str, Any] = {}
        self._ending: dict[str, Any] = {}
        self._text_limit, self._thoughts_limit = text_limit(), thoughts_limit()
        self.is_empty = True
        self.has_ended = False  # the API doesn't mark the end

    def feed(self, event: Any) -> Iterable[Delta]:
        event = an_object(only_item(event), "an event")
        if "error" in event:
            raise error_of(event)
        feedback = an_object(event.get("promptFeedback"), "promptFeedback")
        if feedback.get("blockReason"):
            parts = (feedback["blockReason"], feedback.get("blockReasonMessage"))
            why = ": ".join(body_text(word) for word in parts if isinstance(word, str) and word)
            raise ModelError(f"the model's API blocked the question: {why or '(no reason)'}", "refused")
        usage = an_object(event.get("usageMetadata"), "usageMetadata")
        self._usage |= {key: value for key, value in usage.items() if value is not None}
        candidates = a_list(event.get("candidates"), "candidates")
        if not candidates:
            return ()
        candidate = an_object(candidates[0], "a candidate")
        self.is_empty = False
        finish = a_text(candidate.get("finishReason"), "finishReason")
        if self._ending and self._parts and not finish:
            return ()  # after the end; if each piece or the first has a finish reason, the answer continues
        content = an_object(candidate.get("content"), "content")
        deltas: list[Delta] = []
        for part in a_list(content.get("parts"), "parts"):
            deltas += self._add(an_object(part, "a part"))
        if finish:
            self._ending = candidate
        return deltas

    @property
    def is_complete(self) -> bool:
        return bool(self._ending)

    def reply(self) -> ModelReply:
        names = self._prompt.tools.names(NAME)
        texts: list[str] = []
        calls: list[Call] = []
        order: list[dict[str, Any]] = []
        for part in self._parts:
            kept: dict[str, Any] = {"signature": part.signature} if part.signature else {}
            text = "".join(part.texts)
            if part.call is not None:
                calls.append(a_call(names, part.call.get("id"), part.call.get("name"), part.call.get("args")))
                order.append({"call": True, **kept})
            elif not part.is_thought:
                texts.append(text)
                order.append({"text": len(text), **kept})
            elif kept:
                order.append({"thought": text, **kept})
        is_signed = any("signature" in piece for piece in order)
        stop, why = _stop(self._ending, bool(calls))
        usage = self._usage
        return ModelReply(
            text="".join(texts),
            calls=tuple(calls),
            stop=stop,
            why=why,
            usage=Usage(
                input=a_count(usage.get("promptTokenCount")) + a_count(usage.get("toolUsePromptTokenCount")),
                output=a_count(usage.get("candidatesTokenCount")) + a_count(usage.get("thoughtsTokenCount")),
                cached=a_count(usage.get("cachedContentTokenCount")),
            ),
            kept={"model": self._prompt.model, "order": order} if is_signed else {},
        )

    def _add(self, given: dict[str, Any]) -> list[Delta]:
        """Add a part, or append to the last part."""
        signature = self._thoughts_limit.take(a_text(given.get(SIGNATURE), SIGNATURE))
        if given.get("functionCall") is not None:
            self._parts.append(_Part(call=an_object(given["functionCall"], "functionCall"), signature=signature))
            return []
        text = a_text(given.get("text"), "text")
        if not text and not signature:
            return []  # kinds of parts that were not requested
        is_thought = given.get("thought") is True
        (self._thoughts_limit if is_thought else self._text_limit).take(text)
        last = self._parts[-1] if self._parts else None
        if last and not signature and not last.signature and last.call is None and last.is_thought == is_thought:
            last.texts.append(text)
        else:
            self._parts.append(_Part(is_thought=is_thought, signature=signature))
            self._parts[-1].texts.append(text)
        return ([ThoughtDelta(text)] if is_thought else [TextDelta(text)]) if text else []


class _Part:
    """A part of an answer. A signature belongs to exactly this part."""

    def __init__(self, call: dict[str, Any] | None = None, is_thought: bool = False, signature: str = "") -> None:
        self.call = call
        self.is_thought = is_thought
        self.signature = signature
        self.texts: list[str] = []


def _stop(ending: dict[str, Any], has_calls: bool) -> tuple[Stop, str]:
    reason = a_text(ending.get("finishReason"), "finishReason")
    stop = _STOPS.get(reason, "other") if reason else "end"
    if has_calls and stop in ("end", "other"):  # whatever the reason
        return "tools", ""
    if stop in ("end", "length"):
        return stop, ""
    parts = (reason, ending.get("finishMessage"))
    return stop, ": ".join(body_text(word) for word in parts if isinstance(word, str) and word)


# The adapter

NO_SIGNATURE = "skip_thought_signature_validator"  # https://ai.google.dev/gemini-api/docs/thought-signatures#faqs
_UNSIGNED = re.compile(r"gemini-[12]\D|gemma|learnlm", re.IGNORECASE)  # models that don't require signatures


class Gemini(Adapter):
    name = NAME
    base_url = "https://generativelanguage.googleapis.com"
    model = "gemini-flash-latest"
    models_path = "/v1beta/models?pageSize=1000"
    rank = 3
    reader = GeminiStreamReader

    def headers(self, key: str | None) -> list[tuple[str, str]]:
        return [("x-goog-api-key", key)] if key else []

    def request(self, prompt: ModelPrompt, stream: bool) -> ProviderRequest:
        body: dict[str, Any] = {"contents": _contents(prompt)}
        if prompt.system.strip():
            body["systemInstruction"] = {"parts": [{"text": replace_surrogates(prompt.system)}]}
        if prompt.offers_tools:
            body["tools"] = prompt.tools.written(NAME)
        settings = {"temperature": prompt.temperature, "maxOutputTokens": prompt.max_tokens}
        if settings := {key: value for key, value in settings.items() if value is not None}:
            body["generationConfig"] = settings
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return ProviderRequest(f"/v1beta/models/{quote(prompt.model.removeprefix('models/'), safe='')}:{verb}", body)

    def reply(self, body: Any, prompt: ModelPrompt) -> ModelReply:
        return whole_reply(GeminiStreamReader(prompt), body)

    def failure(self, status: int, body: Any) -> ModelError:
        return error_of(only_item(body), status)

    def models(self, body: Any) -> list[str]:
        return [
            model["name"].removeprefix("models/")
            for model in listed_models(body or {"models": []}, "models")  # an empty list is left out
            if isinstance(model.get("name"), str)
            and isinstance(model.get("supportedGenerationMethods"), list)
            and "generateContent" in model["supportedGenerationMethods"]
        ]


ADAPTER = Gemini()


# The contents of a request


def _contents(prompt: ModelPrompt) -> list[dict[str, Any]]:
    """Return the messages in the form of the API. Results stay apart from text: their number must match the calls."""
    contents: list[dict[str, Any]] = []
    last: type | None = None
    for message in prompt.messages:
        role = "model" if isinstance(message, Assistant) else "user"
        parts = [] if is_blank(message) else _parts(message, prompt)
        if not parts:
            continue
        if role == "model" and not contents:
            contents.append({"role": "user", "parts": [{"text": LEFT_OUT_TEXT}]})
        if type(message) is last:
            contents[-1]["parts"] += parts
        else:
            contents.append({"role": role, "parts": parts})
        last = type(message)
    return contents


def _parts(message: Message, prompt: ModelPrompt) -> list[dict[str, Any]]:
    if isinstance(message, Assistant):
        pieces: list[Piece] | None = None
        if message.provider == NAME and message.kept.get("model") == prompt.model:
            pieces = pieces_in_order(message, message.kept.get("order"))
        names = prompt.tools.names(NAME)
        parts: list[dict[str, Any]] = []
        for what, kept in pieces or default_order(message):
            signature = kept.get("signature")
            signed = {SIGNATURE: signature} if isinstance(signature, str) else {}
            if isinstance(what, Call):
                given = msgspec.Raw(as_json(dict(what.args)).encode())
                call = {"id": what.id, "name": names.to_provider(what.name), "args": given}
                parts.append({"functionCall": call, **signed})
            elif isinstance(thought := kept.get("thought"), str):
                parts.append({"text": replace_surrogates(thought), "thought": True, **signed})
            elif what or signed:
                parts.append({"text": replace_surrogates(what or ""), **signed})
        calls = [part for part in parts if "functionCall" in part]
        is_signed = any(SIGNATURE in part for part in calls)
        if calls and not is_signed and not _UNSIGNED.match(prompt.model.removeprefix("models/")):
            calls[0][SIGNATURE] = NO_SIGNATURE
        return parts
    if isinstance(message, Result):
        name = prompt.tools.names(NAME).to_provider(message.name)
        response = {"output" if message.ok else "error": replace_surrogates(message.content)}
        return [{"functionResponse": {"id": message.call, "name": name, "response": response}}]
    data = [{"inlineData": {"mimeType": f.kind, "data": f.data}} for f in message.files if f.data is not None]
    text = with_files(message)
    return [*data, {"text": text}] if text.strip() else data
