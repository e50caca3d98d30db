"""The errors of `ask`. Messages tell the user what went wrong, where, and what to do.

AskError
├── ModelError     the provider failed, refused, or could not be reached
├── NoModelError   no provider or model is chosen, or its key is not set
└── SessionError   the session can't be used
"""

from collections.abc import Iterable
from typing import Literal

from onetool.core.errors import Need, OneToolError
from onetool.core.model_providers import key_need

Reason = Literal[
    "unauthorized",  # the key is wrong, or lacks a permission
    "model_not_found",
    "rate_limited",
    "quota",  # used up: waiting does not help
    "overloaded",
    "too_long",  # for the model's context window
    "bad_request",
    "empty",  # the model's answer was empty
    "refused",  # by the provider's rules or the model
    "unreachable",
    "timeout",
    "garbled",  # the response doesn't follow the API
    "no_key",
    "no_provider",
    "no_model",
    "session",
    "busy",  # another turn uses the session
    "not_found",  # no such session
    "exists",  # the session exists already
    "database_away",  # can't be reached; nothing was changed
    "change_unknown",  # the connection was lost during a change
    "not_stored",  # the turn went on, and could not be written
    "interrupted",  # by the caller
]


class AskError(OneToolError):
    """An error in `ask`. `reason` is for programs; `hints` say what to do, and `needs` what to configure first."""

    needs: tuple[Need, ...] = ()

    def __init__(self, message: str, reason: Reason, hints: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.hints = tuple(hints)


class NoModelError(AskError):
    """A missing or invalid configuration. Nothing was sent."""

    def __init__(self, message: str, reason: Reason, hints: Iterable[str] = (), provider: str | None = None) -> None:
        """Create the error. `provider` is set if its key is missing."""
        super().__init__(message, reason, hints)
        if provider is not None:
            self.needs = (key_need(provider),)


class ModelError(AskError):
    """A failure of the provider.

    `again` means that a retry may help; `wait` is the number of seconds to wait, if the provider says so.
    """

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
        self.window = window  # the context window in tokens, if the provider's error has it


class SessionError(AskError):
    """A session that doesn't exist, is in use, or can't be read."""
