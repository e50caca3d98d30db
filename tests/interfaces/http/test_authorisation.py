"""Who may use which route: every route and method, for everybody who may come, with a token in the config and without.

The routes are those of the server itself and of its REST API. A new one is in here by itself: it has to be closed, or
to be named in OPEN. Which role each of them needs is in test_roles.py.
"""

import asyncio
import json
import time
from hashlib import sha256

import pytest
from document_stores import in_home
from interfaces.http.matrix import (
    HOST,
    ID,
    OPEN,
    OTHER,
    OWN_METHODS,
    READ,
    SAMPLES_BELOW,
    TOKEN,
    address,
    cases,
    served,
    status_of,
    statuses,
)

from onetool.interfaces.http.login_sessions import LIFETIME_S, LoginSessions

pytestmark = pytest.mark.attack("credentials")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("authorisation")


@pytest.fixture(scope="module")
def guarded(folder):
    app, site = served(folder / "guarded", {"http": {"token": TOKEN}})
    with app:
        yield site


@pytest.fixture(scope="module")
def unguarded(folder):
    app, site = served(folder / "unguarded", {})
    with app:
        yield site


# Who comes


def session(site, token=TOKEN, clock=time.time):
    """One that is signed with the key of the server."""
    return LoginSessions(site.rules.credentials.sessions._documents, clock).start(sha256(token.encode()).digest())[0]


def expired(site, _folder):
    return session(site, clock=lambda: time.time() - LIFETIME_S - 1)


def forged(_site, folder):
    """By somebody who knows the token's digest and all code, and not the key."""
    return LoginSessions(in_home(folder / "enemy", "page_sessions")).start(sha256(TOKEN.encode()).digest())[0]


def changed(site, _folder):
    """The signature of one session with the data of another one."""
    one, other = session(site), session(site)
    return one[:20] + other[20:]


def ended(site, _folder):
    text = session(site)
    sessions = site.rules.credentials.sessions
    sessions.end(sessions.read(text, lambda _name: sha256(TOKEN.encode()).digest()))
    return text


STRANGERS = {
    "anonymous": None,
    "wrong token": lambda _site, _folder: OTHER,
    "expired session": expired,
    "forged session": forged,
    "changed session": changed,
    "session of a changed token": lambda site, _folder: session(site, OTHER),
    "ended session": ended,
}
KNOWN = {"right token": lambda _site, _folder: TOKEN, "right session": lambda site, _folder: session(site)}
EVERYBODY = STRANGERS | KNOWN


def headers_of(who, site, folder):
    return [] if EVERYBODY[who] is None else [("authorization", f"Bearer {EVERYBODY[who](site, folder)}")]


@pytest.mark.parametrize("who", STRANGERS)
def test_strangers_get_401_wherever_it_is_not_open(guarded, folder, who):
    headers = headers_of(who, guarded, folder)
    found = statuses(guarded, cases(guarded), headers)
    assert {case for case, (status, _) in found.items() if status != 401} == OPEN
    assert all(b"unauthorized" in body for status, body in found.values() if status == 401)


@pytest.mark.parametrize("who", KNOWN)
def test_the_token_and_its_session_open_everything(guarded, folder, who):
    headers = headers_of(who, guarded, folder)
    # One ends the session: see test_login.py. The other is for the owner alone: see test_grants.py.
    tried = [case for case in cases(guarded) if case not in (("/login", "DELETE"), ("/tokens", "POST"))]
    found = statuses(guarded, tried, headers)
    refused = {case: status for case, (status, _) in found.items() if status in (401, 403, 421, 429) or status >= 500}
    assert refused == {}


@pytest.mark.parametrize("who", EVERYBODY)
def test_without_a_token_in_the_config_nobody_is_asked_for_one(unguarded, folder, who):
    headers = headers_of(who, unguarded, folder)
    found = statuses(unguarded, cases(unguarded), headers)
    assert [case for case, (status, _) in found.items() if status == 401] == []


