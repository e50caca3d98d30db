"""Errors of the HTTP client and of HTTP tools, and how a server's own words are quoted in them.

Words of a server are masked first, then put on one line, then cut: half of a secret, or one in lower case, would not
be recognised any more.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from onetool.core.errors import ToolFailure, cut


class RequestRefusedError(ToolFailure):
    """Nothing has been sent. `hints` say what to change in the config, where that would help."""

    def __init__(self, message: str, hints: Iterable[str] = ()) -> None:
        super().__init__(message, reason="denied", hints=hints)


# What can go wrong between us and a server, as failures that say what happened and whether another try may help.


class WireError(ToolFailure):
    """Nothing came of one try. `again`: whether another one may do better."""

    again = True


class UnreachableError(WireError):
    """No connection, or one that broke off."""

    def __init__(self, message: str, again: bool = True) -> None:
        super().__init__(message, reason="source_unavailable")
        self.again = again


class StaleConnectionError(UnreachableError):
    """A connection was closed before a byte of an answer came, for the server was tired of it.

    `sent`: whether the request may have reached it nevertheless.
    """

    def __init__(self, message: str, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class RequestTimeoutError(WireError):
    """`what` did not happen in the seconds that there were for it."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} within {seconds:.3g} s", reason="timeout")


class ConnectTimeoutError(RequestTimeoutError):
    """There was not even a connection in that time: nothing has been sent."""


class ResponseTooLargeError(WireError):
    again = False

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message, reason="too_large", hints=(f"the tool's {key} can be raised",))


class InvalidResponseError(WireError):
    """What came is not HTTP, or is more of it than anybody needs."""

    again = False

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="source_unavailable")


def with_message(failure: ToolFailure, message: str, *hints: str) -> ToolFailure:
    """The same failure in more words. The hints are for one that has none."""
    hints = failure.hints or hints
    if not isinstance(failure, WireError):
        return ToolFailure(message, failure.reason, hints)
    other = WireError(message, failure.reason, hints)
    other.again = failure.again
    return other


# What a server said, in a message: its secrets masked, on one line, and cut.


LOOKED_AT = 48 * 1024  # characters of a text that words are taken from …
CUT_MARGIN = 32 * 1024  # … but for its end, where it goes on: half of a secret may stand there

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")

Redact = Callable[[Any], Any]


def masked(text: str, redact: Redact, goes_on: bool = False) -> str:
    """The beginning of a text without its secrets. `goes_on`: it is itself the beginning of a longer one."""
    found = redact(text[:LOOKED_AT])
    return found[:-CUT_MARGIN] if goes_on or len(text) > LOOKED_AT else found


def in_short(text: str, most: int) -> str:
    """On one line, so many characters at most."""
    return cut(_UNSEEN.sub(" ", text).strip(), most)


def quoted(text: str, redact: Redact, most: int) -> str:
    return in_short(masked(text, redact), most)
