"""Whether a server needs a credential: everything that asks this says the same, whatever the credential is."""

import asyncio
import json
from collections import Counter

import pytest
from document_stores import stored_tokens
from interfaces.http.issuer import AUDIENCE, Issuer
from interfaces.http.matrix import ADDRESS, served, status_of

import onetool
from onetool import App
from onetool.app.access import KnownTokens
from onetool.app.allow_lists import AllowLists
from onetool.app.own_server import served_at
from onetool.interfaces.http.guard import Guard
from onetool.interfaces.http.jwt_verifier import JwtVerifier
from onetool.interfaces.http.serve import server_facts
from onetool.interfaces.rest.openapi import openapi_document
from onetool.services.access_tokens import TokenStore, token_hash

TOKEN = "sesame-token-0123456789"
NAMED = [{"name": "ci", "hash": token_hash("ci-token")}]
JWT = {"issuer": "https://id.example.com", "audience": AUDIENCE, "scopes": {"tools:call": {"role": "call"}}}
KINDS = {
    "none": ({}, None),
    "http.token": ({"token": TOKEN}, None),
    "a named token of the config": ({"tokens": NAMED}, None),
    "a stored token": ({}, "stored"),
    "a JWT": ({"jwt": JWT}, None),
}


def bearer(token):
    return [("Authorization", f"Bearer {token if isinstance(token, str) else token.decode()}")]


@pytest.fixture(params=KINDS)
def site(request, tmp_path):
    http, stored = KINDS[request.param]
    app, site = served(tmp_path / "it", {"http": http})
    if stored:
        stored_tokens(app.config.home).add(stored)
    yield app, site, request.param != "none"
    app.close()


def test_everybody_says_the_same(site):
    app, http_app, needed = site
    assert status_of(http_app, "/tools/tools", "GET")[0] == (401 if needed else 200)
    assert ("security" in openapi_document(app)) is needed
    assert json.loads(status_of(http_app, "/login", "GET")[1])["needed"] is needed
    header = "Authorization: Bearer $ONETOOL_TOKEN" if needed else None
    assert server_facts(app, ADDRESS, None).header == header
    assert served_at(None, app.config).token == ("ONETOOL_TOKEN" if needed else None)


def test_where_jwts_are_taken_the_refusal_names_their_issuer(tmp_path):
    app, site = served(tmp_path / "it", {"http": {"jwt": JWT}})
    _, body = status_of(site, "/tools/tools", "GET")
    detail = json.loads(body)["detail"]
    assert "a JWT of https://id.example.com" in detail
    assert "http.token" not in detail
    app.close()


# What a request costs


@pytest.fixture
def counted(monkeypatch):
    """How often each of these was called."""
    counts = Counter()

    def count(owner, name):
        real = getattr(owner, name)

        def counting(*args, **more):
            counts[name] += 1
            return real(*args, **more)

        monkeypatch.setattr(owner, name, counting)

    count(TokenStore, "view")
    count(JwtVerifier, "known")
    count(Guard, "_route")
    count(AllowLists, "__init__")
    return counts


@pytest.mark.parametrize("by_session", [False, True])
def test_a_request_looks_at_the_file_of_tokens_once(tmp_path, counted, by_session):
    app, site = served(tmp_path / "it", {"http": {"tokens": NAMED}})
    shown = stored_tokens(app.config.home).add("anna")
    if by_session:
        _, body = status_of(site, "/login", "POST", sent_body=json.dumps({"token": shown}).encode())
        shown = json.loads(body)["session"]
    counted.clear()
    assert asyncio.run(site.rules.authenticate(f"Bearer {shown}".encode(), {"path": "/"})).name == "anna"
    assert counted == {"view": 1}
    assert status_of(site, "/nothing", "GET", bearer(shown))[0] == 404
    assert counted["_route"] == 1
    app.close()


def test_a_jwt_that_is_known_is_looked_up_once(tmp_path, counted):
    with Issuer() as issuer:
        jwt = {**JWT, "issuer": issuer.url, "jwks": issuer.jwks}
        app, site = served(tmp_path / "it", {"http": {"jwt": jwt}})
        token = issuer.token()
        asyncio.run(site.rules.credentials.jwt.verify(token))
        counted.clear()
        assert status_of(site, "/nothing", "GET", bearer(token))[0] == 404
        assert counted["known"] == 1
        app.close()


def test_the_table_of_tokens_is_made_anew_only_if_the_file_has_changed(tmp_path):
    store = stored_tokens(tmp_path)
    tokens = KnownTokens([], store)
    text = store.add("anna")
    table = tokens.table()
    assert tokens.table() is table
    assert table.digests == {"anna": store.named("anna").digest}
    store.revoke("anna")
    assert tokens.table() is not table
    assert "revoked" in tokens.find(bytes.fromhex(token_hash(text).removeprefix("sha256:"))).refusal


def test_all_routes_share_the_lists_of_what_may_be_called(tmp_path, counted):
    (tmp_path / "onetool.yaml").write_text("{}")
    with App.open(tmp_path / "onetool.yaml") as app:
        site = onetool.asgi(app)  # /mcp has them, too
        for path in ("/tools/tools", "/status", "/ask/sessions"):
            assert status_of(site, path, "GET")[0] == 200
    assert counted["__init__"] == 1
