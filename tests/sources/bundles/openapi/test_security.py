"""Security schemes become auth, with secrets that are named after the bundle."""

from helpers import each
from sources.bundles.openapi.documents import imported, one, parameter, parameters, sent

KEY = {"type": "apiKey", "name": "X-Key", "in": "header"}
BEARER = {"type": "http", "scheme": "bearer"}
CREDENTIALS = {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "/token", "scopes": {"read": ""}}}}
CODE = {"type": "oauth2", "flows": {"authorizationCode": {"authorizationUrl": "https://x/a", "tokenUrl": "/t"}}}
IMPLICIT = {"type": "oauth2", "flows": {"implicit": {"authorizationUrl": "https://x"}}}


def auth(scheme, scopes=()):
    found = imported(
        {"/x": {"get": {"security": [{"s": list(scopes)}]}}}, components={"securitySchemes": {"s": scheme}}
    )
    assert found.skipped == []
    return found.tools[0][2]["httpImpl"]["request"].get("auth"), found.secrets, found.hosts


@each(
    ("scheme", "made", "secrets"),
    [
        (KEY, {"type": "apiKey", "name": "X-Key", "value": "${SHOP_API_KEY}", "in": "header"}, ["SHOP_API_KEY"]),
        (
            {"type": "apiKey", "name": "k", "in": "query"},
            {"type": "apiKey", "name": "k", "value": "${SHOP_API_KEY}", "in": "query"},
            ["SHOP_API_KEY"],
        ),
        (BEARER, {"type": "bearer", "value": "${SHOP_TOKEN}"}, ["SHOP_TOKEN"]),
        (
            {"type": "http", "scheme": "Basic"},
            {"type": "basic", "username": "${SHOP_USERNAME}", "password": "${SHOP_PASSWORD}"},
            ["SHOP_PASSWORD", "SHOP_USERNAME"],
        ),
        (
            CODE,
            {
                "type": "oauth2",
                "grant": "authorizationCode",
                "authorizationUrl": "https://x/a",
                "tokenUrl": "https://api.example.com/t",
                "clientId": "${SHOP_CLIENT_ID}",
            },
            ["SHOP_CLIENT_ID"],
        ),
        (IMPLICIT, {"type": "bearer", "value": "${SHOP_TOKEN}"}, ["SHOP_TOKEN"]),
        (
            {"type": "openIdConnect", "openIdConnectUrl": "x"},
            {"type": "bearer", "value": "${SHOP_TOKEN}"},
            ["SHOP_TOKEN"],
        ),
    ],
)
def test_each_kind(scheme, made, secrets):
    assert auth(scheme)[:2] == (made, secrets)


def test_client_credentials_have_a_host_of_their_own():
    made, secrets, _ = auth(CREDENTIALS, ["read", "write"])
    assert made == {
        "type": "oauth2", "tokenUrl": "https://api.example.com/token", "clientId": "${SHOP_CLIENT_ID}",
        "clientSecret": "${SHOP_CLIENT_SECRET}", "scope": "read write",
    }  # fmt: skip
    assert secrets == ["SHOP_CLIENT_ID", "SHOP_CLIENT_SECRET"]
    elsewhere = {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "https://login.example.net/t"}}}
    assert auth(elsewhere)[2] == ["api.example.com", "login.example.net"]


def test_a_login_has_a_host_of_its_own_and_is_encrypted():
    elsewhere = {"authorizationUrl": "https://x/a", "tokenUrl": "https://login.example.net/t"}
    made, _, hosts = auth({"type": "oauth2", "flows": {"authorizationCode": elsewhere}}, ["read", "write"])
    assert (made["scope"], hosts) == ("read write", ["api.example.com", "login.example.net"])
    flow = {"authorizationUrl": "http://x.example.com/a", "tokenUrl": "/t"}
    components = {"securitySchemes": {"s": {"type": "oauth2", "flows": {"authorizationCode": flow}}}}
    found = imported({"/x": {"get": {"security": [{"s": []}]}}}, components=components)
    assert "auth" not in found.tools[0][2]["httpImpl"]["request"]
    assert "not encrypted" in found.notes[0].why


def test_the_first_alternative_that_can_be_met():
    components = {"securitySchemes": {"d": {"type": "http", "scheme": "digest"}, "k": KEY, "b": BEARER}}
    tool = one({"security": [{"d": []}, {"k": []}, {"b": []}]}, components=components)
    assert tool["httpImpl"]["request"]["auth"]["type"] == "apiKey"
    found = imported({"/x": {"get": {"security": [{"d": []}]}}}, components=components)
    assert "auth" not in found.tools[0][2]["httpImpl"]["request"]
    assert found.notes[0].why.startswith("it is called without auth: the security scheme 'd'")


def test_two_at_once():
    components = {"securitySchemes": {"app": {**KEY, "name": "X-App"}, "key": KEY, "b": BEARER}}
    tool = one({"security": [{"app": [], "b": [], "key": []}]}, components=components)
    request = tool["httpImpl"]["request"]
    assert request["auth"] == {"type": "bearer", "value": "${SHOP_TOKEN}"}
    # Several of a kind are told apart by their names.
    assert request["headers"] == {"X-App": "${SHOP_APP_API_KEY}", "X-Key": "${SHOP_KEY_API_KEY}"}


def test_for_all_for_none_and_for_those_who_know_better():
    components = {"securitySchemes": {"b": BEARER}}
    paths = {"/x": {"get": {}}, "/y": {"get": {"security": []}}}
    found = imported(paths, components=components, security=[{"b": []}])
    assert ["auth" in tool["httpImpl"]["request"] for _, _, tool in found.tools] == [True, False]
    assert imported(paths, token=True).secrets == ["SHOP_TOKEN"]
    assert imported(paths).secrets == []
    assert imported(paths, token=True, slug="my-shop").secrets == ["MY_SHOP_TOKEN"]


def test_an_argument_never_stands_for_a_secret():
    given = {**parameters(parameter("SHOP_TOKEN")), "security": [{"b": []}]}
    tool = one(given, components={"securitySchemes": {"b": BEARER}})
    assert list(tool["argSchema"]["properties"]) == ["query_SHOP_TOKEN"]
    assert sent(tool, query_SHOP_TOKEN="mine").url.target == "/v1/things?SHOP_TOKEN=mine"
