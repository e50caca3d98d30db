"""Checks of the headers Host, Origin and Sec-Fetch-Site, and CORS.

Host is checked first. With DNS rebinding, a hostile page has the same origin for the browser, but it can't change the
Host header: the browser sends the page's host name, which is not a name of this server.

Browsers send no Origin header with images, scripts, frames and links, but Sec-Fetch-Site with every request, which
pages can't change. Pages whose origin is in `http.origins` get CORS headers, so that they can read the response; all
others are refused.
"""

import asyncio
import re
from functools import lru_cache, partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from onetool.app.access import CACHED, is_loopback_name
from onetool.core.principal import Principal
from onetool.http.asgi import DUPLICATE, HEAD, HttpError, Scope, Send
from onetool.http.url import LOOPBACK
from onetool.interfaces.http.credentials import Credentials
from onetool.interfaces.http.jwt_token import JwtError, challenge, refusal
from onetool.interfaces.http.listen import WILDCARDS, BoundAddress

if TYPE_CHECKING:
    from onetool.config.model import HttpConfig
    from onetool.services.access_tokens import TokenView

USUAL_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s\[\]:/@?#\\]+)(?::([0-9]{1,5}))?")


class Authority(NamedTuple):
    """A host name or address, and its port if given."""

    name: str
    port: int | None


class Origin(NamedTuple):
    """The origin of a page. The port defaults to that of the scheme."""

    scheme: str
    name: str
    port: int | None

    def is_at(self, host: Authority) -> bool:
        """Return whether the origin has this host. TLS may end at a proxy, so the scheme is not compared."""
        usual = USUAL_PORTS.get(self.scheme)
        return usual is not None and (self.name, self.port) == (host.name, usual if host.port is None else host.port)


@lru_cache(CACHED)
def read_authority(text: str) -> Authority | None:
    """Parse a host: `Example.com.:80` -> example.com and 80. Return None if it is not a host."""
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        return None
    name = match[1].lower().removesuffix(".").strip("[]")
    try:
        name = str(ip_address(name))
    except ValueError:
        if match[1].startswith("[") or not name:
            return None
    return Authority(name, int(match[2]) if match[2] else None)


def read_origin(text: str) -> Origin | None:
    """Parse an origin: `https://Example.com` -> https, example.com and 443. Return None if invalid, such as `null`."""
    scheme, _, rest = text.lower().partition("://")
    place = read_authority(rest)
    if place is None:
        return None
    return Origin(scheme, place.name, USUAL_PORTS.get(scheme) if place.port is None else place.port)


# Sec-Fetch-Site, and refusing pages of other origins

MAX_HEADER = 100  # characters of a header that are repeated in a response
_OWN_SITES = (None, b"same-origin", b"none")  # no browser, a page of this server, a typed address
_ORIGIN = re.compile(r"([a-zA-Z][\w+.-]*://(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::[0-9]{1,5})?)(?:[/?#]|$)", re.ASCII)
_NAVIGATION = ((b"sec-fetch-mode", b"navigate"), (b"sec-fetch-dest", b"document"))


def check_fetch_site(site: bytes | None, origin: bytes | None, scope: Scope, is_page: bool) -> None:
    """Check the header Sec-Fetch-Site, `site`. If `is_page` is true, links from other sites are allowed."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    is_link = is_page and all([value for name, value in headers if name == one] == [want] for one, want in _NAVIGATION)
    if site in _OWN_SITES or is_link:
        return
    referer = next((value for name, value in headers if name == b"referer"), b"")
    raise foreign_origin_error(referer if origin is None else origin)


def foreign_origin_error(page: bytes) -> HttpError:
    """Return the error for a page of another origin. `page` is the page's origin or URL, if known."""
    text = page[:MAX_HEADER].decode("latin-1")
    found = _ORIGIN.match(text)
    who, add = (found[1], f'"{found[1]}"') if found else (repr(text), "its origin (scheme://host:port)")
    if text == "null":
        who, add = "files and of frames without an origin ('null')", "the origin of the server that serves them"
    whose = f"Pages of {who}" if text else "Pages of other origins"
    hint = f"to allow them, add {add} to http.origins in the config of `onetool serve`"
    return HttpError(403, "bad_origin", f"{whose} may not use this server; {hint}.")


# Host, Origin, and the caller

_PROXY_HEADERS = (b"forwarded", b"via", b"x-real-ip", b"x-forwarded-")  # the beginnings of their names


