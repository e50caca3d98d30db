"""`JwtVerifier` says who a JWT belongs to, and what its scopes and claims allow.

    principal = verifier.known(token) or await verifier.verify(token)

A JWT that was verified is remembered by its hash, until it expires or its key is no longer one of the issuer's.

The public keys of the issuer, its JWKS, are fetched when the first is needed, and kept. They are fetched again when
they are five minutes old, and when a JWT names one that is not among them: at most once in half a minute, however many
ask. All who need that answer wait for the same one, and not for long. While the issuer is away, the keys of before
count for an hour.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from math import ceil, inf
from time import monotonic, time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from onetool.config.model import read_rate
from onetool.core.errors import ToolFailure
from onetool.core.json_data import JsonTooCostlyError
from onetool.core.principal import ROLES, Principal, Rate
from onetool.http.allowed_hosts import AllowedHosts, HostRule
from onetool.http.body import json_of
from onetool.http.errors import RequestRefusedError, in_short
from onetool.http.url import HttpRequest, Url, parse_url
from onetool.interfaces.http.jwt_token import ExpectedClaims, JwtError, SignedToken, invalid, read_token

if TYPE_CHECKING:
    from onetool.config.model import Grant, JwtConfig
    from onetool.http.client import HttpClient

log = logging.getLogger("onetool")

MOST_REMEMBERED = 10_000
MOST_TRIED = 8  # keys, for a JWT that does not say which one it is
MAX_AGE_S = 300.0
OLDEST_S = 3600.0
PAUSE_S = 30.0  # between two fetches
WAIT_S = 5.0  # of a request, for keys
FETCH_S = 5.0
LARGEST = 256 * 1024  # bytes
MOST_KEYS = 100

Fetch = Callable[[str], Awaitable[Any]]
"""Gives the JSON at an address; JwksError says why there is none."""


class SigningKey(NamedTuple):
    """A public key that signatures are checked with, and the algorithms that it is for."""

    kid: str | None
    algorithms: frozenset[str]
    public: Any
    identity: tuple[str, ...]  # its numbers: what makes it this key

    def has_signed(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        return algorithm in self.algorithms and _algorithms()[algorithm].verify(signed, self.public, signature)


class _Known(NamedTuple):
    principal: Principal
    ends: float
    key: tuple[str, ...]


class JwtVerifier:
    """The JWTs of one issuer. It is made anew when the config has changed; `is_for` says whether it has."""

    def __init__(
        self,
        config: "JwtConfig",
        url: str | None,
        fetch: Fetch,
        clock: Callable[[], float] = time,
        now: Callable[[], float] = monotonic,
    ) -> None:
        """`url` is http.url. `clock` is the time of day, `now` one that nobody sets."""
        self._config, self._url, self._clock = config, url, clock
        self._expected = ExpectedClaims(config.issuer, audiences(config, url), config.leeway_s)
        self._grants = Grants(config)
        self._jwks = Jwks(config, fetch, now)
        self._jwks.on_fetched = self._forget
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    def is_for(self, config: "JwtConfig | None", url: str | None) -> bool:
        return (config, url) == (self._config, self._url)

    def known(self, token: bytes) -> Principal | None:
        """Who this is, if it was verified before and still counts."""
        digest = sha256(token).digest()
        found = self._known.get(digest)
        if found is None or not self._jwks.are_usable():
            return None
        if self._clock() >= found.ends:
            del self._known[digest]
            return None
        self._known.move_to_end(digest)
        return found.principal

    async def verify(self, token: bytes) -> Principal:
        """Who this is. JwtError says why it is nobody."""
        if principal := self.known(token):
            return principal
        read = read_token(token, self._config.algorithms)
        ends = self._expected.check(read, self._clock())
        key = await self._signed_by(read)
        principal = self._grants.principal(read.claims, ends)
        self._known[sha256(token).digest()] = _Known(principal, ends, key.identity)
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return principal

    async def _signed_by(self, token: SignedToken) -> SigningKey:
        keys = await self._jwks.find(token.kid, token.algorithm)
        if not keys:
            raise invalid("it is signed with a key that its issuer does not publish for this algorithm (kid)")
        key = _signer(token, keys)
        if key is None and token.kid is None and await self._jwks.renew():  # it may be a newer one's
            key = _signer(token, await self._jwks.find(None, token.algorithm))
        if key is None:
            raise invalid("its signature is wrong")
        return key

    def _forget(self) -> None:
        """Those whose key has gone."""
        there = {key.identity for key in self._jwks.keys}
        for digest in [digest for digest, one in self._known.items() if one.key not in there]:
            del self._known[digest]


def _signer(token: SignedToken, keys: list[SigningKey]) -> SigningKey | None:
    tried = keys[:MOST_TRIED]
    return next((key for key in tried if key.has_signed(token.algorithm, token.signed, token.signature)), None)


def audiences(config: "JwtConfig", url: str | None) -> frozenset[str]:
    """Whom a JWT for this server may name: `audience`, and its address, or that of /mcp below it, with a slash at the
    end or without."""
    named = config.audience or ()
    found = {named} if isinstance(named, str) else {*named}
    for address in _spellings(url) if url else ():
        bare = address.rstrip("/")
        found |= {bare, f"{bare}/", f"{bare}/mcp", f"{bare}/mcp/"}
    return frozenset(found)


def _spellings(url: str) -> set[str]:
    """As it is written, and as libraries write it: the host in lower case, no port that goes without saying."""
    try:
        return {url, parse_url(url).text}
    except RequestRefusedError:
        return {url}


# What scopes and claims allow


class Grants:
    """What the config gives to those who have a scope or a claim."""

    def __init__(self, config: "JwtConfig") -> None:
        self._config = config

    def principal(self, claims: dict[str, Any], ends: float) -> Principal:
        """Return what the matching grants allow together: highest role and rate, all tools. JwtError if none does."""
        granted = list(self._matching(claims))
        if not granted:
            raise _insufficient(self._config)
        name = f"{self._config.issuer}|{claims['sub']}"
        patterns = [one.tools for one in granted]
        every = tuple(dict.fromkeys(name for tools in patterns for name in tools or ()))
        return Principal(
            name=name,
            owner=name,
            role=ROLES[max(ROLES.index(one.role) for one in granted)],
            tools=None if None in patterns else every,
            rate=_highest([read_rate(one.rate) if one.rate else None for one in granted]),
            expires=ends,
            whole=any(one.whole for one in granted),
        )

    def _matching(self, claims: dict[str, Any]) -> "Iterator[Grant]":
        scopes = {*_scopes(claims.get("scope")), *_scopes(claims.get("scp"))}
        for scope, grant in self._config.scopes.items():
            if scope in scopes:
                yield grant
        for claim, by_value in self._config.claims.items():
            values = _values(_claim(claims, claim))
            for value, grant in by_value.items():
                if value in values:
                    yield grant


def _scopes(found: Any) -> list[str]:
    """A list, or a text with spaces between them."""
    return found.split(" ") if isinstance(found, str) else _values(found)


def _claim(claims: dict[str, Any], name: str) -> Any:
    """A claim by its name, or inside of others: `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _values(found: Any) -> list[str]:
    """The texts that a claim has. Numbers and booleans are none: nobody knows how they would be written."""
    if isinstance(found, str):
        return [found]
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _highest(rates: list[Rate | None]) -> Rate | None:
    """None is no limit, so nothing is higher."""
    limits = [rate for rate in rates if rate is not None]
    return max(limits, key=lambda rate: rate.count / rate.seconds) if len(limits) == len(rates) else None


def _insufficient(config: "JwtConfig") -> JwtError:
    if config.scopes:
        hint = f"ask {config.issuer} for one of these scopes: {', '.join(config.scopes)}"
    else:
        hint = f"it needs a claim that http.jwt.claims names: {', '.join(config.claims)}"
    return JwtError("insufficient_scope", f"This JWT allows nothing here; {hint}.")


# The keys of the issuer


class JwksError(Exception):
    """The keys can't be had, for a reason that is for the log: it is nothing that a client could change."""


class Jwks:
    """The keys of one issuer. `on_fetched` is called when they have come anew. For one event loop at a time."""

    def __init__(self, config: "JwtConfig", fetch: Fetch, now: Callable[[], float] = monotonic) -> None:
        self._config, self._fetch, self._now = config, fetch, now
        _algorithms()  # imported now: that takes a while, and nobody waits yet
        self.keys: tuple[SigningKey, ...] = ()
        self.on_fetched: Callable[[], None] = lambda: None
        self._fetched, self._tried = -inf, -inf
        self._has_failed = False
        self._task: asyncio.Task[None] | None = None

    def are_usable(self) -> bool:
        """Whether there are keys, and none too old. Those that should be fetched again are, meanwhile."""
        age = self._now() - self._fetched
        if age > MAX_AGE_S:
            with suppress(RuntimeError):  # no loop runs here
                self._begin()
        return age <= OLDEST_S

    async def find(self, kid: str | None, algorithm: str) -> list[SigningKey]:
        """The keys with this name, or all if it is None, that are for this algorithm."""
        if not self.are_usable():
            await self.renew()
        found = self._fitting(kid, algorithm)
        return found or (self._fitting(kid, algorithm) if await self.renew() else found)

    async def renew(self) -> bool:
        """Fetch the keys again, unless that was done a moment ago. Gives whether they have come meanwhile."""
        before = self._fetched
        task = self._begin()
        if task is not None:
            await asyncio.wait({task}, timeout=WAIT_S)
        if self._has_failed or (task is not None and not task.done()):
            left = max(1, ceil(self._tried + PAUSE_S - self._now()))
            message = f"The keys of {self._config.issuer} can't be fetched now: try again in {left} s."
            raise JwtError("temporarily_unavailable", message, left)
        return self._fetched > before

    def _fitting(self, kid: str | None, algorithm: str) -> list[SigningKey]:
        return [key for key in self.keys if (kid is None or key.kid == kid) and algorithm in key.algorithms]

    def _begin(self) -> "asyncio.Task[None] | None":
        """The fetch that runs, or a new one if the last one is long enough ago."""
        loop = asyncio.get_running_loop()
        if self._task is not None and not self._task.done() and self._task.get_loop() is loop:
            return self._task
        if self._now() - self._tried < PAUSE_S:
            return None
        self._tried = self._now()
        self._task = loop.create_task(self._renewed())
        return self._task

    async def _renewed(self) -> None:
        try:
            address = self._config.jwks or await _jwks_address(self._config.issuer, self._fetch)
            keys = read_keys(await self._fetch(address))
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait have to hear that there are no keys
            self._has_failed = True
            log.warning("The keys of %s can't be fetched: %s", self._config.issuer, in_short(str(error), 500))
            return
        self._has_failed, self._fetched = False, self._now()
        self.keys = keys
        self.on_fetched()


# Where they come from


def json_fetcher(client: "HttpClient", config: "JwtConfig") -> Fetch:
    """Fetches JSON with our own client. Redirects are not followed. Addresses of this machine and its network are for
    the hosts that the config names: metadata can't lead there from elsewhere."""
    named = {parse_url(address).host for address in (config.issuer, config.jwks) if address}

    async def fetch(address: str) -> Any:
        try:
            url = parse_url(address)
            if not url.is_unseen:
                raise JwksError(f"{address} must begin with https://")
            return await _fetch_json(client, url, url.host in named)
        except RequestRefusedError as refusal:
            hint = "if that is meant, name it in http.jwt.jwks"
            raise JwksError(
                f"{address} is no URL, or leads to this machine or its network ({refusal}); {hint}"
            ) from None
        except ToolFailure as failure:
            raise JwksError(str(failure)) from None

    return fetch


async def _fetch_json(client: "HttpClient", url: Url, allow_private: bool) -> Any:
    host = url.host if ":" not in url.host else f"[{url.host}]"
    hosts = AllowedHosts([HostRule(f"{host}:{url.port}", allow_private)])
    request = HttpRequest("GET", url, [("Accept", "application/json, application/jwk-set+json")], b"")
    answer = await client.send(request, hosts, timeout=FETCH_S, max_bytes=LARGEST)
    if answer.status != 200:
        raise JwksError(f"{url.text} answered {answer.status}")
    try:
        return json_of(answer.body)
    except (msgspec.MsgspecError, JsonTooCostlyError, UnicodeDecodeError):
        raise JwksError(f"the answer of {url.text} is no JSON") from None


def metadata_urls(issuer: str) -> list[str]:
    """Where an issuer's metadata may be: as RFC 8414 says, and as OpenID Connect does."""
    url = parse_url(issuer)
    origin, path = f"{url.scheme}://{url.authority}", url.target.rstrip("/")
    found = [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}{path}/.well-known/openid-configuration",
        f"{origin}/.well-known/openid-configuration{path}",
    ]
    return list(dict.fromkeys(found))


async def _jwks_address(issuer: str, fetch: Fetch) -> str:
    failures: list[str] = []
    for address in metadata_urls(issuer):
        try:
            found = await fetch(address)
        except JwksError as error:
            failures.append(str(error))
            continue
        if not isinstance(found, dict) or found.get("issuer") != issuer:
            raise JwksError(f"{address} is the metadata of another issuer: http.jwt.issuer has to be what it says")
        if isinstance(where := found.get("jwks_uri"), str):
            return where
        failures.append(f"{address} names no jwks_uri")
    raise JwksError("; ".join(failures))


# How they are read


_RSA = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"))
_EDDSA = frozenset(("EdDSA",))
_ALGORITHMS = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): frozenset(("ES256",)),
    ("EC", "P-384"): frozenset(("ES384",)),
    ("EC", "P-521"): frozenset(("ES512",)),
    ("OKP", "Ed25519"): _EDDSA,
    ("OKP", "Ed448"): _EDDSA,
}
_RSA_BITS = (2048, 16384)


def read_keys(data: Any) -> tuple[SigningKey, ...]:
    """The keys of a JWKS that are for signatures. Others, and those that nobody understands, are left out."""
    listed = data.get("keys") if isinstance(data, dict) else None
    if not isinstance(listed, list):
        raise JwksError("the answer is no JWKS: it has no list of keys")
    if len(listed) > MOST_KEYS:
        raise JwksError(f"the JWKS has more than {MOST_KEYS} keys")
    return tuple(filter(None, map(_read_key, listed)))


def _read_key(jwk: Any) -> SigningKey | None:
    if not isinstance(jwk, dict) or "d" in jwk:  # whoever publishes a private key has let everybody sign
        return None
    names = [jwk.get(name) for name in ("kty", "crv", "alg", "use", "kid")]
    if not all(name is None or isinstance(name, str) for name in names):
        return None
    kind, curve, algorithm, use, kid = names
    fitting = _ALGORITHMS.get((kind, None if kind == "RSA" else curve), frozenset[str]())
    if algorithm is not None:
        fitting &= {"EdDSA" if algorithm in ("Ed25519", "Ed448") else algorithm}
    operations = jwk.get("key_ops", ["verify"])
    is_for_signatures = use in (None, "sig") and isinstance(operations, list) and "verify" in operations
    if not fitting or not is_for_signatures or (public := _public_key(jwk)) is None:
        return None
    return SigningKey(
        kid, fitting, public, tuple(str(jwk.get(name, "")) for name in ("kty", "crv", "n", "e", "x", "y"))
    )


def _public_key(jwk: dict[str, Any]) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
    from jwt.exceptions import PyJWTError

    kind = jwk["kty"]
    readers = {"RSA": RSAAlgorithm.from_jwk, "EC": ECAlgorithm.from_jwk, "OKP": OKPAlgorithm.from_jwk}
    try:
        key: Any = readers[kind](jwk)
    except (PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, KeyError, AttributeError):
        return None
    least, most = _RSA_BITS
    return key if kind != "RSA" or least <= key.key_size <= most else None


def _algorithms() -> dict[str, Any]:
    if not _loaded:
        from jwt.algorithms import get_default_algorithms

        _loaded.update(get_default_algorithms())
    return _loaded


_loaded: dict[str, Any] = {}
