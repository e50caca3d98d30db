"""What a store refuses, and why.

BundleError
├── InvalidError        what was sent can't be kept; `pointer` says where it is wrong
├── NotFoundError       no such bundle or tool
├── ConflictError       it is there already, or something is in the way
├── ForbiddenError      built-in, disabled, one too many, or a secret that is not bound to its host
├── OutdatedError       somebody else has changed it since
├── RateLimitError      called more often than its limit allows
└── UnavailableError    the store can't be written now: it is busy, the disk is full …; nothing has changed
"""

from collections.abc import Mapping

from onetool.core.errors import OneToolError


class BundleError(OneToolError):
    """`code` is for programs, the message for people."""

    code: str

    def __init__(self, message: str, code: str | None = None, pointer: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.pointer = pointer  # RFC 6901, into what was sent


class InvalidError(BundleError):
    def __init__(self, message: str, pointer: str | None = None, code: str = "invalid") -> None:
        super().__init__(message, code, pointer)


class NotFoundError(BundleError):
    code = "not_found"


class ConflictError(BundleError):
    code = "conflict"


class ForbiddenError(BundleError):
    code = "forbidden"


class OutdatedError(BundleError):
    code = "stale"


class RateLimitError(BundleError):
    """`left` is what the meta of a result says of a limit: limit, remaining, reset_s."""

    code = "rate_limited"

    def __init__(self, message: str, left: Mapping[str, int]) -> None:
        super().__init__(message)
        self.retry_after = left["reset_s"]  # seconds
        self.left = left


class UnavailableError(BundleError):
    code = "unavailable"