class AccessRules:
    """The access rules of a server. They are created at startup and by each reload, and never change."""

    def __init__(self, http: "HttpConfig", address: BoundAddress, credentials: Credentials | None = None) -> None:
        """Check requests to an address. Without `credentials` only the config's token is accepted."""
        own = {*LOOPBACK, *filter(None, (_name(name) for name in (address.host, *address.addresses)))} - set(WILDCARDS)
        self._own = own
        self._port = address.port
        self._everywhere = not set(WILDCARDS).isdisjoint(address.addresses)
        # The host of the public URL is a name of this server, too.
        hosts = (*http.hosts, *([urlsplit(http.url).netloc] if http.url else []))
        self._further = frozenset(filter(None, map(read_authority, hosts)))
        self._origins = frozenset(filter(None, (read_origin(origin.rstrip("/")) for origin in http.origins)))
        names = [f"[{name}]" if ":" in name else name for name in own]
        usual = [*names, *(f"{name}:{address.port}" for name in names)]
        self._usual = frozenset(name.encode() for name in usual)  # Host headers that need no closer look
        self.http = http
        self.credentials = credentials or Credentials(http)
        self._looked: TokenView | None = None

    def check_host(self, host: bytes | None, server: str | None = None) -> None:
        """Check that the Host header names this server. `server` is the address that the client connected to."""
        if host in self._usual:
            return
        if host is None or host is DUPLICATE:
            raise HttpError(421, "bad_host", "A request needs exactly one Host header.")
        named = read_authority(host.decode("latin-1"))
        if named is None or not self._is_ours(named, server):
            shown = host[:MAX_HEADER].decode("latin-1")
            hint = "to allow it, add it to http.hosts in the config of `onetool serve`"
            raise HttpError(421, "bad_host", f"{shown!r} is not a name of this server; {hint}.")

    def check_origin(self, origin: bytes | None, host: bytes | None) -> bytes | None:
        """Check the Origin header. Returns the origin if `http.origins` allows it to read the response."""
        if origin is None:
            return None  # not a browser, or a simple GET of a page
        page = read_origin(origin.decode("latin-1"))
        if page in self._origins:
            return origin
        asked = read_authority((host or b"").decode("latin-1"))
        if page is None or asked is None or not page.is_at(asked):
            raise foreign_origin_error(origin)
        return None

    def needs_login(self, scope: Scope) -> bool:
        """Return whether the user who sends this request has to sign in."""
        return self.credentials.needed or not self.is_local(scope)

    async def authenticate(self, authorization: bytes | None, scope: Scope) -> Principal:
        """Return the caller of a request. Verifies new JWTs. Raises HttpError."""
        if self._looked is None:  # requests in the same turn of the loop share one read
            self._looked = self.credentials.stored_tokens()
            asyncio.get_running_loop().call_soon(setattr, self, "_looked", None)
        try:
            return self.identify(authorization, scope, self._looked)
        except HttpError:
            if (found := await self.verify(authorization, scope)) is None:
                raise
            return found

    async def verify(self, authorization: bytes | None, scope: Scope) -> Principal | None:
        """Verify a JWT, so that `identify` knows it. Return its principal, or None if this isn't a JWT.

        Raises HttpError.
        """
        try:
            return await self.credentials.verify(authorization)
        except JwtError as error:
            raise refusal(self.http, scope, error) from None
        except HttpError as refused:
            raise self._with_challenge(refused, authorization, scope) from None

    def identify(self, authorization: bytes | None, scope: Scope, stored: "TokenView | None" = None) -> Principal:
        """Return the caller of a request, without verifying new JWTs. Raises HttpError (401, 403)."""
        try:
            return self.credentials.identify(authorization, stored, partial(self.is_local, scope))
        except HttpError as refused:
            raise self._with_challenge(refused, authorization, scope) from None

    def is_local(self, scope: Scope) -> bool:
        """Return whether a request comes directly from this machine: without a proxy, and not from a foreign page."""
        head, peer = scope[HEAD], scope.get("client")
        named = read_authority(head.get(b"host", b"").decode("latin-1"))
        by_proxy = [name for name in head if name.startswith(_PROXY_HEADERS)]
        if by_proxy or named is None or not is_loopback_name(named.name):
            return False
        page = None
        if b"origin" in head and (origin := self.check_origin(head[b"origin"], head.get(b"host"))) is not None:
            page = read_origin(origin.decode("latin-1"))
        return bool(peer) and is_loopback_name(str(peer[0])) and (page is None or is_loopback_name(page.name))

    def _with_challenge(self, refused: HttpError, authorization: bytes | None, scope: Scope) -> HttpError:
        """Return the error with a header that tells clients where to get a token."""
        if self.credentials.jwt is not None:
            error = None if authorization is None else JwtError("invalid_token", str(refused))
            refused.headers = [challenge(self.http, scope, error)]
        return refused

    def _is_ours(self, named: Authority, server: str | None) -> bool:
        if named in self._further or Authority(named.name, None) in self._further:
            return True
        if named.port not in (None, self._port):
            return False
        # When listening on all addresses: the address that the client connected to can't be a rebound name.
        return named.name in self._own or (self._everywhere and server is not None and named.name == _name(server))


def _name(host: str) -> str | None:
    """Return a configured or bound host in the spelling of `Authority`."""
    bare = host.partition("%")[0]  # a zone is local to this machine and never in a Host header
    named = read_authority(f"[{bare}]" if ":" in bare else bare)
    return named.name if named else None


# CORS, for origins in `http.origins`

_REQUEST_METHOD = b"access-control-request-method"
_EXPOSED = (
    b"mcp-session-id, mcp-protocol-version, www-authenticate, etag, location, content-location, retry-after, "
    b"x-request-id, onetool-replica"
)


def is_preflight(scope: Scope) -> bool:
    return scope["method"] == "OPTIONS" and any(name == _REQUEST_METHOD for name, _ in scope["headers"])


async def answer_preflight(scope: Scope, origin: bytes, send: Send) -> None:
    asked = b", ".join(value for name, value in scope["headers"] if name == b"access-control-request-headers")
    headers = [
        *cors_headers(origin),
        (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
        (b"access-control-allow-headers", asked or b"*"),
        (b"access-control-max-age", b"600"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def cors_headers(origin: bytes) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    )
