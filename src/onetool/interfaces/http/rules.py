"""Who may talk to this server at all: Host, Origin and token, decided from a request's head alone.

Host comes first. A page of an enemy whose name was made to lead here (DNS rebinding) is same-origin to a browser, but
it can't change the Host that the browser sends: the enemy's own name, which is none of ours.
"""

import hmac
import re
from collections.abc import Iterable
from hashlib import sha256
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from onetool.interfaces.asgi import Headers, Refused
from onetool.interfaces.http.listen import WILDCARDS, Place

if TYPE_CHECKING:
    from onetool.config.model import Http

LOOPBACK = ("localhost", "127.0.0.1", "::1")
DEFAULT_PORTS = (80, 443)
SHORTEST_TOKEN = 16  # characters
LONGEST = 100  # characters of a header that an answer repeats
TWICE = b"\0"  # what stands for a header that came twice: no header can have this value

_WANTED = frozenset((b"host", b"origin", b"authorization", b"content-length", b"transfer-encoding"))
_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s\[\]:/@?#\\]+)(?::([0-9]{1,5}))?")
_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([^\s]+) *")


def lack_of_token(http: "Http") -> str | None:
    """What a server lacks that other machines can reach: there, a short token is found by trying."""
    if http.token is None:
        return "a token"
    return None if len(http.token) >= SHORTEST_TOKEN else f"a token of at least {SHORTEST_TOKEN} characters"


class Authority(NamedTuple):
    """A host's name or address in its one spelling, and the port where one was given."""

    name: str
    port: int | None


def wanted(headers: Headers) -> dict[bytes, bytes]:
    """The headers that decide, in one pass."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _WANTED:
            found[name] = TWICE if name in found else value
    return found


def read_authority(text: str) -> Authority | None:
    """`Example.com.:80` -> example.com and 80; None when it is no host."""
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


class Rules:
    """The rules of one server. Made when it starts and after a reload, then only asked."""

    def __init__(self, http: "Http", place: Place) -> None:
        own = {*LOOPBACK, *filter(None, (_name(name) for name in (place.host, *place.addresses)))} - set(WILDCARDS)
        self._own = own
        self._port = place.port
        self._everywhere = not set(WILDCARDS).isdisjoint(place.addresses)
        self._further = frozenset(filter(None, map(read_authority, http.hosts)))
        self._origins = frozenset(origin.lower().rstrip("/") for origin in http.origins)
        self._usual = frozenset(_spelt(own, place.port))  # answered without a closer look
        self._token = _digest(http.token) if http.token else None
        self.principal = sha256(b"principal:" + http.token.encode()).hexdigest()[:16] if http.token else ""

    def check_host(self, host: bytes | None, server: str | None = None) -> None:
        """Is it us who is meant? `server` is the address that the client connected to."""
        if host in self._usual:
            return
        if host is None or host is TWICE:
            raise Refused(421, "bad_host", "A request needs one Host header, and no more than one.")
        named = read_authority(host.decode("latin-1"))
        if named is None or not self._is_ours(named, server):
            shown = _shown(host)
            hint = "add it to http.hosts in the config of `onetool serve` if it is meant to be one"
            raise Refused(421, "bad_host", f"{shown} is not a name of this server; {hint}.")

    def check_origin(self, origin: bytes | None, host: bytes | None) -> bytes | None:
        """May a page from there talk to us? Gives the origin back when the config allows it to read the answer too."""
        if origin is None:
            return None  # no browser, or a page that asks for nothing but a look
        text = origin.decode("latin-1").lower()
        if text in self._origins:
            return origin
        scheme, _, rest = text.partition("://")
        page = read_authority(rest) if scheme in ("http", "https") else None
        if page is not None and (page.name in LOOPBACK or _same(page, host)):
            return None
        hint = "add it to http.origins in the config of `onetool serve` if they should"
        raise Refused(403, "bad_origin", f"Pages of {_shown(origin)} may not use this server; {hint}.")

    def check_token(self, authorization: bytes | None) -> str:
        """Who asks: the principal. Nobody in particular when no token is configured."""
        if self._token is None:
            return ""
        given = _BEARER.fullmatch(authorization or b"")
        # Digests, so that not even the length of the token shows in the time that the comparison takes.
        if given is None or not hmac.compare_digest(_digest(given[1]), self._token):
            what = "This server needs its token" if authorization is None else "This is not the token of this server"
            message = f"{what}: send it as `Authorization: Bearer …`; it is http.token in the config of the server."
            raise Refused(401, "unauthorized", message, [(b"www-authenticate", b'Bearer realm="onetool"')])
        return self.principal

    def _is_ours(self, named: Authority, server: str | None) -> bool:
        if named in self._further or Authority(named.name, None) in self._further:
            return True
        if named.port not in (None, self._port):
            return False
        # Listening everywhere: an address that the client has really connected to is no name that could be rebound.
        return named.name in self._own or (self._everywhere and server is not None and named.name == _name(server))


def _same(page: Authority, host: bytes | None) -> bool:
    """Same-origin: the page came from the host that it now talks to. TLS may end in front of us: no word on schemes."""
    asked = read_authority((host or b"").decode("latin-1"))
    return asked is not None and page.name == asked.name and _port(page) == _port(asked)


def _port(authority: Authority) -> int | None:
    return None if authority.port in DEFAULT_PORTS else authority.port


def _name(host: str) -> str | None:
    """A configured or bound host in the spelling of `Authority`."""
    bare = host.partition("%")[0]  # a zone is this machine's own business, and is in no Host header
    named = read_authority(f"[{bare}]" if ":" in bare else bare)
    return named.name if named else None


def _spelt(names: Iterable[str], port: int) -> Iterable[bytes]:
    for name in names:
        host = f"[{name}]" if ":" in name else name
        yield host.encode()
        yield f"{host}:{port}".encode()


def _digest(token: str | bytes) -> bytes:
    return sha256(token.encode() if isinstance(token, str) else token).digest()


def _shown(value: bytes) -> str:
    return repr(value[:LONGEST].decode("latin-1"))
