"""Pages of other origins get nothing: what a browser says of a request, and what a request says of its body."""

from itertools import product

import pytest
from helpers import check_each

from onetool.interfaces.rest.routing import API_ROUTES

pytestmark = pytest.mark.attack("other origins")

ID = "01890a5d-0000-7000-8000-000000000001"
PLAIN = [
    place.path.format(
        bundleID=ID,
        toolSlug="now",
        version="1",
        server="s",
        handle="h",
        host="a.example",
        secret="S",
        name="n",
        token="t",
    )
    for place in API_ROUTES.resources
]
ROUTES = [
    "/mcp",
    "/ask",
    "/call/time.now",
    "/openapi.json",
    "/healthz",
    "/login",
    "/assets/index.js",
    "/",
    "/nothing",
    *PLAIN,
]
READING, CHANGING = ("GET", "OPTIONS"), ("POST", "PUT", "PATCH", "DELETE")
JSON = ("Content-Type", "application/json")
NAVIGATION = [("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")]


def site(value):
    return ("Sec-Fetch-Site", value)


# Sec-Fetch-Site


@pytest.mark.parametrize("said", ["cross-site", "same-site", "", "Same-Origin", "same-origin, none", "whatever"])
def test_what_a_browser_calls_foreign_is_refused_on_every_route(server, said):
    def is_refused(path, method):
        reply = server.ask(path, method, [site(said), JSON])
        assert (reply.status, reply.code) == (403, "bad_origin")
        assert not any(name.startswith("access-control") for name in reply.headers)

    check_each(product(ROUTES, (*READING, *CHANGING)), is_refused)


def test_it_is_refused_also_where_the_origin_is_ours_or_it_comes_twice(server):
    own = ("Origin", f"http://127.0.0.1:{server.port}")  # http and https of one name, behind a proxy
    assert server.ask("/mcp", headers=[own, site("cross-site")]).status == 403
    assert server.ask("/mcp", headers=[site("none"), site("none")]).status == 403


def test_our_own_pages_and_what_a_person_typed_are_let_in(server):
    def is_let_in(path, said):
        reply = server.ask(path, headers=[site(said)])
        assert reply.status in (200, 400, 404, 405) or reply.code == "token_needed"

    check_each(product(ROUTES, ["same-origin", "none"]), is_let_in)


def test_a_link_on_another_page_leads_to_our_pages_and_nowhere_else(server):
    for path in ROUTES:
        for said in ("cross-site", "same-site"):
            expected = 200 if path == "/" else 403
            assert server.ask(path, headers=[site(said), *NAVIGATION]).status == expected, path


