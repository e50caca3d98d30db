"""Refusals as clients of REST read them: application/problem+json (RFC 9457), the same members for every cause.

`code` is for programs. `pointer` (RFC 6901) says where it is wrong, in what `in` names: the body, path, query, header.
"""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from math import ceil
from typing import Any, Literal

import msgspec

from onetool.interfaces.asgi import Headers, Refused
from onetool.sources.bundles.errors import (
    BundleError,
    Conflict,
    Forbidden,
    Invalid,
    Limited,
    NotFound,
    Stale,
    Unavailable,
)

KIND = b"application/problem+json"
RETRY_S = 1  # when a store that is busy may be asked again

Part = Literal["body", "path", "query", "header"]

STATUS: dict[type[BundleError], int] = {
    Invalid: 400,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    Stale: 412,
    Limited: 429,
    Unavailable: 503,
}


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of several things that are wrong."""

    pointer: str
    message: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of every answer that is a refusal."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    part: Part | None = msgspec.field(default=None, name="in")
    pointer: str | None = None
    errors: tuple[Fault, ...] = ()


class Wrong(Refused):
    """What a client did wrong, or what we can't do for it, and where."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        part: Part | None = None,
        pointer: str | None = None,
        errors: Iterable[Fault] = (),
        headers: Headers = (),
    ) -> None:
        super().__init__(status, code, message, headers)
        self.part = part
        self.pointer = pointer
        self.errors = tuple(errors)


def told(refused: Refused, clean: Callable[[Any], Any] | None = None) -> bytes:
    """The body. `clean` takes the secrets out of what it says; also what the site refuses is told by this."""
    detail, errors = str(refused), getattr(refused, "errors", ())
    if clean is not None:
        detail = clean(detail)
        errors = tuple(Fault(one.pointer, clean(one.message)) for one in errors)
    problem = Problem(
        type="about:blank",
        title=HTTPStatus(refused.status).phrase,
        status=refused.status,
        detail=detail,
        code=refused.code,
        part=getattr(refused, "part", None),
        pointer=getattr(refused, "pointer", None),
        errors=errors,
    )
    return msgspec.json.encode(problem)


def from_store(error: BundleError) -> Wrong:
    """What the store refuses."""
    wait = error.retry_after if isinstance(error, Limited) else RETRY_S if isinstance(error, Unavailable) else None
    return Wrong(
        next((status for kind, status in STATUS.items() if isinstance(error, kind)), 400),
        error.code,
        str(error),
        part=None if error.pointer is None else "body",
        pointer=error.pointer,
        headers=() if wait is None else [(b"retry-after", b"%d" % max(1, ceil(wait)))],
    )
