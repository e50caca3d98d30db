"""`onetool check` about tokens and JWTs: patterns that fit nothing, tokens that end, names that two have."""

import time

import pytest
from document_stores import in_home, stored_tokens

from onetool.app import App
from onetool.core.text import utc_text
from onetool.services.access_tokens import DOCUMENT

HASH = "sha256:" + "ab" * 32


def told(folder, text):
    (folder / "onetool.yaml").write_text(text)
    with App.open(folder / "onetool.yaml") as app:
        return [(one.key, one.severity, one.message, one.hint) for one in app.mistakes]


def token(**fields):
    parts = ", ".join(f'{key}: "{value}"' for key, value in fields.items() if key != "tools")
    tools = f", tools: [{fields['tools']}]" if "tools" in fields else ""
    return f"http: {{tokens: [{{hash: '{HASH}', {parts}{tools}}}]}}\n"


def test_patterns_that_fit_no_tool_are_told_with_the_nearest(tmp_path):
    found = told(tmp_path, token(name="ci", tools="time.*, tiem.*, fs.raed_file"))
    assert [(key, severity, message) for key, severity, message, _ in found] == [
        ("http.tokens[0].tools", "warning", "no tool matches tiem.*"),
        ("http.tokens[0].tools", "warning", "no tool is called fs.raed_file"),
    ]
    assert ("time.*" in found[0][3], "fs.read_file" in found[1][3]) == (True, True)


def test_those_of_servers_that_have_not_listed_their_tools_may_come(tmp_path):
    servers = "servers: {docs: {url: 'http://127.0.0.1:9/mcp'}}\n"
    found = told(tmp_path, servers + token(name="ci", tools="docs.*, docs.read, do*.x, tiem.*"))
    assert [message for _, _, message, _ in found] == ["no tool matches tiem.*"]


def test_grants_of_jwts_and_a_missing_address(tmp_path):
    jwt = "scopes: {'tools:call': {tools: [tiem.*]}}, claims: {groups: {a: {tools: [fs.*, raed]}}}"
    found = told(tmp_path, f"http: {{jwt: {{issuer: 'https://id.example', audience: x, {jwt}}}}}\n")
    assert [(key, message) for key, _, message, _ in found] == [
        (
            "http.jwt",
            "without http.url, clients get the address of their own request, which is wrong behind a proxy",
        ),
        ("http.jwt.scopes['tools:call'].tools", "no tool matches tiem.*"),
        ("http.jwt.claims.groups['a'].tools", "no tool is called raed"),
    ]
    assert {severity for _, severity, _, _ in found} == {"warning"}
    with_url = f"http: {{url: 'https://t.example', jwt: {{issuer: 'https://id.example', {jwt}}}}}\n"
    assert "http.jwt" not in [key for key, *_ in told(tmp_path, with_url)]


@pytest.mark.parametrize(("days", "words"), [(-1, "ci expired on "), (13, "ci expires on "), (15, None)])
def test_a_token_that_ends_soon(tmp_path, days, words):
    found = told(tmp_path, token(name="ci", expires=utc_text(time.time() + days * 86400)))
    assert [(key, severity) for key, severity, *_ in found] == (
        [("http.tokens[0].expires", "warning")] if words else []
    )
    assert all(message.startswith(words) and "tokens add ci --print" in hint for _, _, message, hint in found)


def test_a_name_that_is_stored_too_is_an_error_and_the_hash_is_not_shown(tmp_path):
    assert told(tmp_path, token(name="ci")) == []
    store = stored_tokens(tmp_path)
    store.add("ci")
    ((key, severity, message, _),) = told(tmp_path, token(name="ci"))
    assert (key, severity) == ("http.tokens[0].name", "error")
    assert HASH not in message
    in_home(tmp_path, "tokens").write(DOCUMENT, b"{")
    ((key, severity, message, _),) = told(tmp_path, token(name="ci"))
    assert (key, severity, "are damaged" in message) == ("http.tokens", "error", True)


def test_a_file_of_tokens_that_is_not_used_is_an_error_and_a_revoked_token_is_told(tmp_path):
    (tmp_path / "onetool.yaml").touch()
    store = stored_tokens(tmp_path)
    text = store.add("ci")
    assert told(tmp_path, "menu: run\n") == []
    store.revoke_hash(HASH, "old")
    assert [(one[1], one[2]) for one in told(tmp_path, token(name="old"))] == [
        ("warning", "old was revoked and is refused")
    ]
    in_home(tmp_path, "tokens").write(DOCUMENT, b"{")
    ((_, severity, message, _),) = told(tmp_path, "menu: run\n")
    assert (severity, "are damaged" in message, text in message) == ("error", True, False)
