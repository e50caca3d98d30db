"""Responses to a missing or invalid JWT: the cause, and where to get a JWT (RFC 6750, RFC 9728).

    /.well-known/oauth-protected-resource        the whole server
    /.well-known/oauth-protected-resource/mcp    its MCP endpoint, for clients that know only its address

Both are public, even for pages of other origins, because clients without a token need them to get one. `jwt_verifier`
checks JWTs; it is loaded only if `http.jwt` is set.
"""

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

import msgspec

from onetool.core.principal import ROLES
from onetool.http.asgi import HttpError, Receive, Scope, Send, respond

if TYPE_CHECKING:
    from onetool.config.model import HttpConfig, JwtConfig

JwtFault = Literal["invalid_token", "insufficient_scope", "temporarily_unavailable"]


class JwtError(Exception):
    """Raised when a JWT is refused. `code` is an error code of RFC 6750; `retry_after` is in seconds."""

    def __init__(self, code: JwtFault, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.code: JwtFault = code
        self.retry_after = retry_after

    @property
    def status(self) -> int:
        return {"invalid_token": 401, "insufficient_scope": 403, "temporarily_unavailable": 503}[self.code]


def invalid(why: str) -> JwtError:
    return JwtError("invalid_token", f"This JWT is not accepted: {why}.")


def looks_like_jwt(token: bytes) -> bool:
    """Return whether a token has the three parts of a JWT or the five of an encrypted JWT."""
    return token.count(b".") in (2, 4)


# Where clients get a JWT: metadata of a protected resource (RFC 9728), and the header WWW-Authenticate

METADATA_PATH = "/.well-known/oauth-protected-resource"
MCP_PATH = "/mcp"
METADATA_PATHS = (METADATA_PATH, METADATA_PATH + MCP_PATH)

_CORS = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET, HEAD, OPTIONS"),
    (b"access-control-allow-headers", b"mcp-protocol-version"),
    (b"access-control-max-age", b"600"),
]
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # the syntax of RFC 6749
_UNQUOTED = re.compile(r"[^\x20-\x21\x23-\x5b\x5d-\x7e]")  # not allowed in a description in the header


class ResourceMetadata:
    """The ASGI app of both routes. `http` returns the current config."""

    def __init__(self, http: "Callable[[], HttpConfig]") -> None:
        self._http = http

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        http = self._http()
        if http.jwt is None:
            message = "This server accepts no JWTs: http.jwt is not set in its config."
            raise HttpError(404, "not_found", message, _CORS)
        if scope["method"] == "OPTIONS":
            await send({"type": "http.response.start", "status": 204, "headers": _CORS})
            await send({"type": "http.response.body", "body": b""})
            return
        metadata = {
            "resource": public_url(http, scope) + _part(scope["path"].removeprefix(METADATA_PATH)),
            "authorization_servers": [http.jwt.issuer],
            "scopes_supported": _sendable(http.jwt.scopes),
            "bearer_methods_supported": ["header"],
            "resource_name": "OneTool",
        }
        body = b"" if scope["method"] == "HEAD" else msgspec.json.encode(metadata)
        await respond(send, 200, body, headers=_CORS)


def public_url(http: "HttpConfig", scope: Scope) -> str:
    """Return http.url, or the address of the request, whose Host has been checked."""
    if http.url:
        return http.url.rstrip("/")
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "localhost")
    return f"{scope.get('scheme', 'http')}://{host}{quote(scope.get('root_path', ''))}"


def challenge(http: "HttpConfig", scope: Scope, error: JwtError | None = None) -> tuple[bytes, bytes]:
    """Return the header WWW-Authenticate for 401 or 403. `error` is None if there was no token."""
    parts = {"realm": "onetool"}
    if error is not None:
        parts |= {"error": error.code, "error_description": _UNQUOTED.sub("'", str(error))}
    if http.jwt is not None:
        if scopes := _needed(http.jwt, error):
            parts["scope"] = " ".join(scopes)
        where = METADATA_PATH + _part(scope["path"])
        parts["resource_metadata"] = _UNQUOTED.sub("", public_url(http, scope) + where)
    return b"www-authenticate", ("Bearer " + ", ".join(f'{key}="{text}"' for key, text in parts.items())).encode()


def refusal(http: "HttpConfig", scope: Scope, error: JwtError) -> HttpError:
    """Return the response to a refused JWT."""
    code = {"invalid_token": "unauthorized", "insufficient_scope": "forbidden"}.get(error.code, error.code)
    if error.retry_after is not None:
        return HttpError(error.status, code, str(error), [(b"retry-after", b"%d" % error.retry_after)])
    return HttpError(error.status, code, str(error), [challenge(http, scope, error)])


def _part(path: str) -> str:
    """Return the path of the resource with its own metadata, since clients compare `resource` with their URL."""
    return MCP_PATH if path.rstrip("/") == MCP_PATH else ""


def _needed(config: "JwtConfig", error: JwtError | None) -> list[str]:
    """Return the scopes to ask for: all sufficient ones if a JWT lacks them, otherwise only those of the lowest role,
    so that clients ask for no more than they need."""
    if error is not None and error.code == "insufficient_scope":
        return _sendable(config.scopes)
    lowest = min((ROLES.index(grant.role) for grant in config.scopes.values()), default=0)
    return _sendable([scope for scope, grant in config.scopes.items() if ROLES.index(grant.role) == lowest])


def _sendable(scopes: Iterable[str]) -> list[str]:
    return [scope for scope in scopes if _SCOPE.fullmatch(scope)]
