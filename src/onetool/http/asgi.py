"""ASGI types, the reading of request bodies and headers, and JSON errors: `{"error": {"code", "message"}}`.

Only bodies with a JSON content type are accepted. A web page can send text, forms and untyped bodies to any other
origin without a preflight request, whatever JSON they contain, but not bodies declared as JSON. `encode` writes any
data as JSON.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from math import isfinite
from typing import Any

import msgspec

from onetool.core.trace import request_id

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]
Head = Mapping[bytes, bytes]
"""Request headers by name, as returned by `read_head`."""

JSON = b"application/json"
CLOSE = (b"connection", b"close")
MAX_HEAD = 64 * 1024  # bytes of the request head
AUDIT = "onetool.audit"  # in the scope: kind and name of the request for the audit log
HEAD = "onetool.head"  # in the scope: the headers by name, as returned by `read_head`
DUPLICATE = b"\0"  # the value of a repeated header: no real header can have this value
REQUEST_ID = b"x-request-id"
REPLICA = b"onetool-replica"  # in responses to admins
UNLOGGED = "unlogged"  # in scope["log"]: this request has no line in the logs
BARE_PREFIX = "onetool.bare_prefix"  # in the scope: the path is the prefix of a mount without its trailing slash

MAX_BITS = 14_000  # of an integer: Python refuses to write longer ones in decimal


_encoder = msgspec.json.Encoder()
_COMMON_TYPES = (JSON, b"application/json; charset=utf-8")  # accepted without parsing
MAX_SHOWN = 100  # characters of a Content-Type that an error message repeats


class HttpError(Exception):
    """An exception that ends a request with this error response."""

    def __init__(self, status: int, code: str, message: str, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers

    def body(self) -> bytes:
        error = {"code": self.code, "message": str(self)}
        return msgspec.json.encode({"error": error if (id := request_id()) is None else error | {"request_id": id}})


_IDENTITY_HEADERS = (b"host", b"origin", b"sec-fetch-site", b"authorization")
_SINGLE_HEADERS = frozenset((*_IDENTITY_HEADERS, b"content-type", b"content-length", b"transfer-encoding"))


def read_head(headers: Headers) -> dict[bytes, bytes]:
    """Return the headers by name. A repeated single-value header has the value DUPLICATE; others are joined."""
    pairs = list(headers)
    found = dict(pairs)
    if len(found) == len(pairs):  # no repeated names, as in most requests
        return found
    found.clear()
    for name, value in pairs:
        if name not in found:
            found[name] = value
        elif name in _SINGLE_HEADERS or name.startswith(b"mcp-"):
            found[name] = DUPLICATE
        else:
            found[name] += b", " + value
    return found


def header(head: Head, name: bytes) -> str:
    """Return the value of a header; "" if there is none."""
    return head.get(name, b"").decode("latin-1").strip(" \t")


def read_weights(value: bytes) -> dict[str, float]:
    """Parse a header like Accept into entries with their weights (`q=`), from 0 to 1. The first of each name counts."""
    found: dict[str, float] = {}
    for one in value.decode("latin-1").lower().split(","):
        entry, *parameters = (part.strip() for part in one.split(";"))
        weights = [part[2:] for part in parameters if part.startswith("q=")]
        try:
            found.setdefault(entry, min(max(float(weights[0]), 0.0), 1.0) if weights else 1.0)
        except ValueError:
            found.setdefault(entry, 0.0)
    return found


def takes_gzip(head: Head) -> bool:
    """Return whether Accept-Encoding allows gzip, by name or by `*`."""
    found = read_weights(head.get(b"accept-encoding", b""))
    return found.get("gzip", found.get("*", 0.0)) > 0


async def read_body(receive: Receive) -> bytes | None:
    """Return the body, which `GuardedRequest` passes on in one message; None if the client disconnects first."""
    message = await receive()
    return None if message["type"] == "http.disconnect" else message.get("body", b"")


async def respond(
    send: Send, status: int, body: bytes, kind: bytes = JSON, headers: Headers = (), *, is_last: bool = True
) -> None:
    """Send a response. Unless `is_last`, more of the body follows."""
    own = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), (b"x-content-type-options", b"nosniff")]
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": not is_last})


def encode(message: Any) -> bytes:
    try:
        return _encoder.encode(message)
    except (ValueError, OverflowError, RecursionError, TypeError):
        # Lone surrogates, very large numbers, keys that are not text: rare, so the slower encoder will do.
        return json.dumps(_with_json_numbers(message), default=str, skipkeys=True).encode()


def _with_json_numbers(value: Any) -> Any:
    """Return the data with NaN and infinity as null, and huge integers as hexadecimal text."""
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    if isinstance(value, dict):
        return {key: _with_json_numbers(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_json_numbers(one) for one in value]
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return hex(value)
    return None if isinstance(value, float) and not isfinite(value) else value


# Content-Type


def check_content_type(content_type: bytes | None) -> None:
    if content_type in _COMMON_TYPES:
        return
    if content_type is not None:
        name, *parameters = (part.strip().lower() for part in content_type.split(b";"))
        charsets = [one[8:].strip(b'"') for one in parameters if one.startswith(b"charset=")]
        if name == JSON and all(one in (b"utf-8", b"utf8") for one in charsets):
            return
    came = "there is none" if content_type is None else f"got {content_type[:MAX_SHOWN].decode('latin-1')!r}"
    message = f"A body must be JSON in UTF-8 with `Content-Type: application/json`; {came}."
    raise HttpError(415, "unsupported_media_type", message)
