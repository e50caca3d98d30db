"""Where the API is. Whoever only needs that, as a server before its first request does, need not load the rest."""

from onetool.core.text import lazy_pattern

ASK_PATH = "/ask"
_QUESTION = lazy_pattern(r"(?<=/ask/)[0-9a-f]{32,40}")  # with 8 more where there are replicas
CALL_PATH = "/call"
CALL_METHODS = ("POST", "OPTIONS")
EVENTS_PATH = "/events"
STATUS_PATH = "/status"
ROOTS = ("/tools", "/run", "/servers", "/results", "/check", "/trust", "/stats", "/audit")
"""The paths that all other routes are below: what is sent there comes to the same app."""


def mask_questions(text: str) -> str:
    """The text without the ids of questions under way, for logs: who knows one may approve calls."""
    return _QUESTION.sub("***", text) if ASK_PATH in text else text
