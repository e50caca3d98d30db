"""What a request without a credential may: only if it is really local, with the role of `http.local` or `edit`."""

import asyncio
import json

import httpx
import pytest
from helpers import cli
from interfaces.http.conftest import ORIGIN, TOKEN, Served
from interfaces.http.matrix import HOST, OPEN, cases, exchange
from interfaces.http.matrix import served as made
from interfaces.http.test_mount import served

import onetool
from onetool import App

BEARER = [("Authorization", f"Bearer {TOKEN}")]
PROXIES = ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Port", "Forwarded", "Via", "X-Real-IP")


SILENT = {"url": "https://tools.example"}  # nginx sends the Host of its upstream and no header of a proxy by default
NAMES = {"hosts": ["tools.example"]}
PAGES = {"origins": [ORIGIN, "http://localhost:3000"]}
FORWARDED = {"X-Forwarded-For": "10.0.0.7"}
# The config's `http`, headers, the Host, and the peer.
STRANGERS = {
    **{name: ({}, {name: "10.0.0.7"}, HOST, "127.0.0.1") for name in (*PROXIES, "X-Forwarded-Host", "x-forwarded-x")},
    "an empty header of a proxy": ({}, {"X-Forwarded-For": ""}, HOST, "127.0.0.1"),
    "a proxy that names this machine": ({}, {"X-Forwarded-For": "127.0.0.1"}, "localhost", "127.0.0.1"),
    "a proxy on IPv6": ({}, {"Forwarded": "for=10.0.0.7"}, "[::1]:8765", "::1"),
    "a proxy, with http.local": ({"local": "edit"}, FORWARDED, HOST, "127.0.0.1"),
    "a proxy, with a token of its own": ({}, {**FORWARDED, "Authorization": "Bearer abc"}, HOST, "127.0.0.1"),
    "a proxy, with a password": ({}, {**FORWARDED, "Authorization": "Basic eDp5"}, HOST, "127.0.0.1"),
    "a silent proxy": (SILENT, {}, HOST, "127.0.0.1"),
    "a silent proxy, with http.local": ({**SILENT, "local": "call"}, {}, HOST, "127.0.0.1"),
    "a silent proxy, with a wrong token": (SILENT, {"Authorization": "Bearer abc"}, HOST, "127.0.0.1"),
    "a proxy at an address": ({"url": "http://192.168.1.5:8765"}, {}, HOST, "127.0.0.1"),
    "a proxy at an IPv6 address": ({"url": "http://[2001:db8::1]"}, {}, HOST, "127.0.0.1"),
    "a proxy that keeps Host": (SILENT, {}, "tools.example", "127.0.0.1"),
    "a name of http.hosts": (NAMES, {}, "tools.example", "127.0.0.1"),
    "the same, spelled otherwise": (NAMES, {}, "Tools.Example.:8765", "127.0.0.1"),
    "a silent proxy of http.hosts": (NAMES, {}, HOST, "127.0.0.1"),
    "an address of http.hosts": ({"hosts": ["[2001:db8::1]:443"]}, {}, "localhost", "127.0.0.1"),
    "one of http.hosts is another machine": ({"hosts": ["localhost:9", "10.0.0.7"]}, {}, HOST, "127.0.0.1"),
    "a page of http.origins": (PAGES, {"Origin": ORIGIN}, HOST, "127.0.0.1"),
    "the same, with http.local": ({**PAGES, "local": "edit"}, {"Origin": ORIGIN}, HOST, "127.0.0.1"),
    "another machine": ({}, {}, HOST, "10.0.0.7"),
    "another machine, with http.local": ({"local": "edit"}, {}, HOST, "10.0.0.7"),
    "another machine on IPv6": ({}, {}, HOST, "2001:db8::7"),
    "another machine as mapped address": ({}, {}, HOST, "::ffff:10.0.0.7"),
    "a neighbour": ({}, {}, HOST, "fe80::1%eth0"),
    "a peer without address": ({}, {}, HOST, None),
    "a peer with a name": ({}, {}, HOST, "localhost.evil.example"),
}
REFUSED = {
    "a rebound name": ({}, {}, "evil.example", "127.0.0.1", 421),
    "a rebound name of this machine": ({}, {}, "127.0.0.1.evil.example", "127.0.0.1", 421),
    "a page": ({}, {"Origin": "https://evil.example"}, HOST, "127.0.0.1", 403),
    "a page without origin": ({}, {"Origin": "null"}, HOST, "127.0.0.1", 403),
    "a link or image of a page": ({}, {"Sec-Fetch-Site": "cross-site"}, HOST, "127.0.0.1", 403),
    "a page at another port": ({}, {"Origin": "http://127.0.0.1:3000"}, HOST, "127.0.0.1", 403),
}
LOCALS = {
    "a program": ({}, {}, HOST, "127.0.0.1"),
    "localhost": ({}, {}, "LocalHost.:8765", "127.0.0.9"),
    "IPv6": ({}, {}, "[0:0::1]:8765", "::1"),
    "a mapped address": ({}, {}, HOST, "::ffff:127.0.0.1"),
    "the page": ({}, {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}, HOST, "127.0.0.1"),
    "a page of this machine": (PAGES, {"Origin": "http://localhost:3000"}, HOST, "127.0.0.1"),
    "names of this machine": ({"url": "http://localhost:80", "hosts": ["127.0.0.1:9"]}, {}, HOST, "127.0.0.1"),
    "an unknown token": ({}, {"Authorization": "Bearer abc"}, HOST, "127.0.0.1"),
}


