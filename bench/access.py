"""What it costs to find out who a request comes from: a token of the config, a JWT that was verified before, a token
that `onetool tokens add` has stored, and the session of a page."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bench.table import OURS, Row, row, show
from onetool.app.access import KnownTokens
from onetool.config.model import Grant, HttpConfig, JwtConfig, TokenConfig
from onetool.database.documents import Documents
from onetool.database.sqlite import SqliteDatabase
from onetool.http.asgi import Scope, respond
from onetool.interfaces.http.credentials import Credentials
from onetool.interfaces.http.guard import Guard, Route
from onetool.interfaces.http.jwt_verifier import JwtVerifier
from onetool.interfaces.http.listen import BoundAddress
from onetool.interfaces.http.login_sessions import LoginSessions
from onetool.interfaces.http.rules import AccessRules
from onetool.services.access_tokens import TokenStore

REQUESTS, ROUNDS, TOKENS, JWTS = 3_000, 7, 100, 1_000
NOBODY, TOKEN, JWT = "no credentials", "a named token", "a JWT that is known"
STORED, SESSION = "a stored token", "a session of the page"  # of a server without JWTs
AIMS_US = {TOKEN: 20, JWT: 50, STORED: 20}
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
    aims = ", ".join(f"{name}: under {aim} µs" for name, aim in AIMS_US.items())
    show(f"{title} (aims: {aims})", ["shows", "check µs", "whole request µs"], rows)
    floor = "a whole request that needs no token"
    for name in checks:
        turns = {OURS: checks[name], floor: requests[NOBODY]}
        aim = f"under {AIMS_US[name]} µs" if name in AIMS_US else ""
        yield row(f"the check of {name}", "µs", turns, floors=[floor], aim=aim)


async def _measured(folder: Path) -> tuple[Turns, Turns]:
    """In turns: whatever else the machine does falls on all of them."""
    nobody = AccessRules(HttpConfig(access_log=False), ADDRESS)
    guarded = {**await _guarded(folder / "config"), **_stored(folder / "stored")}
    sites = {name: Guard([Route("/x", _answer)], one.rules, 1024) for name, one in guarded.items()}
    sites[NOBODY] = Guard([Route("/x", _answer)], nobody, 1024)
    checks: Turns = {name: [] for name in guarded}
    requests: Turns = {name: [] for name in (NOBODY, *guarded)}
    for turn in range(ROUNDS + 1):
        for name, taken in requests.items():
            one = guarded.get(name)
            header = one and one.header
            seconds = await _timed(lambda name=name, header=header: _request(sites[name], header))
            checked = await _timed(lambda one=one: _check(one)) if one else 0.0
            if turn:  # the first warms up
                taken.append(seconds)
                if one:
                    checks[name].append(checked)
    return checks, requests


async def _timed(way: Callable[[], Awaitable[None]]) -> float:
    started = time.perf_counter()
    for _ in range(REQUESTS):
        await way()
    return (time.perf_counter() - started) / REQUESTS


async def _check(shown: "Shown") -> None:
    """What `Guard` does with the header."""
    rules, header = shown
    await rules.authenticate(header, _scope(header))


async def _request(site: Guard, authorization: bytes | None) -> None:
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


# Rules, and what is shown to them


class Shown(NamedTuple):
    rules: AccessRules
    header: bytes


def _documents(folder: Path, kind: str) -> Documents:
    return Documents(SqliteDatabase(folder / "state.db", makes_folder=True), kind)


async def _guarded(folder: Path) -> dict[str, Shown]:
    """With tokens of the config, and JWTs."""
    from hashlib import sha256

    texts = [f"token-{number}-0123456789abcdef" for number in range(TOKENS)]
    tokens = tuple(
        TokenConfig(name=f"t{number}", hash=f"sha256:{sha256(text.encode()).hexdigest()}", tools=("web.*",))
        for number, text in enumerate(texts)
    )
    http = HttpConfig(tokens=tokens, jwt=_jwt_config())
    verifier, jwts = await _verifier()
    rules = AccessRules(
        http, ADDRESS, Credentials(http, KnownTokens(tokens, TokenStore(_documents(folder, "tokens"))), jwt=verifier)
    )
    return {TOKEN: _shown(rules, texts[TOKENS // 2]), JWT: _shown(rules, jwts[JWTS // 2])}


def _stored(folder: Path) -> dict[str, Shown]:
    """With tokens of the state folder alone, where people sign in with one."""
    folder.mkdir()
    http, store = HttpConfig(), TokenStore(_documents(folder, "tokens"))
    texts = [store.add(f"t{number}", tools=("web.*",)) for number in range(TOKENS)]
    credentials = Credentials(http, KnownTokens((), store), LoginSessions(_documents(folder, "page_sessions")))
    token = texts[TOKENS // 2].encode()
    session, _ = credentials.start_session(token, credentials.identify(b"Bearer " + token))
    rules = AccessRules(http, ADDRESS, credentials)
    return {STORED: _shown(rules, texts[TOKENS // 2]), SESSION: _shown(rules, session)}


def _shown(rules: AccessRules, text: str) -> Shown:
    return Shown(rules, f"Bearer {text}".encode())


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
