"""What clients are told about where they get a token: RFC 9728, and the header WWW-Authenticate."""

import asyncio
import re

import msgspec
import pytest

from onetool.config.model import Grant, HttpConfig, JwtConfig
from onetool.http.asgi import HttpError
from onetool.interfaces.http.jwt_token import METADATA_PATH, JwtError, ResourceMetadata, challenge, refusal

ISSUER, URL = "https://id.example.com", "https://tools.example.com"
SCOPES = {"tools:call": Grant(), "tools:read": Grant(), "tools:admin": Grant(role="admin"), 'a "b"': Grant()}
HTTP = HttpConfig(url=URL, jwt=JwtConfig(issuer=ISSUER, scopes=SCOPES))


def scope(path, method="GET", **more):
    return {"path": path, "method": method, "headers": [(b"host", b"127.0.0.1:8765")], "scheme": "http", **more}


def ask(path, http=HTTP, **more):
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(ResourceMetadata(lambda: http)(scope(path, **more), None, send))
    start, body = sent
    return start["status"], dict(start["headers"]), body["body"]


@pytest.mark.parametrize(("path", "resource"), [(METADATA_PATH, URL), (f"{METADATA_PATH}/mcp", f"{URL}/mcp")])
def test_metadata(path, resource):
    status, headers, body = ask(path)
    assert status == 200
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"access-control-allow-origin"] == b"*"
    assert msgspec.json.decode(body) == {
        "resource": resource,
        "authorization_servers": [ISSUER],
        "scopes_supported": ["tools:call", "tools:read", "tools:admin"],
        "bearer_methods_supported": ["header"],
        "resource_name": "OneTool",
    }


def test_without_an_address_of_its_own_the_request_tells_it():
    http = msgspec.structs.replace(HTTP, url=None)
    assert msgspec.json.decode(ask(METADATA_PATH, http)[2])["resource"] == "http://127.0.0.1:8765"
    mounted = ask(f"{METADATA_PATH}/mcp", http, root_path="/tools")[2]
    assert msgspec.json.decode(mounted)["resource"] == "http://127.0.0.1:8765/tools/mcp"


def test_a_slash_at_the_end_of_the_address():
    http = msgspec.structs.replace(HTTP, url=f"{URL}/")
    assert msgspec.json.decode(ask(f"{METADATA_PATH}/mcp", http)[2])["resource"] == f"{URL}/mcp"


def test_preflight_and_head():
    status, headers, _ = ask(METADATA_PATH, method="OPTIONS")
    assert (status, headers[b"access-control-allow-origin"]) == (204, b"*")
    assert ask(METADATA_PATH, method="HEAD")[2] == b""


def test_without_jwt_there_is_none():
    with pytest.raises(HttpError) as caught:
        ask(METADATA_PATH, HttpConfig())
    assert caught.value.status == 404


def parts(header):
    name, value = header
    assert name == b"www-authenticate"
    text = value.decode("ascii")
    assert text.startswith("Bearer ")
    return dict(re.findall(r'(\w+)="([^"]*)"', text))


def test_challenge_without_a_token():
    assert parts(challenge(HTTP, scope("/call/x"))) == {
        "realm": "onetool",
        "scope": "tools:call tools:read",  # no more than is needed
        "resource_metadata": f"{URL}{METADATA_PATH}",
    }


def test_challenge_of_mcp_names_its_own_metadata():
    assert parts(challenge(HTTP, scope("/mcp")))["resource_metadata"] == f"{URL}{METADATA_PATH}/mcp"


def test_challenge_with_a_token_that_is_refused():
    error = JwtError("invalid_token", 'it has "quotes", \\ and\r\nX-Evil: é')
    found = parts(challenge(HTTP, scope("/mcp"), error))
    assert found["error"] == "invalid_token"
    assert found["error_description"] == "it has 'quotes', ' and''X-Evil: '"


def test_challenge_for_more_scopes_names_all_that_would_do():
    found = parts(challenge(HTTP, scope("/mcp"), JwtError("insufficient_scope", "no")))
    assert (found["error"], found["scope"]) == ("insufficient_scope", "tools:call tools:read tools:admin")


def test_challenge_without_jwt():
    assert parts(challenge(HttpConfig(), scope("/mcp"))) == {"realm": "onetool"}


def test_refusals():
    said = [refusal(HTTP, scope("/mcp"), JwtError(code, "why")) for code in ("invalid_token", "insufficient_scope")]
    assert [(one.status, one.code, str(one)) for one in said] == [
        (401, "unauthorized", "why"),
        (403, "forbidden", "why"),
    ]
    assert all(parts(next(iter(one.headers)))["error_description"] == "why" for one in said)
    away = refusal(HTTP, scope("/mcp"), JwtError("temporarily_unavailable", "why", 7))
    assert (away.status, list(away.headers)) == (503, [(b"retry-after", b"7")])
