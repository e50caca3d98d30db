"""The errors of a store.

BundleError
├── InvalidError        invalid data; `pointer` is the place of the mistake
├── NotFoundError       no such bundle or tool
├── ConflictError       a bundle or tool exists already, or prevents the change
├── ForbiddenError      built-in, disabled, too many, or a secret that is not bound to its host
├── OutdatedError       changed by another caller since this caller read it
├── RateLimitError      called more often than the limit allows
└── UnavailableError    the store can't be written now (busy, disk full …); nothing has changed
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from onetool.core.errors import OneToolError
from onetool.core.mismatch import place_of


class BundleError(OneToolError):
    """An error in a store. `code` is for programs, the message for users."""

    code: str

    def __init__(self, message: str, code: str | None = None, pointer: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.pointer = pointer  # a JSON pointer (RFC 6901) into the data sent


class InvalidError(BundleError):
    def __init__(self, message: str, pointer: str | None = None, code: str = "invalid") -> None:
        super().__init__(message, code, pointer)
        self.what = message  # without the place


def invalid_at(pointer: str, what: str) -> InvalidError:
    """Return the error for a mistake at a place of the data, with the place in words."""
    error = InvalidError(f"{place_of(pointer)}: {what}" if pointer else what, pointer)
    error.what = what
    return error


class Fault(msgspec.Struct, frozen=True):
    """A mistake in the data of a user, with its place."""

    pointer: Annotated[str, msgspec.Meta(description="JSON pointer (RFC 6901) to the mistake.")]
    message: str


class NotFoundError(BundleError):
    code = "not_found"


class ConflictError(BundleError):
    code = "conflict"


class ForbiddenError(BundleError):
    code = "forbidden"


class OutdatedError(BundleError):
    code = "stale"


class RateLimitError(BundleError):
    """A call over the limit. `left` has the fields of a result's meta: limit, remaining, reset_s."""

    code = "rate_limited"

    def __init__(self, message: str, left: Mapping[str, int]) -> None:
        super().__init__(message)
        self.retry_after = left["reset_s"]  # seconds
        self.left = left


class UnavailableError(BundleError):
    code = "unavailable"