@pytest.mark.parametrize(
    "more",
    [
        [],
        [("Sec-Fetch-Mode", "navigate")],
        [("Sec-Fetch-Dest", "document")],
        [("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "iframe")],
        [("Sec-Fetch-Mode", "no-cors"), ("Sec-Fetch-Dest", "document")],
        [*NAVIGATION, ("Sec-Fetch-Dest", "iframe")],
        [*NAVIGATION, ("Origin", "http://localhost:3000")],
        [*NAVIGATION, ("Origin", "null")],
    ],
)
def test_what_is_no_such_link_is_refused_there_too(server, more):
    assert server.ask("/", headers=[site("cross-site"), *more]).status == 403


def test_a_form_that_leads_to_our_pages_is_no_link(server):
    assert server.ask("/", "POST", [site("cross-site"), *NAVIGATION, JSON]).status in (403, 405)


def test_a_page_of_the_config_may_whatever_its_browser_calls_it(guarded):
    bearer, origin = ("Authorization", f"Bearer {guarded.token}"), ("Origin", guarded.origin)
    reply = guarded.ask("/mcp", "POST", [bearer, origin, site("cross-site"), JSON], b"{}")
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, guarded.origin)
    assert guarded.ask("/mcp", headers=[bearer, site("cross-site")]).status == 403  # not without its Origin


def test_the_refusal_names_what_to_add(server):
    def said(*headers):
        return server.ask(headers=[site("same-site"), *headers]).json["error"]["message"]

    from_page = said(("Referer", "http://localhost:3000/some/page?with=this"))
    assert 'add "http://localhost:3000" to http.origins' in from_page
    assert "some/page" not in from_page
    assert "add its origin (scheme://host:port) to http.origins" in said()
    assert "add its origin (scheme://host:port) to http.origins" in said(("Referer", 'http://x"y/'))
    null = server.ask(headers=[("Origin", "null")]).json["error"]["message"]
    assert "http.origins" in null
    assert 'add "null"' not in null  # the config takes no such thing


# Behind a proxy that does TLS: it passes the Host on, and speaks plain HTTP to us


@pytest.mark.parametrize("host", ["tools.example", "tools.example:443", "Tools.Example"])
def test_behind_a_proxy_its_own_pages_may(guarded, host):
    bearer = ("Authorization", f"Bearer {guarded.token}")
    own = [bearer, ("Origin", "https://tools.example"), site("same-origin"), JSON]
    assert guarded.ask("/mcp", "POST", own, b"{}", host=host).status == 200
    foreign = [bearer, ("Origin", "https://other.example"), site("cross-site"), JSON]
    assert guarded.ask("/mcp", "POST", foreign, b"{}", host=host).status == 403


def test_behind_a_proxy_with_another_port_its_pages_may_where_the_port_is_passed_on(guarded):
    own = [("Authorization", f"Bearer {guarded.token}"), ("Origin", "https://tools.example:8443"), JSON]
    assert guarded.ask("/mcp", "POST", own, b"{}", host="tools.example:8443").status == 200
    assert guarded.ask("/mcp", "POST", own, b"{}", host="tools.example").status == 403


# Content-Type

WRONG = ["", "text/plain", "text/plain;charset=UTF-8", "multipart/form-data; boundary=x", "application/jsonfoo",
         "application/x-www-form-urlencoded", "text/json", "application/problem+json", "application/json-patch+json",
         "application/merge-patch+json", "application/zip", "application/json; charset=utf-16", "*/*", "json",
         "text/plain; application/json", "application/json, text/plain", "text/plain, application/json"]  # fmt: skip


@pytest.mark.parametrize("path", ["/mcp", "/ask", f"/tools/bundles/{ID}/tools/now/version/1/invoke"])
@pytest.mark.parametrize("body", [b"", b"{}"])
def test_a_post_says_that_it_is_json_or_is_not_taken(server, path, body):
    for kind in (None, *WRONG):
        reply = server.ask(path, "POST", [] if kind is None else [("Content-Type", kind)], body, kind=None)
        assert (reply.status, reply.code) == (415, "unsupported_media_type"), kind
        assert b"`Content-Type: application/json`" in reply.body
    assert server.ask(path, "POST", [JSON, JSON], body).status == 415
    assert server.ask(path, "POST", [JSON, ("Content-Type", "text/plain")], body).status == 415


@pytest.mark.parametrize(
    "kind",
    ["application/json", "Application/JSON", "application/json; charset=utf-8", 'application/json;charset="UTF-8"'],
)
def test_json_by_any_of_its_spellings_is_taken(server, kind):
    assert server.ask("/mcp", "POST", [("Content-Type", kind)], b"{}").status == 200


@pytest.mark.parametrize("method", CHANGING)
def test_no_route_takes_a_body_of_another_kind(server, method):
    def is_refused(path):
        for headers in ([], [("Content-Type", "text/plain")]):
            reply = server.ask(path, method, headers, b"{}", kind=None)
            assert reply.status in (404, 405, 415), headers
        chunked = [("Content-Type", "text/plain"), ("Transfer-Encoding", "chunked")]
        assert server.ask(path, method, chunked).status in (404, 405, 415)

    check_each(ROUTES, is_refused)


def test_docs_is_an_address_like_any_other_unknown_one(server):
    known, unknown = server.ask("/docs"), server.ask("/nothing")
    assert (known.status, known.code) == (unknown.status, unknown.code) == (404, "not_found")


@pytest.mark.parametrize("method", CHANGING)
def test_where_there_is_nothing_that_is_told_first(server, method):
    assert server.ask("/nothing", method, body=b"x", kind=None).status == 404
    assert server.ask("/tools/nothing", method, body=b"x", kind=None).status == 404
    assert server.ask("/openapi.json", method, body=b"x", kind=None).status == 405
    assert server.ask("/tools/bundles", method, body=b"x", kind=None).status == 405


def test_what_has_no_body_needs_no_kind_unless_a_page_could_send_it_unasked(server):
    path = f"/tools/bundles/{ID}"
    assert server.ask(path, "DELETE").status == 404
    assert server.ask(path, "DELETE", body=b"x", kind=None).status == 415
    assert server.ask(path).status == 404
    assert server.ask("/mcp", "DELETE").status == 200
    assert server.ask("/mcp", "POST", kind=None).status == 415
