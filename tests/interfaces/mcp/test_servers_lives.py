"""Processes behind ours: what a reload does to them, what they get to see, and that none outlives us."""

import signal

import pytest
from helpers import until
from interfaces.mcp.peers import StdioPeer
from interfaces.mcp.upstreams import Site, listen, names, said, up
from sources.mcp_servers.harness import is_gone
from sources.mcp_servers.nasty.http_server import HttpServer

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


@pytest.mark.long
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
    assert "late__echo" not in names(peer)
    site.config({"late": site.upstream(), "slow": site.upstream(env={"GATE": str(site.file("never"))})})
    peer.reload()
    peer.hear("notifications/tools/list_changed")
    up(peer, "late")
    number = pid(peer, "late")

    (site.folder / "onetool.yaml").write_text("servers: [")
    peer.reload()
    until(lambda: "Not reloaded" in peer.log())
    assert pid(peer, "late") == number

    site.config({"late": site.upstream()})  # one that is still starting can be dropped
    peer.reload()
    until(lambda: '"slow"' not in peer.text("ot__health"))
    assert pid(peer, "late") == number

    site.config({})
    peer.reload()
    until(lambda: "late__echo" not in names(peer))
    assert is_gone(number)


# What they see of us


def test_nothing_of_a_client_reaches_the_servers(site):
    with HttpServer() as http:
        servers = {
            "web": {"url": http.url("ok"), "headers": {"X-Key": "mine"}},
            "here": {**site.upstream(env={"MINE": "1"}), "inherit": False},
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
            trace = "0af7651916cd43dd8448eb211c80319c"
            request = said(peer, "here__request", meta={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
            assert request["method"] == "tools/call"
            assert trace not in str(request)  # without `otel`, servers get no trace
        called = [request for request in http.requests if request.method == "tools/call"]
        assert len(called) == len(peers)
        for request in http.requests:
            assert request.headers["x-key"] == "mine"
            assert "authorization" not in request.headers
            assert TOKEN not in str(request.headers)


# No orphan


@pytest.mark.long
@pytest.mark.parametrize(("way", "how"), [("stdio-new", "goodbye"), ("http-old", "SIGTERM"), ("stdio-old", "SIGKILL")])
def test_nobody_is_left_behind(site, way, how):
    """Neither of servers that heed nothing, nor of those that are starting or have failed to; nor whom they started."""
    slow = site.upstream(env={"STUBBORN": "yes", "GATE": str(site.file("never"))})
    site.config({"up": site.upstream(env={"STUBBORN": "yes"}), "slow": slow, "fails": _fails(site)})
    peer = site.peer(way)
    up(peer, "up")
    until(lambda: "no license key" in peer.text("ot__health"))
    assert len(set(site.started())) == 4
    (failed, *_) = map(int, (site.folder / "failed").read_text().split())
    assert is_gone(failed)  # though it is tried again
    if how == "goodbye":
        assert peer.close() == 0
    else:
        process = peer.process if isinstance(peer, StdioPeer) else site.server.process
        process.send_signal(getattr(signal, how))
        process.wait(20)
    assert site.left(within=10) == []
    assert all(map(is_gone, map(int, (site.folder / "failed").read_text().split())))


def _fails(site):
    """Its child is noted in a place of its own."""
    return site.upstream(env={"STUBBORN": "start", "PIDS": str(site.folder / "failed")})
