"""Who may talk to this server at all: Host, Origin and token, decided from a request's head alone.

Host comes first. A page of an enemy whose name was made to lead here (DNS rebinding) is same-origin to a browser, but
it can't change the Host that the browser sends: the enemy's own name, which is none of ours.
"""

import hmac
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

from onetool.interfaces.asgi import Headers, Refused
from onetool.interfaces.http.authority import Authority, read_authority, read_origin
from onetool.interfaces.http.foreign import LONGEST, foreign
from onetool.interfaces.http.listen import WILDCARDS, Place

if TYPE_CHECKING:
    from onetool.config.model import Http

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SHORTEST_TOKEN = 16  # characters
TWICE = b"\0"  # what stands for a header that came twice: no header can have this value

_WHO = (b"host", b"origin", b"sec-fetch-site", b"authorization")
_WHAT = (b"content-type", b"content-length", b"transfer-encoding")
_WANTED = frozenset(_WHO + _WHAT)
_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([^\s]+) *")


def lack_of_token(http: "Http") -> str | None:
    """What a server lacks that other machines can reach: there, a short token is found by trying."""
    if http.token is None:
        return "a token"
    return None if len(http.token) >= SHORTEST_TOKEN else f"a token of at least {SHORTEST_TOKEN} characters"


def wanted(headers: Headers) -> dict[bytes, bytes]:
    """The headers that decide, in one pass."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _WANTED:
            found[name] = TWICE if name in found else value
    return found


class Rules:
    """The rules of one server. Made when it starts and after a reload, then only asked."""

    def __init__(self, http: "Http", place: Place) -> None:
        own = {*LOOPBACK, *filter(None, (_name(name) for name in (place.host, *place.addresses)))} - set(WILDCARDS)
        self._own = own
        self._port = place.port
        self._everywhere = not set(WILDCARDS).isdisjoint(place.addresses)
        self._further = frozenset(filter(None, map(read_authority, http.hosts)))
        self._origins = frozenset(filter(None, (read_origin(origin.rstrip("/")) for origin in http.origins)))
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
        page = read_origin(origin.decode("latin-1"))
        if page in self._origins:
            return origin
        asked = read_authority((host or b"").decode("latin-1"))
        if page is None or asked is None or not page.is_at(asked):
            raise foreign(origin)
        return None

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
