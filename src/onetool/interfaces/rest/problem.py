"""Error responses of REST: application/problem+json (RFC 9457), with the same members for every cause.

`code` is for programs. `in` names the part of the request that is wrong (body, path, query or header), and `pointer`
(RFC 6901) the place in that part. If the database can't be used, the code says whether anything may have changed.
"""

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from onetool.core.errors import Need
from onetool.core.principal import Principal, Role
from onetool.core.trace import request_id
from onetool.database import ChangeUnknownError, DatabaseAwayError, DatabaseError
from onetool.http.asgi import Headers, HttpError
from onetool.sources.bundles.errors import (
    BundleError,
    ConflictError,
    Fault,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    OutdatedError,
    RateLimitError,
    UnavailableError,
)

if TYPE_CHECKING:
    from onetool.app.operations import Operation

PROBLEM_TYPE = b"application/problem+json"
DATABASE_AWAY = "database_away"
RETRY_S = 1  # Retry-After while a store is busy
RETRY: Headers = ((b"retry-after", b"%d" % RETRY_S),)

RequestPart = Literal["body", "path", "query", "header"]

STATUS_OF_ERROR: dict[type[BundleError], int] = {
    InvalidError: 400,
    ForbiddenError: 403,
    NotFoundError: 404,
    ConflictError: 409,
    OutdatedError: 412,
    RateLimitError: 429,
    UnavailableError: 503,
}


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of every error response (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: Annotated[str, Meta(description="The cause, for programs: one stable word.")]
    part: Annotated[RequestPart | None, Meta(description="The part of the request that is wrong.")] = msgspec.field(
        default=None, name="in"
    )
    pointer: Annotated[str | None, Meta(description="JSON pointer (RFC 6901) into the part that `in` names.")] = None
    errors: Annotated[tuple[Fault, ...], Meta(description="All errors, if there are several.")] = ()
    reason: Annotated[str | msgspec.UnsetType | None, Meta(description="Why a tool failed.")] = msgspec.UNSET
    hints: Annotated[tuple[str, ...], Meta(description="How to fix the error.")] = ()
    needs: Annotated[tuple[Need, ...], Meta(description="Hosts to allow and secrets to set first.")] = ()
    request_id: Annotated[str | None, Meta(description="As in the header X-Request-Id and in the server's logs.")] = (
        None
    )


class RestError(HttpError):
    """An error response that can name the wrong part of the request."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        part: RequestPart | None = None,
        pointer: str | None = None,
        errors: Iterable[Fault] = (),
        headers: Headers = (),
        reason: str | msgspec.UnsetType | None = msgspec.UNSET,
        hints: Iterable[str] = (),
        needs: Iterable[Need] = (),
    ) -> None:
        super().__init__(status, code, message, headers)
        self.reason = reason
        self.hints = tuple(hints)
        self.needs = tuple(needs)
        self.part = part
        self.pointer = pointer
        self.errors = tuple(errors)


def role_error(principal: Principal, role: Role, method: str = "GET") -> RestError:
    """Return the error for a request that needs another role. `method` is the method of the request."""
    if principal.is_capped:
        what = "This can't be read" if method in ("GET", "HEAD") else "Nothing can be changed"
        message = (
            f"{what} through this server: it only accepts calls, because it was started with --tool-allow or its "
            "config has http.admin: false. To change that, set http.admin: true in its config."
        )
        return RestError(403, "read_only", message)
    if not principal.name:
        message = (
            f"This needs the role {role}, which nobody has here without a token: open the page with a link of `onetool "
            f"page`; or send http.token, or a token created with `onetool tokens add NAME --role {role}`, as "
            "`Authorization: Bearer …`; or do this on the command line."
        )
        return RestError(403, "token_needed", message)
    message = f"This needs the role {role}, and {principal.name} has the role {principal.role}: ask an admin."
    return RestError(403, "role_needed", message)


def bad_parameter(error: InvalidError) -> RestError:
    """Return the error response for a wrong value of a query parameter, which `pointer` names."""
    pointer = "/" + (error.pointer or "/").split("/")[1]
    message = f"The query parameter {pointer[1:]} is wrong: {error.what}{'' if error.what.endswith('?') else '.'}"
    code = "bad_parameter" if error.code == "invalid" else error.code
    return RestError(400, code, message, part="query", pointer=pointer)


def wrong_part(error: InvalidError, operation: "Operation") -> InvalidError | RestError:
    """Return the error of a handler, for the part of the request that its pointer names: the body, unless the query or
    the path of the operation has a parameter of this name.
    """
    name, query = (error.pointer or "").partition("/")[2], operation.query
    if query is not None and name in [one.encode_name for one in msgspec.structs.fields(query)]:
        return bad_parameter(error)
    if name in operation.names:
        return RestError(400, error.code, f"{error.what}.", part="path", pointer=error.pointer)
    return error


def problem_body(refused: HttpError, clean: Callable[[Any], Any] | None = None) -> bytes:
    """Encode an error, including those of interfaces/http, as a problem body. `clean` masks secrets."""
    detail, errors, hints = str(refused), getattr(refused, "errors", ()), getattr(refused, "hints", ())
    if clean is not None:
        detail = clean(detail)
        errors = tuple(Fault(one.pointer, clean(one.message)) for one in errors)
        hints = tuple(map(clean, hints))
    problem = Problem(
        type="about:blank",
        title=HTTPStatus(refused.status).phrase,
        status=refused.status,
        detail=detail,
        code=refused.code,
        part=getattr(refused, "part", None),
        pointer=getattr(refused, "pointer", None),
        errors=errors,
        reason=getattr(refused, "reason", msgspec.UNSET),
        hints=hints,
        needs=getattr(refused, "needs", ()),
        request_id=request_id(),
    )
    return msgspec.json.encode(problem)


def error_from_store(error: BundleError) -> RestError:
    headers: Headers = ()
    if isinstance(error, RateLimitError):
        headers = retry_after(error.left)
    elif isinstance(error, UnavailableError):
        headers = RETRY
    return RestError(
        next((status for kind, status in STATUS_OF_ERROR.items() if isinstance(error, kind)), 400),
        error.code,
        str(error),
        part=None if error.pointer is None else "body",
        pointer=error.pointer,
        headers=headers,
        hints=getattr(error, "hints", ()),
    )


def retry_after(left: Mapping[str, int] | None) -> Headers:
    """Return the header Retry-After if no call of a tool with a limit is left."""
    return ((b"retry-after", b"%d" % left["reset_s"]),) if left is not None and not left["remaining"] else ()


def database_problem(error: BaseException) -> RestError | None:
    """Return the error response if the database caused the error; None otherwise."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, DatabaseError):
        cause = cause.__cause__
    if cause is None:
        return None
    code = "database_refused"
    if isinstance(cause, DatabaseAwayError):
        code = DATABASE_AWAY
    elif isinstance(cause, ChangeUnknownError):
        code = "change_unknown"
    return RestError(503, code, f"{error}.", headers=RETRY, hints=getattr(error, "hints", ()))
