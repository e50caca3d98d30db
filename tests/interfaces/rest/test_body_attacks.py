"""Every route that reads a body, with bodies that are none: it says what is wrong, and never fails.

Routes read their bodies themselves, and some run in a thread: an error of either must not be taken for one of ours.
"""

import asyncio
import json

import pytest
from interfaces.http.matrix import address, bearer, exchange, rest_cases, served, token_entry, token_of

pytestmark = [
    pytest.mark.attack("wire", 3),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

BODIES = {
    "nothing": b"",
    "half": b"{",
    "null": b"null",
    "a text": b'"x"',
    "a number": b"1",
    "true": b"true",
    "a list": b"[]",
    "a list of itself": b"[" * 50_000 + b"]" * 50_000,
    "an object of itself": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "the same key twice": b'{"slug": "a", "slug": "b"}',
    "the same key in other letters": b'{"slug": "a", "\\u0073lug": "b"}',
    "NaN": b'{"slug": NaN}',
    "infinity": b'{"args": {"x": 1e999}}',
    "a number of ten thousand digits": b'{"args": {"x": ' + b"9" * 10_000 + b"}}",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "no UTF-8": b'{"slug": "\xff"}',
    "half a pair": b'{"slug": "\\ud800", "code": "\\udfff"}',
    "a null character": b'{"slug": "a\\u0000b", "code": "\\u0000", "name": "\\u0000"}',
    "a line": b'{"slug": "a\\nb", "name": "a\\r\\nSet-Cookie: x=y"}',
    "keys of prototypes": b'{"__proto__": {}, "constructor": 1, "__class__": "x"}',
    "other types": json.dumps(
        {key: [{}] for key in ("slug", "code", "args", "name", "hosts", "value", "prompt")}
    ).encode(),
    "nulls": json.dumps(dict.fromkeys(("slug", "code", "args", "name", "hosts", "value", "prompt"))).encode(),
    "many empty lists": b'{"args": [' + b"[]," * 300_000 + b"[]]}",
    "ZIP": b"PK\x03\x04" + bytes(30),
    "two documents": b"{}{}",
    "a comment": b"{}//",
}
KINDS = {
    "none": None,
    "text": "text/plain",
    "form": "application/x-www-form-urlencoded",
    "parts": "multipart/form-data; boundary=x",
    "another charset": "application/json; charset=utf-16",
    "two": "application/json, text/plain",
    "a longer name": "application/jsonx",
    "a space": "application /json",
}
ROUTES = sorted({(path, method) for path, method in rest_cases() if method in ("POST", "PUT", "PATCH")})
ROUTES += [(address("/call/time.now"), "POST"), ("/login", "POST"), ("/mcp", "POST")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    tokens = [token_entry(role, role=role) for role in ("call", "admin")]
    app, site = served(tmp_path_factory.mktemp("bodies") / "it", {"http": {"tokens": tokens, "max_body_mb": 1}})
    with app:
        yield site


def replies(site, path, method, role, tried):
    """The status and body for each (body, content type)."""

    async def ask():
        found = {}
        for name, (body, kind) in tried.items():

            async def typed(scope, receive, send, kind=kind):
                headers = [one for one in scope["headers"] if one[0] != b"content-type"]
                headers += [] if kind is None else [(b"content-type", kind.encode())]
                await site({**scope, "headers": headers}, receive, send)

            status, headers, text = await exchange(typed, path, method, bearer(token_of(role)), body)
            found[name] = status, headers, text
        return found

    return asyncio.run(ask())


@pytest.mark.parametrize(("path", "method"), ROUTES, ids=[f"{method} {path}" for path, method in ROUTES])
def test_no_body_makes_a_route_fail(site, path, method):
    tried = {name: (body, "application/json") for name, body in BODIES.items()}
    found = replies(site, path, method, "admin", tried)
    assert {name: text[:300] for name, (status, _, text) in found.items() if status >= 500 and status != 503} == {}
    for name, (_, headers, text) in found.items():
        assert b"Traceback" not in text, name
        assert b"set-cookie" not in headers, name
        assert len(text) < 200_000, name


@pytest.mark.parametrize(("path", "method"), ROUTES, ids=[f"{method} {path}" for path, method in ROUTES])
def test_no_other_type_and_no_size_is_read(site, path, method):
    tried = {name: (b'{"slug": "x"}', kind) for name, kind in KINDS.items()}
    found = replies(site, path, method, "admin", tried)
    assert {name: status for name, (status, *_) in found.items() if status not in (400, 404, 415)} == {}
    large = {"large": (b" " * 2**20 * (6 if path != "/login" else 1) + b"{}", "application/json")}
    [(status, _, text)] = replies(site, path, method, "admin", large).values()
    assert status in (413, 404), text[:200]


@pytest.mark.parametrize(("path", "method"), ROUTES, ids=[f"{method} {path}" for path, method in ROUTES])
def test_who_may_not_use_a_route_learns_nothing_by_a_body(site, path, method):
    """The answer is the same for every body: the role counts before anything of it is read."""
    [(status, *_)] = replies(site, path, method, "call", {"valid": (b"{}", "application/json")}).values()
    if status != 403:
        return  # everybody may use it
    tried = {name: (body, "application/json") for name, body in BODIES.items()}
    found = replies(site, path, method, "call", tried)
    assert {name: status for name, (status, *_) in found.items() if status != 403} == {}
    said = {json.loads(text).get("detail") or text for _, _, text in found.values()}
    assert len(said) == 1, said
