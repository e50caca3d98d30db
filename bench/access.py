"""What it costs to find out who a request comes from: a named token, and a JWT that was verified before."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench.table import OURS, Row, row, show
from onetool.app.access import KnownTokens
from onetool.config.access import Grant, JwtConfig, TokenConfig
from onetool.config.model import HttpConfig
from onetool.interfaces.asgi import Scope, respond
from onetool.interfaces.http.app import HttpApp, Route
from onetool.interfaces.http.credentials import Credentials
from onetool.interfaces.http.jwt_verifier import JwtVerifier
from onetool.interfaces.http.listen import BoundAddress
from onetool.interfaces.http.rules import AccessRules
from onetool.services.access_tokens import TokenStore

REQUESTS, ROUNDS, TOKENS, JWTS = 3_000, 7, 100, 1_000
AIM_TOKEN_US, AIM_JWT_US = 20, 50
NOBODY, TOKEN, JWT = "no credentials", "a named token", "a JWT that is known"
ISSUER = "https://id.example.com"
ADDRESS = BoundAddress("127.0.0.1", 8765, ("127.0.0.1",))

Turns = dict[str, list[float]]
"""Seconds of one, a turn, by what was done."""


def run() -> Iterator[Row]:
    with TemporaryDirectory() as folder:
        checks, requests = asyncio.run(_measured(Path(folder)))
    rows = [
        [name, "" if name == NOBODY else f"{median(checks[name]) * 1e6:.1f}", f"{median(turns) * 1e6:.1f}"]
        for name, turns in requests.items()
    ]
    title = f"Who calls, medians of {ROUNDS} × {REQUESTS}, with {TOKENS} tokens and {JWTS:,} JWTs"
    show(f"{title} (aims: under {AIM_TOKEN_US} and {AIM_JWT_US} µs)", ["shows", "check µs", "whole request µs"], rows)
    floor = "a whole request that needs no token"
    for name, aim in ((TOKEN, AIM_TOKEN_US), (JWT, AIM_JWT_US)):
        turns = {OURS: checks[name], floor: requests[NOBODY]}
        yield row(f"the check of {name}", "µs", turns, floors=[floor], aim=f"under {aim} µs")


async def _measured(folder: Path) -> tuple[Turns, Turns]:
    """In turns: whatever else the machine does falls on all of them."""
    guarded, shown = await _guarded(folder)
    nobody = AccessRules(HttpConfig(access_log=False), ADDRESS)
    sites = {name: HttpApp([Route("/x", _answer)], guarded, 1024) for name in (TOKEN, JWT)}
    sites[NOBODY] = HttpApp([Route("/x", _answer)], nobody, 1024)
    checks: Turns = {name: [] for name in shown}
    requests: Turns = {name: [] for name in (NOBODY, *shown)}
    for turn in range(ROUNDS + 1):
        for name, taken in requests.items():
            header = shown.get(name)
            seconds = await _timed(lambda name=name, header=header: _request(sites[name], header))
            checked = await _timed(lambda header=header: _check(guarded, header)) if header else 0.0
            if turn:  # the first warms up
                taken.append(seconds)
                if header:
                    checks[name].append(checked)
    return checks, requests


async def _timed(way: Callable[[], Awaitable[None]]) -> float:
    started = time.perf_counter()
    for _ in range(REQUESTS):
        await way()
    return (time.perf_counter() - started) / REQUESTS


async def _check(rules: AccessRules, authorization: bytes) -> None:
    """What `HttpApp` does with the header."""
    scope = _scope(authorization)
    await rules.authenticate(authorization, scope)


async def _request(site: HttpApp, authorization: bytes | None) -> None:
    await site(_scope(authorization), _receive, _send)


async def _answer(_scope: Scope, _receive: Any, send: Any) -> None:
    await respond(send, 200, b"{}")


async def _receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send(message: Any) -> None:
    assert message.get("status", 200) == 200


def _scope(authorization: bytes | None) -> dict[str, Any]:
    headers = [(b"host", b"127.0.0.1:8765"), (b"accept", b"*/*")]
    if authorization:
        headers.append((b"authorization", authorization))
    about = {"type": "http", "method": "GET", "path": "/x", "raw_path": b"/x", "query_string": b"", "scheme": "http"}
    return {**about, "headers": headers, "client": ("127.0.0.1", 50000), "server": ("127.0.0.1", 8765)}


# Rules with tokens and JWTs


async def _guarded(folder: Path) -> tuple[AccessRules, dict[str, bytes]]:
    """The rules, and what to show."""
    from hashlib import sha256

    texts = [f"token-{number}-0123456789abcdef" for number in range(TOKENS)]
    tokens = tuple(
        TokenConfig(name=f"t{number}", hash=f"sha256:{sha256(text.encode()).hexdigest()}", tools=("web.*",))
        for number, text in enumerate(texts)
    )
    http = HttpConfig(tokens=tokens, jwt=_jwt_config())
    verifier, jwts = await _verifier()
    credentials = Credentials(http, KnownTokens(tokens, TokenStore(folder)), jwt=verifier)
    shown = {TOKEN: texts[TOKENS // 2].encode(), JWT: jwts[JWTS // 2].encode()}
    return AccessRules(http, ADDRESS, credentials), {name: b"Bearer " + text for name, text in shown.items()}


def _jwt_config() -> JwtConfig:
    return JwtConfig(issuer=ISSUER, audience="onetool", jwks=f"{ISSUER}/jwks", scopes={"tools:call": Grant()})


async def _verifier() -> tuple[JwtVerifier, list[str]]:
    """One that has seen these JWTs, each as long as those of usual issuers."""
    import jwt
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
    from jwt.algorithms import RSAAlgorithm

    key = generate_private_key(65537, 2048)
    public = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)

    async def fetch(_: str) -> Any:
        return {"keys": [{**public, "kid": "one"}]}

    verifier = JwtVerifier(_jwt_config(), None, fetch)
    claims = {"iss": ISSUER, "aud": "onetool", "exp": time.time() + 3600, "scope": "tools:call", "more": "x" * 400}
    headers = {"kid": "one", "typ": "at+jwt"}
    jwts = [jwt.encode({**claims, "sub": f"user-{n}"}, key, "RS256", headers) for n in range(JWTS)]
    for one in jwts:
        await verifier.verify(one.encode())
    return verifier, jwts