def asked(site, path, method, headers, host, peer):
    """The status of a request, and what /login says about its caller."""

    async def both():
        options = {"headers": list(headers.items()), "host": host, "client": None if peer is None else (peer, 5)}
        status, _, _ = await exchange(site, path, method, **options)
        return status, json.loads((await exchange(site, "/login", "GET", **options))[2])

    return asyncio.run(both())


@pytest.fixture
def site(tmp_path):
    opened = []

    def make(config, **more):
        app, site = made(tmp_path / "it", {"http": config, **more})
        opened.append(app)
        return site

    yield make
    for app in opened:
        app.close()


@pytest.mark.attack("credentials")
@pytest.mark.parametrize("way", STRANGERS)
def test_strangers_are_not_let_in(site, way):
    config, *request = STRANGERS[way]
    assert asked(site(config), "/tools/tools", "GET", *request) == (401, {"needed": True, "signedIn": False})


@pytest.mark.attack("credentials")
@pytest.mark.parametrize("way", REFUSED)
def test_pages_and_rebound_names_are_refused(site, way):
    config, *request, status = REFUSED[way]
    assert asked(site(config), "/tools/tools", "GET", *request)[0] == status


@pytest.mark.parametrize("way", LOCALS)
def test_local_requests_are_let_in(site, way):
    config, *request = LOCALS[way]
    status, caller = asked(site(config), "/tools/tools", "GET", *request)
    assert (status, caller["needed"], caller["role"]) == (200, False, "edit")
    if "Authorization" not in request[0]:
        status, caller = asked(site({**config, "local": "call", "token": TOKEN}), "/tools/tools", "GET", *request)
        assert (status, caller["needed"], caller["role"]) == (200, True, "call")


@pytest.mark.attack("credentials")
def test_strangers_reach_no_route(site):
    it = site({}, ask={"provider": "openai", "model": "x", "base_url": "http://127.0.0.1:9/v1"})

    async def statuses():
        return {case: (await exchange(it, *case, FORWARDED.items()))[0] for case in cases(it) if case not in OPEN}

    found = asyncio.run(statuses())
    assert {"/mcp", "/call/nothing.here", "/run", "/ask", "/events", "/status", "/openapi.json"} <= {
        path for path, _ in found
    }
    assert {case: status for case, status in found.items() if status != 401} == {}


@pytest.mark.attack("credentials")
@pytest.mark.parametrize(("hosts", "settings"), [(["tools.example"], {}), ([], NAMES)])
def test_a_web_app_with_another_name_lets_nobody_in(tmp_path, hosts, settings):
    (tmp_path / "onetool.yaml").write_text(json.dumps({"http": settings}))
    with App.open(tmp_path / "onetool.yaml") as app, served(onetool.asgi(app, hosts=hosts)) as url:
        for host in ("tools.example", "localhost"):
            assert httpx.get(f"{url}/tools/tools", headers={"Host": host}).status_code == 401


def http(**more):
    return {"http": {"token": TOKEN, "origins": [ORIGIN], **more}}


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """A server with a token, where everybody on this machine may call."""
    running = Served(tmp_path_factory.mktemp("local"), "--port", "0", config=http(local="call"), real=True)
    yield running
    assert running.stop() == 0


def role(server, headers=(), host=None):
    said = server.ask("/login", headers=headers, host=host).json
    return said.get("role") if said.get("signedIn", True) else None


def test_clients_on_this_machine_need_no_token(local):
    assert role(local) == "call"
    assert local.ask("/call/time.now", "POST").status == 200
    refused = local.ask("/trust")
    assert (refused.status, refused.code) == (403, "token_needed")
    assert role(local, BEARER) == "admin"
    assert role(local, host=f"localhost:{local.port}") == "call"
    assert role(local, [("Origin", f"http://127.0.0.1:{local.port}")]) == "call"  # its own page


def test_the_role_is_that_of_the_config(serve):
    assert role(serve(config=http(local="edit"))) == "edit"
    assert role(serve(config={"http": {"local": "call"}})) == "call"  # also where no credential is needed
    assert role(serve(config=http())) is None


@pytest.mark.attack("credentials")
@pytest.mark.parametrize("header", PROXIES)
def test_what_a_proxy_sends_needs_a_token(local, header):
    refused = local.ask("/call/time.now", "POST", [(header, "127.0.0.1")])
    assert (refused.status, refused.code) == (401, "unauthorized")
    assert role(local, [(header, "127.0.0.1"), *BEARER]) == "admin"


