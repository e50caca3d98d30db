"""The errors of `ask`. Messages are for people: what was wrong, where, and what to do.

AskError
├── ModelError     the provider refused, or could not be reached
├── NoModelError   nobody knows which provider or model is meant, or its key is not there
└── SessionError   the session can't be used
"""

from collections.abc import Iterable
from typing import Literal

from onetool.core.errors import Need, OneToolError
from onetool.core.model_providers import key_need

Reason = Literal[
    "unauthorized",  # the key is wrong, or may not do this
    "model_not_found",
    "rate_limited",
    "quota",  # it is used up: waiting does not help
    "overloaded",
    "too_long",  # for the model's window
    "bad_request",
    "empty",  # the model said nothing
    "refused",  # by the provider's rules, before or instead of an answer
    "unreachable",
    "timeout",
    "garbled",  # what came is not what this API says
    "no_key",
    "no_provider",
    "no_model",
    "session",
    "busy",  # somebody else has the session now
    "not_found",  # there is no such session
    "exists",  # there is one already
    "database_away",  # nobody reaches it now, and nothing has changed
    "change_unknown",  # it was lost in the middle of a change
    "interrupted",  # by whoever asked
]


class AskError(OneToolError):
    """No answer. `reason` is for programs; `hints` say what to do, and `needs` what has to be set first."""

    needs: tuple[Need, ...] = ()

    def __init__(self, message: str, reason: Reason, hints: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.hints = tuple(hints)


class NoModelError(AskError):
    """Nothing was sent: something has to be configured first."""

    def __init__(self, message: str, reason: Reason, hints: Iterable[str] = (), provider: str | None = None) -> None:
        """`provider` is the one whose key is not set."""
        super().__init__(message, reason, hints)
        if provider is not None:
            self.needs = (key_need(provider),)


class ModelError(AskError):
    """The provider failed. `again`: whether a retry may help. `wait`: seconds that the provider asks to wait."""

    def __init__(
        self,
        message: str,
        reason: Reason,
        hints: Iterable[str] = (),
        *,
        status: int | None = None,
        again: bool = False,
        wait: float | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__(message, reason, hints)
        self.status = status
        self.again = again
        self.wait = wait
        self.window = window  # tokens that the model takes, where the provider says so in its refusal


class SessionError(AskError):
    """The session is not there, is in use, or can't be read."""
