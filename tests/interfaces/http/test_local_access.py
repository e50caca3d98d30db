"""`http.local`: what clients on this machine may without a credential, also where the server has some."""

import json

import httpx
import pytest
from helpers import cli
from interfaces.http.conftest import ORIGIN, TOKEN, Served
from interfaces.http.test_mount import served

import onetool
from onetool import App

BEARER = [("Authorization", f"Bearer {TOKEN}")]
PROXIES = ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Port", "Forwarded", "Via", "X-Real-IP")


def http(**more):
    return {"http": {"token": TOKEN, "hosts": ["tools.example"], "origins": [ORIGIN], **more}}


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
def test_an_open_server_gives_no_more_to_a_proxy(serve):
    server = serve(config={"http": {"local": "call"}})
    assert role(server, [("X-Forwarded-For", "10.0.0.1")]) == "call"


@pytest.mark.attack("credentials")
def test_other_names_and_pages_of_others_need_a_token(local):
    assert local.ask("/call/time.now", "POST", host="tools.example").status == 401
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
    assert "http.local" not in server.greeting


@pytest.mark.attack("credentials")
def test_it_does_not_count_behind_a_proxy_that_says_nothing(serve):
    """nginx sends the Host of its upstream, and none of the headers of a proxy, unless it is told to."""
    server = serve(config=http(local="edit", url="https://tools.example"))
    assert role(server) is None
    assert "http.local" not in server.greeting
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
    assert "http.local: programs on this machine need no token, and have the role call." in local.greeting
    for more, said in (
        ({}, "clients on this machine need no credential and have the role edit"),
        ({"host": "0.0.0.0"}, "it has no effect, because the server listens on 0.0.0.0"),
        ({"url": "https://a.example"}, "it has no effect, because http.url says that a proxy sends requests"),
    ):
        (tmp_path / "onetool.yaml").write_text(json.dumps(http(local="edit", **more)))
        done = cli("--config", "onetool.yaml", "check", "--json", cwd=tmp_path)
        assert (done.returncode, [one["message"] for one in json.loads(done.stdout)]) == (0, [said])


@pytest.mark.parametrize(
    ("settings", "messages"),
    [
        ({"url": "https://a.example"}, ["Everyone who reaches https://a.example has the role edit"]),
        ({"url": "http://127.0.0.1:8765"}, []),
        ({"url": "https://a.example", "token": TOKEN}, []),
    ],
)
def test_check_says_that_a_proxy_lets_everybody_in(tmp_path, settings, messages):
    (tmp_path / "onetool.yaml").write_text(json.dumps({"http": settings}))
    done = cli("--config", "onetool.yaml", "check", "--json", cwd=tmp_path)
    found = [one["message"] for one in json.loads(done.stdout) if one["key"] == "http.url"]
    assert [one.rpartition(":")[0] for one in found] == messages


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
