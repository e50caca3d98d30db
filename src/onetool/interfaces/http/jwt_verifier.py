"""`JwtVerifier` checks JWTs with PyJWT, and returns the subject with the rights of its scopes and claims.

    principal = verifier.known(token) or await verifier.verify(token)

Anyone can send a JWT, so it is not trusted before its signature is checked. No message repeats a part of the JWT.

A verified JWT is cached by its hash, until it expires or the issuer no longer publishes its key.

The issuer's public keys, its JWKS, are fetched when the first key is needed, and cached. They are fetched again when
they are five minutes old, and when none of them matches a JWT: at most once in 30 seconds. All requests that need the
keys wait briefly for the same fetch. While the issuer can't be reached, cached keys are used for up to an hour.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from math import ceil, inf
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm

from onetool.config.model import read_rate
from onetool.core.json_data import JsonTooCostlyError
from onetool.core.principal import ROLES, Principal
from onetool.core.text import LAST_SECOND, utc_text
from onetool.http.allowed_hosts import AllowedHosts, HostRule
from onetool.http.body import json_of
from onetool.http.errors import RequestRefusedError, in_short
from onetool.http.url import HttpRequest, parse_url
from onetool.interfaces.http.jwt_token import JwtError, invalid

if TYPE_CHECKING:
    from onetool.config.model import JwtConfig
    from onetool.http.client import HttpClient

log = logging.getLogger("onetool")
MAX_TOKEN = 16 * 1024  # bytes
MAX_NAME = 256  # characters of a subject or of the name of a key
MAX_REMEMBERED = 10_000
MAX_TRIED = 8  # keys, for a JWT without a key id
MAX_AGE_S = 300.0
MAX_AGE_AWAY_S = 3600.0  # while the issuer can't be reached
PAUSE_S = 30.0  # between two fetches
WAIT_S = 5.0  # for which a request waits for keys
FETCH_S = 5.0
MAX_JWKS = 256 * 1024  # bytes

_UNSUPPORTED_HEADERS = ("crit", "b64", "enc", "zip", "cty")  # each changes the meaning of the rest
_ID_TOKEN_CLAIMS = ("nonce", "at_hash", "c_hash", "s_hash")
_OTHER_TOKENS = ("id", "refresh", "logout", "offline")  # Keycloak puts them into the claim `typ`
Fetch = Callable[[str], Awaitable[Any]]
"""Fetches the JSON at an address. Its exceptions tell the cause of a failure."""


class JwtVerifier:
    """A verifier for JWTs of one issuer. A changed config needs a new one; `is_for` compares the config."""

    def __init__(
        self,
        config: "JwtConfig",
        url: str | None,
        fetch: Fetch,
        clock: Callable[[], float] = time,
        now: Callable[[], float] = monotonic,
    ) -> None:
        """Verify JWTs of the issuer. `url` is http.url. `clock` is the time of day, `now` a monotonic clock."""
        self._config, self._url, self._clock = config, url, clock
        self._audiences = sorted(audiences(config, url))
        self._jwks = Jwks(config, fetch, now)
        self._known: OrderedDict[bytes, tuple[Principal, KeyId]] = OrderedDict()

    def is_for(self, config: "JwtConfig | None", url: str | None) -> bool:
        return (config, url) == (self._config, self._url)

    def known(self, token: bytes) -> Principal | None:
        """Return the principal of a JWT that was verified before and is still valid; None otherwise."""
        digest = sha256(token).digest()
        if digest not in self._known or not self._jwks.are_usable():
            return None
        principal, key = self._known[digest]
        if (principal.expires or 0) <= self._clock() or key not in self._jwks.keys:
            del self._known[digest]
            return None
        self._known.move_to_end(digest)
        return principal

    async def verify(self, token: bytes) -> Principal:
        """Verify a JWT and return its principal. Raises JwtError."""
        if principal := self.known(token):
            return principal
        key, claims = await self._verified(token, read_token(token, self._config.algorithms))
        principal = granted(self._config, claims)
        self._known[sha256(token).digest()] = principal, key
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return principal

    async def _verified(self, token: bytes, header: dict[str, Any]) -> "tuple[KeyId, dict[str, Any]]":
        """Return the key that signed a JWT, and its claims. Fetches new keys if necessary."""
        for is_last in (False, True):
            fitting = self._jwks.find(header.get("kid"), header["alg"])
            for key in fitting[:MAX_TRIED]:
                with suppress(jwt.InvalidSignatureError):
                    return key, self._claims(token, self._jwks.keys[key].key, header["alg"])
            if is_last or not await self._jwks.renew():
                break
        unknown = f"it is signed with a key that {self._config.issuer} does not publish for this algorithm (kid)"
        raise invalid("its signature is wrong" if fitting else unknown)

    def _claims(self, token: bytes, key: Any, algorithm: str) -> dict[str, Any]:
        """Return the claims of a JWT. Raises InvalidSignatureError if this key has not signed it."""
        try:
            return jwt.decode(
                token,
                key,
                [algorithm],
                options={"require": ["exp"]},
                audience=self._audiences,
                issuer=self._config.issuer,
                leeway=self._config.leeway_s,
            )
        except jwt.InvalidSignatureError:
            raise
        except jwt.ExpiredSignatureError:
            why = f"it expired at {utc_text(_unverified(token)['payload']['exp'])}"
        except jwt.ImmatureSignatureError:
            claims = _unverified(token)["payload"]
            begins = utc_text(max(claims.get("nbf", 0), claims.get("iat", 0)))
            why = f"it is not valid before {begins} (nbf or iat): it was issued in the future, or a clock is wrong"
        except jwt.InvalidIssuerError:
            why = f"its issuer (iss) is not {self._config.issuer}"
        except jwt.InvalidAudienceError:
            ours = ", ".join(self._audiences) or "nothing, as neither http.jwt.audience nor http.url is set"
            why = f"it is for another server: its audience (aud) is not one of {ours}"
        except jwt.MissingRequiredClaimError as error:
            why = f"its claim {error.claim} is missing"
        except jwt.PyJWTError:  # for example, JSON too deep for the remaining stack
            why = "it is malformed"
        raise invalid(why)


def read_token(token: bytes, algorithms: tuple[str, ...]) -> dict[str, Any]:
    """Return the header of a JWT that may be an access token, without verifying it.

    Keys and addresses of keys in the header are ignored.
    """
    if len(token) > MAX_TOKEN:
        raise invalid(f"it has more than {MAX_TOKEN} bytes")
    try:
        read = _unverified(token)
    except jwt.PyJWTError:  # its message may quote the token
        why = "it is not a signed JWT: two JSON objects and a signature in Base64url, with dots between them"
        raise invalid(f"{why}; or its header has a kid that is not text, or crit") from None
    header, claims = read["header"], read["payload"]
    if header.get("alg") not in algorithms:
        raise invalid(f"its algorithm is not one that this server accepts: {', '.join(algorithms)}")
    if unsupported := [name for name in _UNSUPPORTED_HEADERS if name in header]:
        raise invalid(f"its header has {unsupported[0]}, which this server does not support")
    if "kid" in header and not _is_name(header["kid"]):
        raise invalid(f"its kid is not printable text of at most {MAX_NAME} characters")
    kind = header.get("typ", "jwt")
    kind = kind.lower().removeprefix("application/") if isinstance(kind, str) else kind
    if kind not in ("at+jwt", "jwt"):
        raise invalid("it is not an access token: its typ is neither at+jwt nor JWT")
    claimed = claims.get("typ")
    is_other = isinstance(claimed, str) and claimed.lower() in _OTHER_TOKENS
    if kind == "jwt" and (is_other or not claims.keys().isdisjoint(_ID_TOKEN_CLAIMS)):
        raise invalid("it is not an access token but another token, such as an ID token")
    if "cnf" in claims:
        raise invalid("it is bound to a key of its client (cnf), which this server can't check")
    for name in {"exp", "nbf", "iat"} & claims.keys():  # PyJWT accepts text and numbers of any size
        if type(claims[name]) not in (int, float) or not 0 <= claims[name] <= LAST_SECOND:
            raise invalid(f"its {name} is not a time: seconds since 1970, as a number")
    if not _is_name(claims.get("sub")):
        raise invalid(f"its subject (sub) is not printable text of at most {MAX_NAME} characters")
    return header


def _unverified(token: bytes) -> dict[str, Any]:
    return jwt.decode_complete(token, options={"verify_signature": False})


def _is_name(text: Any) -> bool:
    """Return whether `text` is printable: other text could imitate another name or break a log line."""
    return isinstance(text, str) and 0 < len(text) <= MAX_NAME and text.isprintable()


def audiences(config: "JwtConfig", url: str | None) -> set[str]:
    """Return the accepted audiences: `audience`, and the address of the server and of /mcp, with and without a trailing
    slash, both as written and as libraries normalize it (lower case, no default port)."""
    named = config.audience or ()
    found = {named} if isinstance(named, str) else {*named}
    written = {url} if url else set[str]()
    with suppress(RequestRefusedError):
        written |= {parse_url(address).text for address in written}
    for address in written:
        bare = address.rstrip("/")
        found |= {bare, f"{bare}/", f"{bare}/mcp", f"{bare}/mcp/"}
    return found


# Rights of scopes and claims


def granted(config: "JwtConfig", claims: dict[str, Any]) -> Principal:
    """Combine the matching grants: highest role and rate, all their tools. Raises JwtError if none matches."""
    scopes = {*_scopes(claims.get("scope")), *_scopes(claims.get("scp"))}
    grants = [grant for scope, grant in config.scopes.items() if scope in scopes]
    for claim, by_value in config.claims.items():
        values = _values(_claim(claims, claim))
        grants += [grant for value, grant in by_value.items() if value in values]
    if not grants:
        hint = f"it needs a claim of http.jwt.claims: {', '.join(config.claims)}"
        if config.scopes:
            hint = f"ask {config.issuer} for one of these scopes: {', '.join(config.scopes)}"
        raise JwtError("insufficient_scope", f"This JWT allows nothing here; {hint}.")
    name = f"{config.issuer}|{claims['sub']}"
    rates = [rate for one in grants if one.rate and (rate := read_rate(one.rate))]
    has_limit = len(rates) == len(grants)
    patterns = [one.tools for one in grants]
    every = tuple(dict.fromkeys(name for tools in patterns for name in tools or ()))
    return Principal(
        name=name,
        owner=name,
        role=ROLES[max(ROLES.index(one.role) for one in grants)],
        tools=None if None in patterns else every,
        rate=max(rates, key=lambda rate: rate.count / rate.seconds) if has_limit else None,
        expires=claims["exp"] + config.leeway_s,
        whole=any(one.whole for one in grants),
    )


def _scopes(found: Any) -> list[str]:
    """Return the scopes of a list or of space-separated text."""
    return found.split(" ") if isinstance(found, str) else _values(found)


def _claim(claims: dict[str, Any], name: str) -> Any:
    """Return a claim by its name, or a nested one by its path: `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _values(found: Any) -> list[str]:
    """Return the strings of a claim. Numbers and booleans are ignored, because their spelling is ambiguous."""
    if isinstance(found, str):
        return [found]
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


# The keys of the issuer

KeyId = tuple[bytes, str]
"""A JWK as published, and one of its algorithms: any change makes it another key."""


class Jwks:
    """The keys of one issuer. Belongs to one event loop at a time."""

    def __init__(self, config: "JwtConfig", fetch: Fetch, now: Callable[[], float] = monotonic) -> None:
        self._config, self._fetch, self._now = config, fetch, now
        self.keys: dict[KeyId, jwt.PyJWK] = {}
        self._fetched, self._tried = -inf, -inf
        self._has_failed = False
        self._task: asyncio.Task[None] | None = None

    def are_usable(self) -> bool:
        """Return whether there are keys that are not too old. Renews older keys in the background."""
        age = self._now() - self._fetched
        if age > MAX_AGE_S:
            with suppress(RuntimeError):  # no running loop
                self._begin()
        return age <= MAX_AGE_AWAY_S

    def find(self, kid: str | None, algorithm: str) -> list[KeyId]:
        """Return the keys with this key id, or all keys if it is None, for this algorithm."""
        if not self.are_usable():
            return []
        return [key for key, jwk in self.keys.items() if key[1] == algorithm and kid in (None, jwk.key_id)]

    async def renew(self) -> bool:
        """Fetch the keys again, unless they were fetched just now. Return whether they were renewed."""
        before = self._fetched
        task = self._begin()
        if task is not None:
            await asyncio.wait({task}, timeout=WAIT_S)
        if self._has_failed or (task is not None and not task.done()):
            left = max(1, ceil(self._tried + PAUSE_S - self._now()))
            message = f"The keys of {self._config.issuer} can't be fetched now: try again in {left} s."
            raise JwtError("temporarily_unavailable", message, left)
        return self._fetched > before

    def _begin(self) -> "asyncio.Task[None] | None":
        """Return the current fetch, or start one if the last fetch is long enough ago."""
        loop = asyncio.get_running_loop()
        if self._task is not None and not self._task.done() and self._task.get_loop() is loop:
            return self._task
        if self._now() - self._tried < PAUSE_S:
            return None
        self._tried = self._now()
        self._task = loop.create_task(self._renew_now())
        return self._task

    async def _renew_now(self) -> None:
        try:
            address = self._config.jwks or await _jwks_address(self._config.issuer, self._fetch)
            keys = read_keys(await self._fetch(address), self._config.algorithms)
        except Exception as error:  # noqa: BLE001 - waiting requests must learn of every failure
            self._has_failed = True
            log.warning("The keys of %s can't be fetched: %s", self._config.issuer, in_short(str(error), 500))
            return
        self._has_failed, self._fetched, self.keys = False, self._now(), keys


def read_keys(data: Any, algorithms: tuple[str, ...]) -> dict[KeyId, jwt.PyJWK]:
    """Return the signature keys of a JWKS. Other and invalid keys are ignored."""
    listed = data.get("keys") if isinstance(data, dict) else None
    if not isinstance(listed, list):
        raise ValueError("the response is not a JWKS: it has no list of keys")
    found: dict[KeyId, jwt.PyJWK] = {}
    for jwk in listed:
        if not isinstance(jwk, dict) or "d" in jwk:  # anybody can sign with a published private key
            continue
        operations = jwk.get("key_ops", ["verify"])
        if jwk.get("use") not in (None, "sig") or not isinstance(operations, list) or "verify" not in operations:
            continue
        meant = "EdDSA" if jwk.get("alg") in ("Ed25519", "Ed448") else jwk.get("alg")
        for algorithm in algorithms:
            with suppress(jwt.PyJWTError, UnsupportedAlgorithm, AttributeError, KeyError, TypeError, ValueError):
                key = jwt.PyJWK(jwk, algorithm)
                is_fit = meant in (None, algorithm) and isinstance(key.key_id, str | None)
                if is_fit and not key.Algorithm.check_key_length(key.Algorithm.prepare_key(key.key)):
                    found[msgspec.json.encode(jwk, order="sorted"), algorithm] = key
    return found


# Fetching


def json_fetcher(client: "HttpClient", config: "JwtConfig") -> Fetch:
    """Return a function that fetches JSON with our own client, without redirects. Only hosts named in the config may
    have addresses of this machine and its network, so that metadata from elsewhere can't lead there."""
    named = {parse_url(address).host for address in (config.issuer, config.jwks) if address}

    async def fetch(address: str) -> Any:
        try:
            url = parse_url(address)
            if not url.is_unseen:
                raise ValueError(f"{address} must begin with https://")
            hosts = AllowedHosts([HostRule(url.authority, url.host in named)])
            request = HttpRequest("GET", url, [("Accept", "application/json, application/jwk-set+json")], b"")
            answer = await client.send(request, hosts, timeout=FETCH_S, max_bytes=MAX_JWKS)
        except RequestRefusedError as refusal:
            hint = "if this is intended, set it in http.jwt.jwks"
            why = f"{address} is not a URL, or leads to this machine or its network ({refusal}); {hint}"
            raise ValueError(why) from None
        if answer.status != 200:
            raise ValueError(f"{address} answered {answer.status}")
        try:
            return json_of(answer.body)
        except (msgspec.MsgspecError, JsonTooCostlyError, UnicodeDecodeError) as error:
            raise ValueError(f"the response of {address} is not valid JSON: {error}") from None

    return fetch


def metadata_urls(issuer: str) -> list[str]:
    """Return the possible addresses of an issuer's metadata, of RFC 8414 and of OpenID Connect."""
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
        except Exception as error:  # noqa: BLE001 - the next address may work
            failures.append(str(error))
            continue
        if not isinstance(found, dict) or found.get("issuer") != issuer:
            raise ValueError(f"{address} is the metadata of another issuer: set http.jwt.issuer to that one")
        if isinstance(where := found.get("jwks_uri"), str):
            return where
        failures.append(f"{address} has no jwks_uri")
    raise ValueError("; ".join(failures))
