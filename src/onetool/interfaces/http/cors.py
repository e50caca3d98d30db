"""Pages of other origins that the config names in `http.origins`: a browser is told that they may read our answers.

Every other page is refused by the rules, or gets no word about it: then its browser keeps the answer from it.
"""

from onetool.interfaces.asgi import Scope, Send

ASKS = b"access-control-request-method"
READABLE = b"mcp-session-id, mcp-protocol-version, www-authenticate, etag, location, retry-after"
SECONDS = b"600"


def is_preflight(scope: Scope) -> bool:
    """A browser that asks before it sends."""
    return scope["method"] == "OPTIONS" and any(name == ASKS for name, _ in scope["headers"])


async def preflight(scope: Scope, origin: bytes, send: Send) -> None:
    asked = b", ".join(value for name, value in scope["headers"] if name == b"access-control-request-headers")
    headers = [
        *readable_by(origin),
        (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
        (b"access-control-allow-headers", asked or b"*"),
        (b"access-control-max-age", SECONDS),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def readable_by(origin: bytes) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", READABLE),
        (b"vary", b"origin"),
    )
