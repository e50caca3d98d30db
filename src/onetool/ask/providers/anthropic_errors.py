"""Turns error responses of Anthropic's API into a ModelError."""

import re
from typing import Any

from onetool.ask.errors import ModelError, Reason
from onetool.ask.providers.reading import body_text, reason_of_status

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


def error_from_status(status: int, body: Any) -> ModelError:
    """The error for a response whose status is not 2xx."""
    return _error(status, body, f"the model's API answered {status}")


def error_from_body(body: dict[str, Any]) -> ModelError:
    """The error that came instead of an answer, or in the middle of it."""
    return _error(None, body, "the model's API broke off with an error")


def _error(status: int | None, body: Any, begins: str) -> ModelError:
    error = body.get("error") if isinstance(body, dict) else None
    error = error if isinstance(error, dict) else {}
    kind, text = (error[key] if isinstance(error.get(key), str) else "" for key in ("type", "message"))
    reason, again, window = _reason(status, kind, text, error.get("details"))
    hints: list[str] = []
    if status in (404, 405) and not error:  # nothing of this API is there
        reason = "bad_request"
        hints.append("is base_url right? Paths below it begin with /v1, which may stand at its end")
    if reason == "bad_request" and "temperature" in text:
        hints.append("this model takes no other temperature than its own: leave it out")
    message = f"{begins}: {body_text(text or body) or '(nothing)'}"
    return ModelError(message, reason, hints, status=status, again=again, window=window)


def _reason(status: int | None, kind: str, text: str, details: Any) -> tuple[Reason, bool, int | None]:
    if isinstance(details, dict) and details.get("error_code") == "enforced_spend_limit_reached":
        return "quota", False, None
    if kind == "invalid_request_error":
        reason, window = _reason_of_text(text)
        return reason, False, window
    return *(_KINDS.get(kind) or reason_of_status(status or 500)), None


def _reason_of_text(text: str) -> tuple[Reason, int | None]:
    """What a bad request is about, as far as only its words tell, and the window where it is too small."""
    if found := _TOO_LONG.search(text):
        return "too_long", int(found[1]) if found[1] else None
    if found := _NO_ROOM.search(text):
        return "too_long", max(int(found[2]) - int(found[1]), 0) or None
    if _QUOTA.search(text):
        return "quota", None
    return ("refused" if _FILTERED.search(text) else "bad_request"), None
