"""JWTs without a key: their form, header and claims; and what clients are told that have none, or a wrong one.

A JWT comes from anybody, so nothing of it is believed before its signature is checked. Its claims are checked first
nevertheless: that takes no key, and tells a client more than "unknown key" would. No message repeats a part of it.

    /.well-known/oauth-protected-resource        the whole server
    /.well-known/oauth-protected-resource/mcp    its MCP endpoint, as a client finds it that knows its address alone

Both are open to everybody, pages of other origins too: whoever has no token yet needs them to get one.
"""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn
from urllib.parse import quote

import msgspec

from onetool.core.principal import ROLES
from onetool.core.text import utc_text
from onetool.http.asgi import HttpError, Receive, Scope, Send, respond

if TYPE_CHECKING:
    from onetool.config.model import HttpConfig, JwtConfig

LONGEST_TOKEN = 16 * 1024  # bytes
LONGEST_NAME = 256  # characters of a subject or of the name of a key
LATEST = 253_402_300_799  # the last second of the year 9999

_FORM = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")
_TYPES = ("at+jwt", "jwt")
_UNKNOWN_HEADERS = ("crit", "b64", "enc", "zip", "cty")  # each changes how the rest is to be read
_OF_ID_TOKENS = ("nonce", "at_hash", "c_hash", "s_hash")
_NO_ACCESS = ("id", "refresh", "logout", "offline")  # what Keycloak says in the claim `typ` of its other tokens

JwtFault = Literal["invalid_token", "insufficient_scope", "temporarily_unavailable"]


