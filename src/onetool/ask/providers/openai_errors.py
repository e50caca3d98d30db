"""Turns error responses of servers with OpenAI's API into a ModelError."""

import re
from typing import Any, NamedTuple

from onetool.ask.errors import ModelError, Reason
from onetool.ask.providers.reading import (
    NO_TOOLS_HINTS,
    a_count,
    body_text,
    has_no_tools,
    is_too_long,
    reason_of_status,
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
# Texts, made into patterns when there is a refusal, and not at every start.
_NO_MODEL = (
    r"(?is)\bmodel\b.{0,200}?(?:not found|not exist|not a valid|not available)|(?:invalid|unknown|no such) model"
    r"|not a valid model"
)
_BAD_KEY = r"(?i)(?:invalid|incorrect) api key|api key not valid"
_WAIT = r"try again in (?:(\d{1,4})h)?(?:(\d{1,4})m(?!s))?(?:(\d{1,6}(?:\.\d{1,6})?)(m?)s)?"


class _ErrorText(NamedTuple):
    message: str
    code: str
    kind: str
    error: dict[str, Any]


def error_from_status(status: int, body: Any) -> ModelError:
    """The error for a response whose status is not 2xx."""
    error_text = _read(body)
    return _error(status, error_text, f"the model's API answered {status}: {error_text.message or '(nothing)'}")


def error_from_body(data: dict[str, Any]) -> ModelError | None:
    """An error that came as the answer, or in the middle of one."""
    if not data.get("error") and str(data.get("object")).lower() != "error":
        return None
    error_text = _read(data)
    return _error(
        _status(error_text),
        error_text,
        f"the model's API broke off with an error: {error_text.message or '(no words)'}",
    )


def _read(body: Any) -> _ErrorText:
    if isinstance(body, list) and body:  # as Gemini's compatible API does it
        body = body[0]
    error = (body.get("error") or body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return _ErrorText(body_text(error), "", "", {})
    words = next((error[key] for key in ("message", "detail", "msg") if error.get(key)), error)
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None  # OpenRouter: what the provider behind it said
    message = body_text(f"{words}: {body_text(raw)}" if raw and isinstance(words, str) else words)
    code, kind = (str(error.get(key) or "").lower() for key in ("code", "type"))
    return _ErrorText(message, code, kind, error)


def _status(error_text: _ErrorText) -> int:
    """That an error in a stream would have had."""
    if error_text.code.isdecimal() and 400 <= int(error_text.code[:9]) < 600:
        return int(error_text.code)
    words = f"{error_text.code} {error_text.kind}"
    if "rate_limit" in words:
        return 429
    return 500 if "server" in words or "overloaded" in words else 400


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
    """The reason of an error. Its text counts more than its status."""
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
        server = "vLLM calls tools when it is started with --enable-auto-tool-choice and --tool-call-parser"
        return (server, *NO_TOOLS_HINTS) if "auto-tool-choice" in error_text.message else NO_TOOLS_HINTS
    if param == "reasoning_effort":
        return ("over this API the model does not call tools: choose another (--model)", NO_TOOLS_HINTS[1])
    if param == "temperature":
        return ("this model takes no other temperature than its own: leave it out",)
    if reason == "bad_request" and status in (404, 405):
        return ("is base_url right? For most servers it ends with /v1",)
    return ()


def _wait(message: str) -> float | None:
    found = re.search(_WAIT, message)
    if found is None or not any(found.groups()):
        return None
    hours, minutes, seconds = (float(part or 0) for part in found.group(1, 2, 3))
    return hours * 3600 + minutes * 60 + (seconds / 1000 if found[4] else seconds)