FOREIGN = {
    "a foreign origin": ("origin", "https://evil.example"),
    "the same host with another port": ("origin", "http://127.0.0.1:8766"),
    "no origin at all": ("origin", "null"),
    "another site": ("sec-fetch-site", "cross-site"),
    "another port or subdomain": ("sec-fetch-site", "same-site"),
}


@pytest.mark.parametrize("page", FOREIGN)
@pytest.mark.parametrize("config", ["guarded", "unguarded"])
def test_pages_of_others_are_refused_everywhere_whatever_they_know(request, folder, config, page):
    site = request.getfixturevalue(config)
    for who in ("anonymous", "right token", "right session"):
        headers = [FOREIGN[page], *headers_of(who, site, folder)]
        found = statuses(site, cases(site), headers)
        assert {case: status for case, (status, _) in found.items() if status != 403} == {}
        assert all(b"bad_origin" in body for _, body in found.values())


def test_what_is_not_read_as_a_route_is_closed(guarded):
    for path in (
        "//",
        "/.",
        "/%2e",
        "/assets.js",
        "/login/",
        "/login/x",
        "/healthz/x",
        "/tools/../healthz",
        "/static/x",
    ):
        expected = 200 if path == "/login/" else 401
        assert status_of(guarded, path, "GET")[0] == expected, path


# What tools may use


_A_TOOL = f"/tools/bundles/{ID}/tools/nothing/version/1"
_READING = ("/tools/bundles", f"/tools/bundles/{ID}", _A_TOOL, "/tools/tools", "/tools/tools/search")
_READING += (f"/tools/bundles/{ID}/tools/nothing/versions", f"{_A_TOOL}/examples")
FOR_TOOLS = {(path, method) for path in _READING for method in READ} | {(f"{_A_TOOL}/invoke", "POST")}
FOR_TOOLS |= {(path, "POST") for path in ("/call", "/call/nothing.here")}
# What has no data, describes the API, or is for programs that speak MCP.
FOR_TOOLS |= {case for case in OPEN if case != ("/login", "POST")}
FOR_TOOLS |= {("/openapi.json", method) for method in READ}
FOR_TOOLS |= {("/mcp", method) for method in OWN_METHODS["/mcp"]}


@pytest.mark.parametrize("config", ["guarded", "unguarded"])
def test_tools_find_and_call_tools_and_reach_nothing_else(request, folder, config):
    site = request.getfixturevalue(config)
    headers = [("OneTool-Call", "tool"), *headers_of("right token", site, folder)]
    found = statuses(site, [case for case in cases(site) if case[1] != "OPTIONS"], headers)
    closed = {case for case, (status, body) in found.items() if status == 403 and b"not_for_tools" in body}
    there = {case for case in found if case[0] != "/nothing"}
    assert there - closed == {case for case in FOR_TOOLS if case[1] != "OPTIONS"}


# That it is all of them


def test_every_operation_that_the_api_describes_is_in_it(guarded):
    _, body = status_of(guarded, "/openapi.json", "GET", [("authorization", f"Bearer {TOKEN}")])
    tried = set(cases(guarded))
    for template, item in json.loads(body)["paths"].items():
        path = SAMPLES_BELOW.get("/call") if template.startswith("/call/") else address(template)
        for method in item.keys() & {"get", "put", "post", "patch", "delete"}:
            assert (path, method.upper()) in tried, template


def test_the_page_can_not_be_framed(guarded):
    reply = {}

    async def send(message):
        reply.update(dict(message.get("headers", ())))

    async def receive():
        return {"type": "http.disconnect"}

    head = [(b"host", HOST.encode()), (b"accept", b"text/html")]
    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "headers": head}
    asyncio.run(guarded(scope, receive, send))
    assert b"frame-ancestors 'none'" in reply[b"content-security-policy"]
    assert reply[b"x-frame-options"] == b"DENY"
