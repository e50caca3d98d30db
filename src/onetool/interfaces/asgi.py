"""The types of ASGI, and helpers that send JSON responses and errors (`{"error": {"code", "message"}}`)."""

from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from typing import Any

import msgspec

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

JSON = b"application/json"
CLOSE = (b"connection", b"close")
AUDIT = "onetool.audit"  # in the scope: kind and name of what the audit log says when the request has ended
FORWARDED = "onetool.forwarded"  # in the scope: by which replica a request was sent on, where it was
FORWARDED_HEADER = b"onetool-forwarded"
ANSWERED_HEADER = b"onetool-answered"
BARE_PREFIX = "onetool.bare_prefix"  # in the scope: the address is the prefix of a mount, without a slash at its end

# Of a page. No script, nothing loaded, no frame around it: there is nothing that an enemy's page could use.
SECURITY_HEADERS = [
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


class HttpError(Exception):
    """Ends a request with this error response."""

    def __init__(self, status: int, code: str, message: str, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers

    def body(self) -> bytes:
        return msgspec.json.encode({"error": {"code": self.code, "message": str(self)}})


def read_headers(scope: Scope, names: Collection[bytes]) -> dict[bytes, bytes]:
    """Those of these names. Duplicates are joined with a comma."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in names:
            found[name] = found[name] + b", " + value if name in found else value
    return found


async def read_body(receive: Receive) -> bytes | None:
    """The whole body, or None if the client has disconnected before its end. interfaces/http limits its size."""
    part = await receive()
    parts = [part.get("body", b"")]
    while part.get("more_body"):
        part = await receive()
        parts.append(part.get("body", b""))
    if part["type"] == "http.disconnect":
        return None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` of a request whose body was read already: it comes again, then whatever comes."""
    is_read = False

    async def receive_again() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


async def respond(send: Send, status: int, body: bytes, kind: bytes = JSON, headers: Headers = ()) -> None:
    """A whole answer."""
    await send(response_start(status, body, kind, headers))
    await send({"type": "http.response.body", "body": body})


def response_start(status: int, body: bytes, kind: bytes = JSON, headers: Headers = ()) -> Message:
    own = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), (b"x-content-type-options", b"nosniff")]
    return {"type": "http.response.start", "status": status, "headers": [*own, *headers]}
