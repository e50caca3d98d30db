"""One HTTP request and its response: what requests that stand alone and those of a session share."""

from onetool.interfaces.asgi import Receive, Refused
from onetool.interfaces.content_type import check_content_type
from onetool.interfaces.encoding import encode
from onetool.interfaces.mcp.headers import Headers
from onetool.interfaces.mcp.wire import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    Fault,
    Id,
    refusal,
)

STATUS = {  # of a response that is an error of JSON-RPC; 200 for all others
    **dict.fromkeys((PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS), 400),
    **dict.fromkeys((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION), 400),
    METHOD_NOT_FOUND: 404,
}
_ANSWERS = ("application/json", "text/event-stream", "*/*", "application/*")


async def body_of(headers: Headers, receive: Receive) -> bytes:
    """The message. How long it may be is decided before."""
    check_content_type(headers.get("content-type", "").encode("latin-1"))
    accepted = headers.get("accept", "*/*")
    if not any(one in accepted for one in _ANSWERS):
        raise Refused(
            406,
            "not_acceptable",
            "an answer is application/json or text/event-stream, which the header accept does not allow",
        )
    part = await receive()
    parts = [part.get("body", b"")]
    while part.get("more_body"):
        part = await receive()
        parts.append(part.get("body", b""))
    if part["type"] == "http.disconnect":
        raise Fault(PARSE_ERROR, "the client went away in the middle of its message")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def in_json_rpc(refused: Refused, id: Id | None = None) -> bytes:
    """What HTTP refuses, in words that clients of this protocol show."""
    return encode(refusal(id, Fault(INVALID_REQUEST, str(refused), {"reason": refused.code})))


async def gone(receive: Receive) -> None:
    """Until the client goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass
