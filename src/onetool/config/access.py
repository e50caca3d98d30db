"""The keys of the config about who may call `onetool serve`, and about the audit log.

http:
  tokens:
    - {name: ci, hash: "sha256:…", tools: [time.*, web.*], role: call, rate: 600/min, expires: 2027-01-01}
  jwt:
    issuer: https://id.example.com
    audience: onetool
    jwks: https://id.example.com/jwks.json
    scopes: {"tools:call": {tools: [web.*], role: call}}
audit: required
"""

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from onetool.core.principal import Rate, Role

Name = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]
OWN_TOKEN = "http.token"  # noqa: S105 - who calls with it is shown by this name
Problem = tuple[str, str, str | None]

_TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_RATE = re.compile(r"([1-9][0-9]{0,8})/(s|sec|min|h|hour|day)")
_SECONDS = {"s": 1, "sec": 1, "min": 60, "h": 3600, "hour": 3600, "day": 86400}
_PATTERN = re.compile(r"[^\s,]+")


def read_rate(text: str) -> Rate | None:
    """`600/min` -> 600 in 60 seconds; None if it is no rate."""
    match = _RATE.fullmatch(text)
    return Rate(int(match[1]), _SECONDS[match[2]]) if match else None


def token_name_problem(name: str) -> str | None:
    """Why a token can't have this name. `|` and `:` are in names of others: of JWTs, and of a web app's users."""
    if name == OWN_TOKEN:
        return f"{OWN_TOKEN} is the name of the token that stands in the config by itself"
    if _TOKEN_NAME.fullmatch(name):
        return None
    return f"{name[:70]!r} is no name: letters, digits, dots, dashes and underscores, at most 64"


class TokenConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A named token. Only its hash is known here: `onetool tokens add` makes both."""

    name: Name
    hash: Name
    tools: tuple[Name, ...] | None = None  # names and patterns of tools; None: all
    role: Role = "call"
    rate: Name | None = None
    expires: Name | None = None

    def problems(self) -> Iterator[Problem]:
        if problem := token_name_problem(self.name):
            yield "name", problem, None
        if not _HASH.fullmatch(self.hash):
            hint = "`onetool tokens add NAME --print` makes a token, and shows the line for the config"
            yield "hash", "must be sha256: and 64 hexadecimal digits", hint
        yield from _limit_problems(self.tools, self.rate)
        if self.expires is not None and not _is_time(self.expires):
            yield "expires", f"{self.expires!r} is no date", "write 2027-01-01, or 2027-01-01T12:00:00Z"


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What those may do who have a scope or a claim in their JWT."""

    tools: tuple[Name, ...] | None = None
    role: Role = "call"
    rate: Name | None = None

    def problems(self) -> Iterator[Problem]:
        yield from _limit_problems(self.tools, self.rate)


Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures with a public key. HMAC is not among them: who checks such a signature could make it."""


class JwtConfig(msgspec.Struct, frozen=True, kw_only=True):
    """JWTs of an authorization server that are accepted beside tokens. Without a matching scope or claim: nothing."""

    issuer: Name
    audience: Name | tuple[Name, ...] | None = None  # None: http.url, which is accepted in any case
    jwks: Name | None = None  # None: the issuer's metadata says where its keys are
    algorithms: tuple[Algorithm, ...] = ("RS256", "ES256", "EdDSA")
    leeway_s: Annotated[float, Meta(ge=0, le=300)] = 30.0  # how far the issuer's clock and ours may differ
    scopes: dict[str, Grant] = {}
    claims: dict[str, dict[str, Grant]] = {}  # claim -> value -> grant: {groups: {tool-admins: {role: admin}}}

    def problems(self) -> Iterator[Problem]:
        for field, url in (("issuer", self.issuer), ("jwks", self.jwks)):
            if url is not None and not _is_safe_url(url):
                yield field, f"{url!r} must begin with https://", "http:// is for this machine alone"
        if "|" in self.issuer:
            yield "issuer", f"{self.issuer!r} has a |, which stands between issuer and subject in names", None
        if not self.algorithms:
            yield "algorithms", "there is none, so that no JWT would be accepted", "remove the key"
        if not self.scopes and not self.claims:
            yield "scopes", "there is none, so that no JWT could do anything", 'such as {"tools:call": {role: call}}'


class AuditConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The audit log of `onetool serve`. `audit: required` alone will do."""

    shorthand: ClassVar[str] = "mode"

    mode: Literal["usual", "required", "none"] = "usual"  # required: where it can't be written, nothing is called
    retention_days: Count = 90
    max_mb: Count = 64  # of one file; then a new one begins


def _limit_problems(tools: tuple[str, ...] | None, rate: str | None) -> Iterator[Problem]:
    for one in tools or ():
        if not _PATTERN.fullmatch(one):
            yield "tools", f"{one!r} is no name of a tool and no pattern", "write time.now, or time.*"
    if rate is not None and read_rate(rate) is None:
        yield "rate", f"{rate!r} is no rate", "write a number and a time: 600/min, 10/s, 5000/day"


def _is_time(text: str) -> bool:
    from onetool.core.text import read_time  # which loads the calendar

    return read_time(text) is not None


def _is_safe_url(url: str) -> bool:
    host = r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?(/|$)"
    return url.startswith("https://") or re.match("http://" + host, url) is not None