@pytest.mark.attack("credentials")
def test_pages_of_others_need_a_token(local):
    assert local.ask("/call/time.now", "POST", [("Origin", ORIGIN)]).status == 401
    assert local.ask("/call/time.now", "POST", [("Origin", "https://evil.example")]).status == 403
    assert local.ask("/call/time.now", "POST", host="evil.example").status == 421


@pytest.mark.attack("credentials")
@pytest.mark.parametrize("shown", ["Bearer wrong", "Bearer ots_wrong", "Basic eDp5", "Bearer", ""])
def test_a_wrong_credential_is_refused(local, shown):
    assert local.ask("/call/time.now", "POST", [("Authorization", shown)]).status == 401


@pytest.mark.attack("credentials")
def test_it_does_not_count_on_other_addresses(serve):
    server = serve("--host", "0.0.0.0", config=http(local="edit"))
    assert role(server) is None
    assert "it has no effect, because the server listens on 0.0.0.0" in server.log_file.read_text()


@pytest.mark.attack("credentials")
def test_it_does_not_count_behind_a_proxy_that_says_nothing(serve):
    """nginx sends the Host of its upstream, and none of the headers of a proxy, unless it is told to."""
    server = serve(config=http(local="edit", url="https://tools.example"))
    assert role(server) is None
    assert role(serve(config=http(local="edit", url="http://localhost:8080"))) == "edit"


@pytest.mark.attack("credentials")
def test_it_does_not_count_in_a_web_app(tmp_path):
    (tmp_path / "onetool.yaml").write_text(json.dumps(http(local="edit")))
    with App.open(tmp_path / "onetool.yaml") as app, served(onetool.asgi(app)) as url:
        assert httpx.get(f"{url}/tools/tools").status_code == 401


@pytest.mark.long  # as with MCP in test_page_links.py
def test_workers_pass_such_calls_on(serve):
    server = serve("--workers", "2", config=http(local="call"), real=True)
    assert {server.ask("/call/time.now", "POST").status for _ in range(8)} == {200}


def test_serve_and_check_say_that_it_is_on(local, tmp_path):
    assert "clients on this machine need no credential and have the role call" in local.log_file.read_text()
    for more, said in (
        ({}, "clients on this machine need no credential and have the role edit"),
        ({"host": "0.0.0.0"}, "it has no effect, because the server listens on 0.0.0.0"),
        (SILENT, "it has no effect, because http.url or http.hosts says that a proxy sends requests"),
        (NAMES, "it has no effect, because http.url or http.hosts says that a proxy sends requests"),
    ):
        (tmp_path / "onetool.yaml").write_text(json.dumps(http(local="edit", **more)))
        done = cli("--config", "onetool.yaml", "check", "--json", cwd=tmp_path)
        assert (done.returncode, [one["message"] for one in json.loads(done.stdout)]) == (0, [said])


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"url": "https://a.example"}, "http.url"),
        ({"hosts": ["a.example"]}, "http.hosts"),
        ({"url": "http://127.0.0.1:8765"}, None),
        ({"url": "https://a.example", "token": TOKEN}, None),
    ],
)
def test_serve_and_check_say_that_a_proxy_needs_a_token(serve, tmp_path, settings, key):
    message = "clients come from other machines, so they need a token, and this server has none"
    assert (message in serve(config={"http": settings}).log_file.read_text()) is (key is not None)
    (tmp_path / "onetool.yaml").write_text(json.dumps({"http": settings}))
    done = cli("--config", "onetool.yaml", "check", "--json", cwd=tmp_path)
    assert [one["key"] for one in json.loads(done.stdout) if one["message"] == message] == ([key] if key else [])


@pytest.mark.parametrize(
    ("token", "is_said"), [("sesame", True), ("sesame-token-01", True), ("sesame-token-012", False)]
)
def test_serve_and_check_say_that_a_token_is_short(serve, tmp_path, token, is_said):
    message = "it should have at least 16 characters, because others can guess a shorter one"
    assert (message in serve(config={"http": {"token": token}}).log_file.read_text()) is is_said
    (tmp_path / "onetool.yaml").write_text(json.dumps({"http": {"token": token}}))
    done = cli("--config", "onetool.yaml", "check", "--json", cwd=tmp_path)
    assert [one["key"] for one in json.loads(done.stdout) if one["message"] == message] == ["http.token"] * is_said


@pytest.mark.attack("credentials")
@pytest.mark.parametrize(("before", "after"), [({}, {"local": "edit"}), ({"local": "call"}, {})])
def test_a_change_waits_for_a_reload(serve, before, after):
    """A server on this machine reads its settings again by itself: a file that is half written opens nothing."""
    config = {"http": before} if before else {"http": {"token": TOKEN}}
    server = serve(config=config, real=True)
    known = role(server)
    (server.folder / "onetool.yaml").write_text(json.dumps({"http": config["http"] | after} if after else {}))
    server.log(wait_for="http.local")
    assert role(server) == known