class JwtError(Exception):
    """Why a JWT is refused, in words for its owner. `code` is that of RFC 6750; `retry_after` are seconds."""

    def __init__(self, code: JwtFault, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.code: JwtFault = code
        self.retry_after = retry_after

    @property
    def status(self) -> int:
        return {"invalid_token": 401, "insufficient_scope": 403, "temporarily_unavailable": 503}[self.code]


def invalid(why: str) -> JwtError:
    return JwtError("invalid_token", f"This JWT is not accepted: {why}.")


# The form, and the header


class SignedToken(NamedTuple):
    """A JWT in its parts; nobody has checked its signature yet."""

    algorithm: str
    kid: str | None
    is_access_token: bool  # says its type, as RFC 9068 asks for
    claims: dict[str, Any]
    signed: bytes  # what the signature is of
    signature: bytes


def looks_like_jwt(token: bytes) -> bool:
    """Whether it has the three parts of a JWT, or the five of an encrypted one."""
    return token.count(b".") in (2, 4)


def read_token(token: bytes, algorithms: Collection[str]) -> SignedToken:
    """The parts of a JWT whose header is acceptable. Keys and addresses of keys in the header are never looked at."""
    if len(token) > LONGEST_TOKEN:
        raise invalid(f"it has more than {LONGEST_TOKEN} bytes")
    if token.count(b".") == 4:
        raise invalid("it is encrypted, and this server takes signed ones")
    parts = _FORM.fullmatch(token)
    if parts is None:
        raise invalid("it is not three parts in Base64url with a dot between them")
    header = _object(parts[1], "header")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise invalid(f"its algorithm is none of those that this server takes: {', '.join(algorithms)}")
    if unknown := [name for name in _UNKNOWN_HEADERS if name in header]:
        raise invalid(f"its header has {unknown[0]}, which this server does not support")
    return SignedToken(
        algorithm,
        _kid(header.get("kid")),
        _type(header.get("typ")) == "at+jwt",
        _object(parts[2], "payload"),
        token[: parts.end(2)],
        _decoded(parts[3], "signature"),
    )


def _kid(kid: Any) -> str | None:
    if kid is not None and not _is_name(kid):
        raise invalid(f"its kid is no printable text of at most {LONGEST_NAME} characters")
    return kid


def _type(found: Any) -> str:
    """RFC 7519 lets a JWT say no type; every other kind of token that is a JWT says its own."""
    name = found.lower().removeprefix("application/") if isinstance(found, str) else found
    if name is not None and name not in _TYPES:
        raise invalid("it is no access token: its typ is neither at+jwt nor JWT")
    return name or "jwt"


def _object(part: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(_decoded(part, what).decode(), object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise invalid(f"its {what} is no JSON object, or has a key twice")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two readers of a key that stands there twice may take different ones."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _no_number(_: str) -> NoReturn:
    raise ValueError


def _decoded(part: bytes, what: str) -> bytes:
    try:
        data = urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    except ValueError:
        data = b""
    if urlsafe_b64encode(data).rstrip(b"=") != part:  # bits that nobody reads would give one token many spellings
        raise invalid(f"its {what} is no Base64url")
    return data


# The claims


class ExpectedClaims(NamedTuple):
    """What a JWT for this server says."""

    issuer: str
    audiences: frozenset[str]
    leeway: float

    def check(self, token: SignedToken, now: float) -> float:
        """Raises JwtError, or gives the time from which on the JWT is not accepted any more."""
        claims = token.claims
        if claims.get("iss") != self.issuer:
            raise invalid(f"its issuer (iss) is not {self.issuer}")
        ends = self._check_times(claims, now)
        self._check_audience(claims.get("aud"))
        _check_kind(token)
        if not _is_name(claims.get("sub")):
            raise invalid(f"its subject (sub) is no printable text of at most {LONGEST_NAME} characters")
        return ends

    def _check_times(self, claims: dict[str, Any], now: float) -> float:
        expires, begins, issued = (_time(claims, name) for name in ("exp", "nbf", "iat"))
        if expires is None:
            raise invalid("it does not say when it expires (exp)")
        if now >= expires + self.leeway:
            raise invalid(f"it expired at {utc_text(expires)}")
        if begins is not None and now < begins - self.leeway:
            raise invalid(f"it is not valid before {utc_text(begins)} (nbf)")
        if issued is not None and now < issued - self.leeway:
            raise invalid(f"it was issued in the future (iat), at {utc_text(issued)}: one of the clocks is wrong")
        return expires + self.leeway

    def _check_audience(self, audience: Any) -> None:
        named = [audience] if isinstance(audience, str) else audience
        if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
            raise invalid("it does not say whom it is for (aud)")
        if self.audiences.isdisjoint(named):
            ours = ", ".join(sorted(self.audiences)) or "nothing, as neither http.jwt.audience nor http.url is set"
            raise invalid(f"it is for somebody else: its audience (aud) is none of {ours}")


def _check_kind(token: SignedToken) -> None:
    """Whoever signs access tokens signs ID tokens with the same key."""
    kind = token.claims.get("typ")
    is_other = isinstance(kind, str) and kind.lower() in _NO_ACCESS
    if not token.is_access_token and (is_other or any(name in token.claims for name in _OF_ID_TOKENS)):
        raise invalid("it is no access token, but one that tells a client who has logged in")
    if "cnf" in token.claims:
        raise invalid("it is bound to a key of its client (cnf), which this server can't check")


def _time(claims: dict[str, Any], name: str) -> float | None:
    if name not in claims:
        return None
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LATEST:
        raise invalid(f"its {name} is no time: seconds since 1970, as a number")
    return float(value)


def _is_name(text: Any) -> bool:
    """What is not printable could look like another name, or end a line of a log."""
    return isinstance(text, str) and 0 < len(text) <= LONGEST_NAME and text.isprintable()


# Where clients get one: metadata of a protected resource (RFC 9728), and the header WWW-Authenticate


METADATA_PATH = "/.well-known/oauth-protected-resource"
MCP_PATH = "/mcp"
METADATA_PATHS = (METADATA_PATH, METADATA_PATH + MCP_PATH)

_CORS = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET, HEAD, OPTIONS"),
    (b"access-control-allow-headers", b"mcp-protocol-version"),
    (b"access-control-max-age", b"600"),
]
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # as RFC 6749 spells one
_UNQUOTED = re.compile(r"[^\x20-\x21\x23-\x5b\x5d-\x7e]")  # what a description must not have in the header


class ResourceMetadata:
    """The ASGI app of both routes. `http` gives the config in force."""

    def __init__(self, http: "Callable[[], HttpConfig]") -> None:
        self._http = http

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        http = self._http()
        if http.jwt is None:
            message = "This server takes no tokens of an authorization server: http.jwt in its config names none."
            raise HttpError(404, "not_found", message, _CORS)
        if scope["method"] == "OPTIONS":
            await send({"type": "http.response.start", "status": 204, "headers": _CORS})
            await send({"type": "http.response.body", "body": b""})
            return
        address = public_url(http, scope) + _part(scope["path"].removeprefix(METADATA_PATH))
        body = msgspec.json.encode(metadata(http.jwt, address))
        await respond(send, 200, b"" if scope["method"] == "HEAD" else body, headers=_CORS)


def metadata(config: "JwtConfig", address: str) -> dict[str, object]:
    """What RFC 9728 has a resource tell of itself. `address` is the resource."""
    return {
        "resource": address,
        "authorization_servers": [config.issuer],
        "scopes_supported": _sendable(config.scopes),
        "bearer_methods_supported": ["header"],
        "resource_name": "OneTool",
    }


def public_url(http: "HttpConfig", scope: Scope) -> str:
    """http.url, or the address that the request was sent to. Its Host has been checked."""
    if http.url:
        return http.url.rstrip("/")
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "localhost")
    return f"{scope.get('scheme', 'http')}://{host}{quote(scope.get('root_path', ''))}"


def challenge(http: "HttpConfig", scope: Scope, error: JwtError | None = None) -> tuple[bytes, bytes]:
    """The header WWW-Authenticate of an answer with 401 or 403. Without an error there was no token."""
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
    """The response to a JWT that is not accepted."""
    code = {"invalid_token": "unauthorized", "insufficient_scope": "forbidden"}.get(error.code, error.code)
    if error.retry_after is not None:
        return HttpError(error.status, code, str(error), [(b"retry-after", b"%d" % error.retry_after)])
    return HttpError(error.status, code, str(error), [challenge(http, scope, error)])


def _part(path: str) -> str:
    """The part of the server that has metadata of its own: clients compare `resource` with the address they call."""
    return MCP_PATH if path.rstrip("/") == MCP_PATH else ""


def _needed(config: "JwtConfig", error: JwtError | None) -> list[str]:
    """The scopes that a client should ask for: all that would do where it has none of them, else only those of the
    lowest role, so that nobody asks for more than is needed."""
    if error is not None and error.code == "insufficient_scope":
        return _sendable(config.scopes)
    lowest = min((ROLES.index(grant.role) for grant in config.scopes.values()), default=0)
    return _sendable([scope for scope, grant in config.scopes.items() if ROLES.index(grant.role) == lowest])


def _sendable(scopes: Iterable[str]) -> list[str]:
    return [scope for scope in scopes if _SCOPE.fullmatch(scope)]
