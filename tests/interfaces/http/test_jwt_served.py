"""`onetool serve` that accepts JWTs: who gets in, what others hear, and that a token goes no further."""

import asyncio
import json
import re
import socket
import time
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from helpers import until
from interfaces.http.authorization_server import AuthorizationServer
from interfaces.http.conftest import Served
from interfaces.http.issuer import AUDIENCE, Issuer
from interfaces.http.lasting import LastingRequest
from mcp.client import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from upstream import Reply, Upstream

METADATA = "/.well-known/oauth-protected-resource"
TOKEN = "sesame-token-0123456789"
SCOPES = {"tools:call": {"role": "call"}, "tools:admin": {"role": "admin"}, "time": {"tools": ["time.*"]}}


@pytest.fixture(scope="module")
def issuer():
    with Issuer() as one:
        yield one


def config(issuer, **jwt):
    about = {"issuer": issuer.url, "jwks": issuer.jwks, "audience": AUDIENCE, "scopes": SCOPES, "leeway_s": 0}
    return {"http": {"token": TOKEN, "jwt": {**about, **jwt}}}


@pytest.fixture(scope="module")
def served(issuer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("jwt")
    running = Served(folder, "--port", "0", config=config(issuer), real=True)
    yield running
    assert running.stop() == 0


def bearer(token):
    return [("Authorization", f"Bearer {token if isinstance(token, str) else token.decode()}")]


def challenge(reply):
    assert reply.headers["www-authenticate"].startswith('Bearer realm="onetool"')
    return dict(re.findall(r'(\w+)="([^"]*)"', reply.headers["www-authenticate"]))


def call(server, token, name="time.now", **args):
    return server.ask(f"/call/{name}", "POST", bearer(token), json.dumps(args).encode())


def test_a_jwt_opens_what_its_scopes_allow(served, issuer):
    assert call(served, issuer.token()).status == 200
    assert served.ask("/status", headers=bearer(issuer.token())).status == 200
    assert call(served, TOKEN).status == 200  # as before
    few = issuer.token(scope="time")
    assert call(served, few).status == 200
    assert call(served, few, "tools.echo", text="x").status in (403, 404)


def test_who_has_none_hears_where_to_get_one(served):
    reply = served.ask("/status")
    where = f"http://127.0.0.1:{served.port}"
    assert (reply.status, reply.code) == (401, "unauthorized")
    said = challenge(reply)
    assert said == {"realm": "onetool", "scope": "tools:call time", "resource_metadata": f"{where}{METADATA}"}
    reply = served.ask("/mcp", "POST", body=b"{}")
    assert (reply.status, challenge(reply)["resource_metadata"]) == (401, f"{where}{METADATA}/mcp")


@pytest.mark.parametrize(
    ("claims", "status", "error", "words"),
    [
        ({"exp": 1_700_000_000}, 401, "invalid_token", "expired at 2023-11-14T22:13:20Z"),
        ({"aud": "other"}, 401, "invalid_token", "audience"),
        ({"scope": "nothing"}, 403, "insufficient_scope", "tools:call, tools:admin, time"),
    ],
)
@pytest.mark.parametrize("path", ["/mcp", "/status", "/call/time.now"])
def test_why_one_is_refused(served, issuer, claims, status, error, words, path):
    reply = served.ask(path, "POST", bearer(issuer.token(**claims)), b"{}")
    assert reply.status == status
    assert words in reply.body.decode()
    said = challenge(reply)
    assert said["error"] == error
    assert words in said["error_description"]


def test_one_that_is_no_token_at_all(served):
    for token in ("x.y.z", "a.b.c.d.e", "..", "sesame-token"):
        reply = served.ask("/status", headers=bearer(token))
        assert (reply.status, challenge(reply)["error"]) == (401, "invalid_token")


def test_login_knows_a_jwt_that_was_not_seen_before(served, issuer):
    token = issuer.token(sub="new-at-login")
    said = served.ask("/login", headers=bearer(token)).json
    assert (said["signedIn"], said["name"], said["role"]) == (True, f"{issuer.url}|new-at-login", "call")
    assert served.ask("/login", headers=bearer(issuer.token(aud="other"))).json["signedIn"] is False
    reply = served.ask("/login", "DELETE", bearer(issuer.token(sub="new-at-logout")))
    assert (reply.status, reply.code) == (400, "no_session")


def test_nobody_signs_in_with_a_jwt(served, issuer):
    token = issuer.token().decode()
    assert served.ask("/login", "POST", body=json.dumps({"token": token}).encode()).status == 401


def test_metadata_is_open_to_pages_of_all_origins_and_nothing_else_is(served, issuer):
    origin = [("Origin", "https://inspector.example"), ("Sec-Fetch-Site", "cross-site")]
    for path, resource in ((METADATA, ""), (f"{METADATA}/mcp", "/mcp")):
        reply = served.ask(path, headers=origin)
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, "*")
        assert reply.json["resource"] == f"http://127.0.0.1:{served.port}{resource}"
        assert reply.json["authorization_servers"] == [issuer.url]
        asked = [*origin, ("Access-Control-Request-Method", "GET")]
        assert served.ask(path, "OPTIONS", asked).status == 204
        assert served.ask(path, host="evil.example").status == 421
        assert served.ask(path, "POST", body=b"{}").status == 405
    for path in ("/status", "/healthz", "/login"):
        assert served.ask(path, headers=[*origin, *bearer(issuer.token())]).status == 403


