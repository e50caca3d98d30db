"""Errors of the HTTP client and of HTTP tools, and the quoting of text from servers in them.

Text from a server is masked first, then put on one line, then cut: a mask would not recognise half of a secret, or one
in lower case.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from onetool.core.errors import Need, OneToolError, ToolFailure, cut


class RequestRefusedError(ToolFailure):
    """The request was not sent: its URL is invalid or not allowed. `hints` name the config entries to change."""

    def __init__(self, message: str, hints: Iterable[str] = (), needs: Iterable[Need] = ()) -> None:
        super().__init__(message, reason="denied", hints=hints, needs=needs)


class UnmetNeedError(RequestRefusedError):
    """A host has to be allowed, or a secret set. Nothing was sent."""


class AuthError(OneToolError):
    """Authentication failed; the message gives the reason. A login, or a later attempt, may help."""


# Errors of the connection


class WireError(ToolFailure):
    """One attempt failed. `again` is whether a retry may succeed."""

    again = True


class UnreachableError(WireError):
    """No connection, or a connection that broke off."""

    def __init__(self, message: str, again: bool = True) -> None:
        super().__init__(message, reason="source_unavailable")
        self.again = again


class StaleConnectionError(UnreachableError):
    """The server closed an idle connection before it answered.

    `sent` is whether the request may still have reached the server.
    """

    def __init__(self, message: str, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class RequestTimeoutError(WireError):
    """A timeout. The message begins with `what`, for example "api.example.com did not answer"."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} within {seconds:.3g} s", reason="timeout")


class ConnectTimeoutError(RequestTimeoutError):
    """Connecting timed out; nothing was sent."""


class ResponseTooLargeError(WireError):
    again = False

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message, reason="too_large", hints=(f"the tool's {key} can be raised",))


class InvalidResponseError(WireError):
    """The response is not valid HTTP, or exceeds a limit."""

    again = False

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="source_unavailable")


def with_message(failure: ToolFailure, message: str, *hints: str) -> ToolFailure:
    """Return a copy of the error with another message; `hints` are used if it has none."""
    hints = failure.hints or hints
    if not isinstance(failure, WireError):
        return ToolFailure(message, failure.reason, hints, failure.needs)
    other = WireError(message, failure.reason, hints)
    other.again = failure.again
    return other


# Text from servers in messages

LOOKED_AT = 48 * 1024  # characters that are read for an excerpt …
CUT_MARGIN = 32 * 1024  # … except at the end of cut text, which may contain half of a secret

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")
Redact = Callable[[Any], Any]


def masked(text: str, redact: Redact, goes_on: bool = False) -> str:
    """Return the beginning of a text with its secrets masked. `goes_on` means that the text itself is cut."""
    clean = redact(text[:LOOKED_AT])
    return clean[:-CUT_MARGIN] if goes_on or len(text) > LOOKED_AT else clean


def in_short(text: str, limit: int) -> str:
    """Return the text on one line, cut to `limit` characters, without characters that change the display of others."""
    return "".join(char if char.isprintable() else " " for char in cut(_UNSEEN.sub(" ", text).strip(), limit))


def quoted(text: str, redact: Redact, limit: int) -> str:
    return in_short(masked(text, redact), limit)
