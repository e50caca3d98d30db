"""The tokens of the config and of the state folder together: who calls with them, and why one is refused."""

import json

import pytest
from document_stores import in_home, stored_tokens

from onetool import App
from onetool.app.access import (
    KnownTokens,
    accepts_any,
    as_stored,
    needs_credential,
    shown_time,
    token_store,
)
from onetool.config import load_config
from onetool.config.model import HttpConfig, JwtConfig, TokenConfig
from onetool.core.principal import Principal, Rate
from onetool.core.text import utc_text
from onetool.http.errors import RequestRefusedError
from onetool.services.access_tokens import DOCUMENT, token_digest, token_hash
from onetool.services.secrets import Secret

NOW = 1_800_000_000.0  # 2027-01-15


def configured(name, text, **more):
    return TokenConfig(name=name, hash=token_hash(text), **more)


@pytest.fixture
def store(tmp_path):
    return stored_tokens(tmp_path, lambda: NOW)


def known(store, *tokens):
    return KnownTokens(tokens, store, lambda: NOW)


def test_a_principal_is_made_of_either(store):
    ci = configured("ci", "x", tools=("web.*",), role="edit", rate="600/min", expires="2027-02-01")
    assert as_stored(ci).principal == Principal(
        name="ci", owner="ci", role="edit", tools=("web.*",), rate=Rate(600, 60), expires=1801440000.0
    )
    store.add("anna", "admin")
    assert store.named("anna").principal == Principal(name="anna", owner="anna", role="admin")


def test_both_are_found_and_others_are_not(store):
    text = store.add("anna", "edit")
    tokens = known(store, configured("ci", "x"))
    assert tokens.find(token_digest("x")) == (Principal(name="ci", owner="ci"), None)
    assert tokens.find(token_digest(text)) == (Principal(name="anna", owner="anna", role="edit"), None)
    assert tokens.find(token_digest("y")) is None


def test_who_holds_a_token_is_told_that_it_has_expired_or_was_revoked(store):
    texts = {"old": store.add("old", expires=NOW), "gone": store.add("gone"), "new": store.add("new", expires=NOW + 1)}
    store.revoke("gone")
    tokens = known(store, configured("past", "x", expires="2027-01-01"), configured("leaked", "y"))
    store.revoke_hash(token_hash("y"), "leaked")
    refusals = {
        name: tokens.find(token_digest(text)).refusal for name, text in {**texts, "past": "x", "leaked": "y"}.items()
    }
    assert refusals == {
        "old": "This token expired on 2027-01-15 08:00 UTC.",
        "gone": "This token was revoked on 2027-01-15 08:00 UTC.",
        "new": None,
        "past": "This token expired on 2027-01-01.",
        "leaked": "This token was revoked on 2027-01-15 08:00 UTC.",
    }


def test_a_stored_token_with_a_name_of_the_config_is_refused(store):
    text = store.add("ci", "admin")
    tokens = known(store, configured("ci", "x"))
    assert tokens.find(token_digest("x")).refusal is None
    refusal = tokens.find(token_digest(text)).refusal
    assert "Two tokens are called ci" in refusal
    assert "onetool tokens revoke ci" in refusal


def test_while_the_tokens_are_damaged_no_token_counts(store):
    text = store.add("anna")
    tokens = known(store, configured("ci", "x"))
    good = store._documents.read(DOCUMENT)
    store._documents.write(DOCUMENT, b"damaged")
    assert tokens.find(token_digest(text)) is None
    assert "list of revoked tokens can't be read" in tokens.find(token_digest("x")).refusal
    assert needs_credential(HttpConfig(), store)
    store._documents.write(DOCUMENT, good)
    assert tokens.find(token_digest("x")).refusal is None


@pytest.mark.parametrize(
    "http",
    [
        HttpConfig(token=Secret("x")),
        HttpConfig(tokens=(configured("ci", "x"),)),
        HttpConfig(jwt=JwtConfig(issuer="https://id.example.com")),
    ],
)
def test_each_kind_of_credential_is_needed_then(store, http):
    assert needs_credential(http, store)
    assert needs_credential(http, None)
    assert accepts_any(http, store)


def test_a_stored_token_is_needed_also_after_the_last_one_was_revoked(store):
    http = HttpConfig()
    assert not needs_credential(http, store)
    store.add("anna")
    assert needs_credential(http, store)
    assert accepts_any(http, store)
    store.revoke("anna")
    assert needs_credential(http, store)
    assert not accepts_any(http, store)


def test_tokens_of_the_time_before_a_database_close_its_server_and_let_nobody_in(tmp_path):
    text = stored_tokens(tmp_path).add("ci")  # in state.db
    (tmp_path / "onetool.yaml").write_text("database: postgresql://x\n")
    store = token_store(load_config(tmp_path / "onetool.yaml"), in_home(tmp_path / "elsewhere", "tokens"))
    assert (store.guards, store.find(token_digest(text))) == (True, None)


def test_revoked_tokens_of_the_config_open_nothing(store):
    http = HttpConfig(tokens=(configured("ci", "x"), configured("bo", "y")))
    store.revoke_hash(token_hash("x"), "ci")
    assert accepts_any(http, store)
    store.revoke_hash(token_hash("y"), "bo")
    assert not accepts_any(http, store)


@pytest.mark.parametrize(
    ("seconds", "iso", "shown"),
    [
        (0, "1970-01-01T00:00:00Z", "1970-01-01"),
        (NOW + 60.9, "2027-01-15T08:01:00Z", "2027-01-15 08:01 UTC"),
        (1e18, "9999-12-31T23:59:59Z", "9999-12-31 23:59 UTC"),
    ],
)
def test_times_in_words(seconds, iso, shown):
    assert (utc_text(seconds), shown_time(seconds)) == (iso, shown)


def test_no_tool_gets_a_token_of_its_own_server_as_a_secret(tmp_path):
    store = stored_tokens(tmp_path)
    secrets = {
        "OWN": "sesame-token-0123456789",
        "CI": "ci-token-0123456789",
        "ANNA": store.add("anna"),
        "FREE": "x" * 20,
    }
    http = {"token": "${OWN}", "tokens": [{"name": "ci", "hash": token_hash(secrets["CI"])}]}
    (tmp_path / "onetool.yaml").write_text(json.dumps({"http": http, "secrets": "secrets.yaml"}))
    (tmp_path / "secrets.yaml").write_text(json.dumps(secrets))
    (tmp_path / "secrets.yaml").chmod(0o600)
    with App.open(tmp_path / "onetool.yaml") as app:
        secret = app.runtime.http_context.secret
        assert secret("FREE") == secrets["FREE"]
        for name, what in (("OWN", "http.token"), ("CI", "the token ci"), ("ANNA", "the token anna")):
            with pytest.raises(RequestRefusedError, match=f"the secret {name} is {what} of this server"):
                secret(name)
