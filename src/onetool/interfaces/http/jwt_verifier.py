"""`JwtVerifier` says who a JWT belongs to, and what its scopes and claims allow.

    principal = verifier.known(token) or await verifier.verify(token)

A JWT that was verified is remembered by its hash, until it expires or its key is no longer one of the issuer's.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from hashlib import sha256
from time import monotonic, time
from typing import TYPE_CHECKING, Any, NamedTuple

from onetool.config.model import read_rate
from onetool.core.principal import ROLES, Principal, Rate
from onetool.http.errors import RequestRefusedError
from onetool.http.url import parse_url
from onetool.interfaces.http.jwks import Fetch, Jwks, SigningKey
from onetool.interfaces.http.jwt_token import ExpectedClaims, JwtError, SignedToken, invalid, read_token

if TYPE_CHECKING:
    from onetool.config.model import Grant, JwtConfig

MOST_REMEMBERED = 10_000
MOST_TRIED = 8  # keys, for a JWT that does not say which one it is


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
        """Highest role, all tools, highest rate of the grants that match. JwtError if none does."""
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
