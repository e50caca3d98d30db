"""Processes behind ours: what a reload does to them, what they get to see, and that none outlives us."""

import os
import signal

import pytest
from interfaces.mcp.servers import until
from interfaces.mcp.upstreams import Site, listen, names, said, up
from sources.mcp_servers.nasty.http_server import HttpServer
from sources.mcp_servers.stage import is_gone

TOKEN = "inbound-token-inbound-token"
GIVEN = {"PATH", "HOME", "LANG", "LANGUAGE"}


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path)
    yield site
    site.close()


def pid(peer, server):
    return int(peer.text(f"{server}__pid"))


# Reload


@pytest.mark.parametrize("way", ["stdio-new", "http-old"])
def test_reload_touches_only_what_has_changed(site, way):
    servers = {name: site.upstream() for name in ("kept", "other", "gone")}
    site.config(servers, menu="direct")
    peer = site.peer(way)
    up(peer, *servers)
    listen(peer)
    file = site.file("wait")
    under_way = peer.begin("tools/call", {"name": "kept__waits", "arguments": {"file": str(file), "then": ""}})
    assert peer.text("kept__count") == "1"
    before = {name: pid(peer, name) for name in servers}

    changed = {"kept": servers["kept"], "other": site.upstream(env={"MINE": "yes"}), "added": site.upstream()}
    site.config(changed, menu="direct")
    peer.reload()
    peer.hear("notifications/tools/list_changed")
    up(peer, *changed)
    assert peer.text("kept__count") == "2"
    assert pid(peer, "kept") == before["kept"]
    assert pid(peer, "other") != before["other"]
    assert pid(peer, "added") not in before.values()
    assert said(peer, "other__environment")["MINE"] == "yes"
    assert "gone__echo" not in names(peer)
    assert is_gone(before["gone"])
    assert is_gone(before["other"])
    assert not under_way.is_answered
    file.touch()
    assert under_way.answer()["result"]["content"][0]["text"] == "it came"


def test_the_first_servers_may_come_with_a_reload_and_the_last_may_go(site):
    site.config({})
    peer = site.peer("stdio-old")
    listen(peer)
    assert "late__echo" not in names(peer)
    site.config({"late": site.upstream()})
    peer.reload()
    peer.hear("notifications/tools/list_changed")
    up(peer, "late")
    number = pid(peer, "late")
    site.config({})
    peer.reload()
    until(lambda: "late__echo" not in names(peer))
    assert is_gone(number)


def test_a_config_that_can_not_be_used_leaves_the_servers_as_they_are(site):
    site.config({"kept": site.upstream()})
    peer = site.peer("stdio-new")
    up(peer, "kept")
    number = pid(peer, "kept")
    (site.folder / "onetool.yaml").write_text("servers: [")
    peer.reload()
    until(lambda: "not reloaded" in peer.log())
    assert pid(peer, "kept") == number


def test_one_that_is_still_starting_can_be_dropped(site):
    site.config({"slow": site.upstream(env={"GATE": str(site.file("never"))}), "kept": site.upstream()})
    peer = site.peer("stdio-new")
    up(peer, "kept")
    site.config({"kept": site.upstream(), "added": site.upstream()})
    peer.reload()
    up(peer, "added")
    assert "slow" not in peer.text("ot__health").partition("servers")[2]


# What they see of us


def test_nothing_of_a_client_reaches_the_servers(site):
    with HttpServer() as http:
        servers = {
            "web": {"url": http.url("ok"), "headers": {"X-Key": "mine"}},
            "here": site.upstream(env={"MINE": "1"}),
        }
        site.config(servers, http={"token": TOKEN})
        peers = [site.peer(f"http-{era}", token=TOKEN) for era in ("old", "new")]
        for peer in peers:
            up(peer, *servers)
            assert peer.text("web__echo", {"text": "hello"}) == "hello"
            environment = said(peer, "here__environment")
            ours = {name for name in environment if not name.startswith("LC_")}
            assert ours <= GIVEN | {"MINE", "PIDS"}
            assert environment["MINE"] == "1"
            assert TOKEN not in str(environment)
        called = [request for request in http.requests if request.method == "tools/call"]
        assert len(called) == len(peers)
        for request in http.requests:
            assert request.headers["x-key"] == "mine"
            assert "authorization" not in request.headers
            assert TOKEN not in str(request.headers)


# No orphan


@pytest.mark.parametrize("way", ["stdio-new", "http-old"])
@pytest.mark.parametrize("how", ["goodbye", "SIGTERM", "SIGKILL"])
def test_nobody_is_left_behind(site, way, how):
    site.config({"bad": site.upstream(env={"STUBBORN": "yes"})})
    peer = site.peer(way)
    up(peer, "bad")
    assert len(site.started()) == 2  # with the one that it started
    process = peer.process if way.startswith("stdio") else site.server.process
    if how == "goodbye":
        assert peer.close() == 0
        if way.startswith("http"):
            return  # it is one of many clients; the server goes on until the end of the test
    else:
        process.send_signal(getattr(signal, how))
        process.wait(20)
    assert site.left(within=10) == []


def test_one_that_fails_to_start_leaves_nobody_behind(site):
    site.config({"bad": site.upstream(env={"STUBBORN": "start"})})
    peer = site.peer("stdio-new")
    until(lambda: site.started())
    until(lambda: "no license key" in peer.text("ot__health"))
    first = site.started()[0]
    assert is_gone(first)  # though it will be tried again
    assert peer.close() == 0
    assert site.left(within=10) == []


def test_killed_while_a_server_is_starting(site):
    gate = site.file("never")
    site.config({"bad": site.upstream(env={"STUBBORN": "yes", "GATE": str(gate)})})
    peer = site.peer("stdio-new")
    until(lambda: site.started())
    os.kill(peer.process.pid, signal.SIGKILL)
    peer.process.wait(20)
    assert site.left(within=10) == []
