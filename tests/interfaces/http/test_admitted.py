"""Who was let in before is let in without a closer look, as long as nothing has changed; not one request longer."""

import asyncio
import json
import sys
import time
import tracemalloc
from http.client import HTTPConnection

import pytest
import warm
from document_stores import stored_tokens
from helpers import cli, until
from interfaces.http.issuer import AUDIENCE, Issuer, key
from interfaces.http.lasting import LastingRequest
from interfaces.http.matrix import served, status_of, token_entry

from onetool.http.asgi import HttpError
from onetool.interfaces.http import admissions
from onetool.interfaces.http import credentials as of_credentials
from onetool.interfaces.http.credentials import Credentials

pytestmark = pytest.mark.attack("the one store")

TOKEN = "sesame-token-0123456789"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "one", "version": "1"}}


class McpSession:
    """One connection with a session of MCP."""

    def __init__(self, server, token):
        self._connection = HTTPConnection(server.host, server.port, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        hello = self.ask("initialize", **HELLO)
        assert hello.status == 200
        self._headers["Mcp-Session-Id"] = hello.headers["Mcp-Session-Id"]

    def ask(self, method, **params):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self._connection.request("POST", "/mcp", json.dumps(message), self._headers)
        response = self._connection.getresponse()
        response.read()
        return response

    def call(self):
        return self.ask("tools/call", name="run", arguments={"code": "1 + 1"}).status

    def close(self):
        self._connection.close()


@pytest.fixture
def server(serve):
    return serve(real=True, config={})


@pytest.fixture
def begin(server):
    """Begin a session with a token."""
    made = []

    def begin(token):
        made.append(McpSession(server, token))
        return made[-1]

    yield begin
    for session in made:
        session.close()


def tokens(server, *args):
    env = {"ONETOOL_HOME": str(server.folder / "home")}
    done = cli("--config", str(server.folder / "onetool.yaml"), "tokens", *args, cwd=server.folder, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_token_that_another_process_revokes_in_mid_session(server, begin):
    session, other = begin(tokens(server, "add", "ci")), begin(tokens(server, "add", "other"))
    assert [session.call() for _ in range(3)] == [200] * 3  # each writes lines into the file that the tokens are in
    tokens(server, "revoke", "ci")
    assert (session.call(), other.call()) == (401, 200)


def test_a_token_that_expires_in_mid_session(server, begin):
    store = stored_tokens(server.folder / "home")
    session = begin(store.add("ci", expires=time.time() + 5))
    until(lambda: session.call() == 401)


def test_wrong_tokens_leave_nothing_behind(tmp_path):
    app, site = served(tmp_path / "it", {"http": {"token": TOKEN}})
    assert status_of(site, "/nothing", "GET", [("Authorization", f"Bearer {TOKEN}")])[0] == 404
    assert refuses(site.rules.credentials, b"Bearer first")
    tracemalloc.start()
    try:
        assert all(refuses(site.rules.credentials, b"Bearer %d" % number) for number in range(3000))
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
        app.close()


def refuses(credentials, authorization):
    try:
        credentials.identify(authorization)
    except HttpError:
        return True
    return False


def test_a_bounded_number_of_callers_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(of_credentials, "MAX_ADMITTED", 5)
    looked_at = []
    find = Credentials._find
    monkeypatch.setattr(
        Credentials, "_find", lambda self, shown, table: looked_at.append(shown) or find(self, shown, table)
    )
    tokens = [token_entry(str(number), f"token-{number}") for number in range(6)]
    app, site = served(tmp_path / "it", {"http": {"tokens": tokens}})
    for _ in range(2):
        for number in range(6):
            assert site.rules.credentials.identify(b"Bearer token-%d" % number).name == str(number)
    assert len(looked_at) == 12  # the sixth pushes out the first, and so on
    site.rules.credentials.identify(b"Bearer token-5")
    assert len(looked_at) == 12
    app.close()


def test_who_is_known_is_known_until_the_stored_tokens_change(tmp_path, monkeypatch):
    app, site = served(tmp_path / "it", {"http": {"tokens": []}})
    store = stored_tokens(app.config.home)
    shown = f"Bearer {store.add('anna')}".encode()
    found = site.rules.credentials.identify(shown)
    monkeypatch.setattr(Credentials, "_find", None)
    assert site.rules.credentials.identify(shown) is found
    monkeypatch.undo()
    store.revoke("anna")
    assert refuses(site.rules.credentials, shown)
    app.close()


def test_requests_of_one_turn_share_a_look_and_those_of_the_next_have_their_own(tmp_path, monkeypatch):
    app, site = served(tmp_path / "it", {"http": {"tokens": []}})
    store, looks = stored_tokens(app.config.home), []
    shown = f"Bearer {store.add('anna')}".encode()
    look = Credentials.stored_tokens
    monkeypatch.setattr(Credentials, "stored_tokens", lambda self: looks.append(self) or look(self))

    async def turns():
        first = await asyncio.gather(*(site.rules.authenticate(shown, {}) for _ in range(16)))
        seen = len(looks)
        store.revoke("anna")
        return first, seen, await asyncio.gather(site.rules.authenticate(shown, {}), return_exceptions=True)

    first, seen, [refused] = asyncio.run(turns())
    assert ([one.name for one in first], seen) == (["anna"] * 16, 1)
    assert isinstance(refused, HttpError)
    assert refused.status == 401
    app.close()


def test_a_remembered_jwt_ends_with_its_key(serve):
    """The next request after the keys were fetched again is refused, and what is under way ends."""
    old, new, later = key("RSA", "old"), key("RSA", "new"), key("RSA", "later")
    often = {warm.CONSTANTS: '{"onetool.interfaces.http.jwt_verifier.PAUSE_S": 0}'}
    with Issuer() as issuer:
        issuer.keys = [old.jwk(), new.jwk()]
        jwt = {"issuer": issuer.url, "jwks": issuer.jwks, "audience": AUDIENCE, "scopes": {"tools:call": {}}}
        server = serve(config={"http": {"token": TOKEN, "jwt": jwt}}, real=True, env=often)
        tokens = {one: issuer.token(one).decode() for one in (old, new, later)}
        sessions = {one: McpSession(server, tokens[one]) for one in (old, new)}
        streams = {one: LastingRequest(server, tokens[one], "GET", "/events") for one in (old, new)}
        until(lambda: all(one.exchange.events for one in streams.values()))
        assert [session.call() for session in sessions.values()] == [200, 200]

        issuer.keys = [new.jwk(), later.jwk()]
        assert status(server, tokens[later]) == 200  # the server has fetched the keys now
        assert (sessions[old].call(), sessions[new].call()) == (401, 200)
        assert (status(server, tokens[old]), status(server, tokens[new]), status(server, TOKEN)) == (401, 200, 200)
        until(lambda: streams[old].is_over)
        assert not streams[new].is_over

        issuer.keys = [key("RSA", "other").jwk(kid="new"), later.jwk()]  # another key under the same name
        assert status(server, issuer.token(old).decode()) == 401
        assert (sessions[new].call(), status(server, tokens[new])) == (401, 401)
        until(lambda: streams[new].is_over)
        for session in sessions.values():
            session.close()


def test_signing_out_ends_the_session_and_leaves_the_jwt(serve):
    with Issuer() as issuer:
        jwt = {"issuer": issuer.url, "jwks": issuer.jwks, "audience": AUDIENCE, "scopes": {"tools:call": {}}}
        server = serve(config={"http": {"token": TOKEN, "jwt": jwt}}, real=True)
        made = server.ask("/login", "POST", body=json.dumps({"token": TOKEN}).encode())
        session, token = made.json["session"], issuer.token().decode()
        assert [status(server, shown) for shown in (session, token) * 2] == [200] * 4
        assert server.ask("/login", "DELETE", [("Authorization", f"Bearer {token}")]).code == "no_session"
        assert server.ask("/login", "DELETE", [("Authorization", f"Bearer {session}")]).status == 204
        assert (status(server, session), status(server, token)) == (401, 200)


def status(server, shown):
    return server.ask("/status", headers=[("Authorization", f"Bearer {shown}")]).status


def test_a_reload_that_takes_rights_from_its_caller_is_answered(serve):
    server = serve(real=True, config={"http": {"token": TOKEN}})
    # The reload waits for a new server longer than a request goes on whose caller has lost a right.
    code = f"import time; time.sleep({admissions.CHECK_EVERY_S * 4})"
    servers = {"slow": {"command": sys.executable, "args": ["-c", code]}}
    config = {"http": {"token": TOKEN, "admin": False}, "servers": servers}
    (server.folder / "onetool.yaml").write_text(json.dumps(config))
    head = [("Authorization", f"Bearer {TOKEN}"), ("Content-Type", "application/json")]
    done = server.ask("/call/ot.reload", "POST", head, b"{}")
    assert done.status == 200, done.body
    assert json.loads(server.ask("/status", "GET", head).body)["isCapped"] is True
