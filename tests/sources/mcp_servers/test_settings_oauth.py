"""What `auth:` of a server may say."""

from helpers import each

from onetool.services.secrets import Secret
from onetool.sources.mcp_servers.settings import BearerToken, ClientCredentials, PersonLogin, auth_problems, read


@each(
    ("auth", "meant"),
    [
        (None, None),
        ("abc", BearerToken(token="abc")),
        ("Bearer abc", BearerToken(token="abc")),
        (Secret("abc"), BearerToken(token="abc")),
        ({"type": "bearer", "token": "abc"}, BearerToken(token="abc")),
        ("oauth", PersonLogin()),
        ({"type": "oauth"}, PersonLogin()),
        ({"type": "oauth", "scopes": "a  b", "redirect_port": "8123"}, PersonLogin(scopes="a b", redirect_port=8123)),
        ({"type": "oauth", "scopes": ["a", "b"], "redirect_port": 8123}, PersonLogin(scopes="a b", redirect_port=8123)),
        ({"type": "oauth", "client_id": "me", "client_secret": None}, PersonLogin(client_id="me")),
        (
            {"type": "client_credentials", "client_id": "me", "client_secret": "s"},
            ClientCredentials(client_id="me", client_secret="s"),
        ),
    ],
)
def test_what_is_meant(auth, meant):
    assert list(auth_problems(auth)) == []
    assert read(auth) == meant


@each(
    ("auth", "message"),
    [
        ("", "invalid token"),
        ("two words", "invalid token"),
        ("line\nbreak", "invalid token"),
        ("é", "invalid token"),
        (5, "expected a string or a mapping"),
        (["a"], "expected a string or a mapping"),
        ({}, "auth.type must be one of bearer, oauth, client_credentials"),
        ({"type": "basic"}, "auth.type must be one of"),
        ({"type": "bearer"}, "auth.token is missing"),
        ({"type": "bearer", "token": None}, "auth.token must be a token: one word of ASCII"),
        ({"type": "oauth", "scope": "a"}, "unknown key auth.scope; did you mean scopes?"),
        ({"type": "oauth", "scopes": ""}, "auth.scopes must be a string with spaces between the scopes"),
        ({"type": "oauth", "scopes": [1]}, "auth.scopes must be a string with spaces between the scopes"),
        ({"type": "oauth", "redirect_port": 0}, "auth.redirect_port must be a port: 1 to 65535"),
        ({"type": "oauth", "redirect_port": True}, "auth.redirect_port must be a port: 1 to 65535"),
        ({"type": "oauth", "client_metadata_url": "http://a/b"}, "auth.client_metadata_url must be the URL"),
        ({"type": "oauth", "client_secret": "s"}, "auth.client_secret needs auth.client_id"),
        ({"type": "oauth", "issuer": "elsewhere"}, "auth.issuer must be the URL of the authorization server"),
        ({"type": "client_credentials", "client_id": "me"}, "auth.client_secret is missing"),
    ],
)
def test_what_is_refused(auth, message):
    [(key, text, hint)] = auth_problems(auth)
    assert key == "auth"
    assert message in text
    assert hint is None or "for " in hint or "write the token itself" in hint


def test_no_complaint_repeats_a_value():
    auth = {"type": "oauth", "client_secret": "hidden\x00value", "scopes": "hidden\x00scope", "redirect_port": "hidden"}
    assert len(list(auth_problems(auth))) == 4
    assert "hidden" not in repr(list(auth_problems(auth)))
    assert "hidden" not in repr(read({"type": "bearer", "token": "hidden"}))