def test_while_the_issuer_is_away(serve, issuer):
    server = serve(config=config(issuer, jwks="http://127.0.0.1:9/jwks.json"), real=True)
    reply = server.ask("/status", headers=bearer(issuer.token()))
    assert (reply.status, reply.code) == (503, "temporarily_unavailable")
    assert 0 < int(reply.headers["retry-after"]) <= 30
    assert server.ask("/status", headers=bearer(TOKEN)).status == 200
    assert "can't be fetched" in server.log_file.read_text()


def test_a_stream_ends_with_its_jwt(served, issuer):
    """A machine that is slow may find it expired before the stream begins: then it gets more time."""
    for seconds in (2, 4, 8, 16, 32):
        token = issuer.token(exp=time.time() + seconds).decode()
        stream = LastingRequest(served, token, "GET", "/events")
        until(lambda one=stream: one.exchange.events or one.is_over)
        if stream.exchange.events:
            break
        assert stream.exchange.status == 401
    until(lambda: stream.is_over, within=60)
    assert stream.exchange.status == 200
    assert call(served, token).status == 401


# It goes no further


def test_a_token_goes_no_further(serve, issuer):
    """To no upstream of an HTTP tool, into no file, log or answer: neither whole nor in parts."""
    with Upstream() as upstream:
        upstream.say(Reply(body=b'{"a": 1}'))
        own = {**config(issuer), "allowedHosts": [{"host": upstream.netloc, "allowPrivate": True}]}
        server = serve(config=own, real=True)
        admin, token = bearer(TOKEN), issuer.token(scope="tools:call tools:admin")
        bundle = "/tools/bundles/01890a5d-ac96-774b-bcce-b302099a8057"
        tool = {
            "type": "http",
            "displayName": "Ask",
            "description": "Asks.",
            "argSchema": {"type": "object", "properties": {"x": {"type": "string"}}},
            "httpImpl": {"request": {"urlTemplate": f"{upstream.url}/a"}},
        }
        assert server.ask(bundle, "PUT", admin, b'{"slug": "far", "displayName": "Far"}').status == 201
        made = server.ask(f"{bundle}/tools/ask/version/1", "PUT", admin, json.dumps(tool).encode())
        assert made.status == 201, made.body
        replies = [
            call(server, token, "far.ask"),
            call(server, token, "far.nothing"),
            server.ask(f"{bundle}/tools/ask/version/1/invoke", "POST", bearer(token), b"{}"),
            server.ask(f"{bundle}/tools/none/version/1/invoke", "POST", bearer(token), b"{}"),
            server.ask("/mcp", "POST", bearer(token), b'{"jsonrpc": "2.0", "id": 1, "method": "nothing"}'),
            server.ask("/status", headers=bearer(token)),
            server.ask(f"/nothing?access_token={token.decode()}"),
            server.ask("/status", headers=bearer(token + b"x")),
            server.ask("/status", headers=bearer(issuer.token(payload=b"[]"))),
        ]
        assert replies[0].status == 200, replies[0].body
        assert upstream.seen
        server.stop()
        seen = b"".join(one.raw for one in upstream.seen)
        assert b"authorization" not in seen.lower()
        kept = [path.read_bytes() for path in server.folder.rglob("*") if path.is_file()]
        answers = [reply.body + repr(reply.headers).encode() for reply in replies]
        for text in (seen, *kept, *answers):
            assert not any(part in text for part in token.split(b"."))


# The official SDK's client, and a real authorization server


class Browser:
    """Stands in for a person who says yes: it follows the redirect of the authorization page, and no further."""

    query = None

    async def open(self, url):
        async with httpx2.AsyncClient() as client:
            reply = await client.get(url, follow_redirects=False)
        self.query = {name: values[0] for name, values in parse_qs(urlsplit(reply.headers["location"]).query).items()}

    async def came_back(self):
        return AuthorizationCodeResult(**{name: self.query.get(name) for name in ("code", "state", "iss")})


class Storage:
    tokens = info = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.info

    async def set_client_info(self, client_info):
        self.info = client_info


async def log_in_and_call(url, storage):
    browser = Browser()
    about = OAuthClientMetadata(client_name="tests", redirect_uris=["http://127.0.0.1:1/callback"])
    auth = OAuthClientProvider(url, about, storage, browser.open, browser.came_back)
    async with httpx2.AsyncClient(auth=auth) as http, Client(streamable_http_client(url, http_client=http)) as client:
        result = await client.call_tool("run", {"code": "time.now()"})
        return result.content[0].text, browser.query


@pytest.mark.long
@pytest.mark.parametrize("named", ["audience", "url", "metadata"])
def test_the_official_client_logs_in(serve, named):
    with AuthorizationServer() as authority:
        jwt = {"issuer": authority.url, "scopes": SCOPES}
        # Whom its tokens are for is what the client asks for: the address of this server.
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        http = {"jwt": jwt, "url": address}
        if named == "audience":
            http = {"jwt": {**jwt, "audience": [f"{address}/mcp"], "jwks": f"{authority.url}jwks.json"}}
        server = serve(config={"http": http}, real=True, port=port)
        storage = Storage()
        text, query = asyncio.run(log_in_and_call(f"{address}/mcp", storage))
        assert re.search(r"20\d\d-\d\d-\d\d", text), text
        assert query["code"]
        assert authority.asked == [(["tools:call", "time"], f"{address}/mcp")]
        assert storage.tokens.access_token == authority.tokens[-1]
        if named == "metadata":  # it has a token now, and needs no login
            authority.asked.clear()
            assert asyncio.run(log_in_and_call(f"{address}/mcp", storage))[1] is None
            assert authority.asked == []
        assert authority.tokens[0] not in server.log_file.read_text()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
