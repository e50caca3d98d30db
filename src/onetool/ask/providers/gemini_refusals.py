"""Why Gemini's API refused."""

import re
from typing import Any

from onetool.ask.errors import ModelError, Reason
from onetool.ask.providers.reading import NO_TOOLS_HINTS, a_count, in_words, is_too_long, of_status, window_in

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
_USED_UP = re.compile(r"limit: 0\b|per day|credits? (?:are|is|have been) depleted", re.IGNORECASE)
_NO_TOOLS = re.compile(r"function calling is not (?:enabled|supported)", re.IGNORECASE)  # Gemma, say
_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


def alone(body: Any) -> Any:
    """Errors of streams come as lists of one."""
    return body[0] if isinstance(body, list) and len(body) == 1 else body


def blocked(feedback: dict[str, Any]) -> ModelError:
    """The prompt was not even shown to the model."""
    said = (feedback["blockReason"], feedback.get("blockReasonMessage"))
    why = ": ".join(in_words(word) for word in said if isinstance(word, str) and word)
    return ModelError(f"the model's API does not answer this: {why or '(no reason)'}", "refused")


def refusal(status: int, body: Any) -> ModelError:
    """Of an answer that is no 2xx."""
    return _error(status, alone(body), f"the model's API answered {status}")


def error_in(body: dict[str, Any]) -> ModelError:
    """One that came in place of an answer, or in the middle of it."""
    return _error(None, body, "the model's API broke off with an error")


def _error(status: int | None, body: Any, begins: str) -> ModelError:
    error = body.get("error") if isinstance(body, dict) else None
    error = error if isinstance(error, dict) else {}
    kind, said = (error[key] if isinstance(error.get(key), str) else "" for key in ("status", "message"))
    details = _objects(error.get("details"))
    reason, again = _STATUSES.get(kind) or of_status(status or a_count(error.get("code")) or 500)
    if reason == "bad_request" and is_too_long(said):
        reason = "too_long"
    elif _BAD_KEY.search(said) or any(str(detail.get("reason")) in _KEY_REASONS for detail in details):
        reason, again = "unauthorized", False
    elif reason == "rate_limited" and _is_used_up(said, details):
        reason, again = "quota", False
    hints = [*NO_TOOLS_HINTS] if _NO_TOOLS.search(said) else []
    if status in (404, 405) and not error:  # nothing of this API is there
        reason = "bad_request"
        hints.append("is base_url right? Paths below it begin with /v1beta, which may stand at its end")
    return ModelError(
        f"{begins}: {in_words(said or body) or '(nothing)'}",
        reason,
        hints,
        status=status,
        again=again,
        wait=_wait(details) if again else None,
        window=window_in(said) if reason == "too_long" else None,
    )


def _is_used_up(said: str, details: list[dict[str, Any]]) -> bool:
    """Whether only another day helps, or money. The delay that is told with that is as short as any."""
    violations = [violation for detail in details for violation in _objects(detail.get("violations"))]
    return bool(_USED_UP.search(said)) or any("PerDay" in str(violation.get("quotaId")) for violation in violations)


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _wait(details: list[dict[str, Any]]) -> float | None:
    for detail in details:
        delay = detail.get("retryDelay")
        if isinstance(delay, str) and (found := _SECONDS.fullmatch(delay)):
            return float(found[1])
    return None
