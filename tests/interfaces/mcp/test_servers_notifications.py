"""Servers that have other tools while everything is read again: every client hears of what is other, and once."""

import asyncio
import json

import pytest
from helpers import until_async
from interfaces.mcp.upstreams import Site, listen, names, up

from onetool import App
from onetool.interfaces.mcp.client import RemoteClient
from onetool.interfaces.mcp.notifications import follow, reload
from onetool.interfaces.mcp.service import ChangeListener, Service
from onetool.sources.mcp_servers.server_cache import Offers, ServerListing

CHANGED = "notifications/tools/list_changed"
PATIENCE = 60


@pytest.fixture
def app(tmp_path):
    """Its server never starts: what it tells is told by the tests."""
    config = tmp_path / "onetool.yaml"
    config.write_text(json.dumps({"menu": "direct", "servers": {"one": {"command": "never-started"}}}))
    with App.open(config) as app:
        app.connect = lambda: None
        yield app


def tells(app, *tools):
    definitions = [{"name": name, "description": "x", "inputSchema": {"type": "object"}} for name in tools]
    app.servers.listing_received(app.servers.proxy("one"), ServerListing(definitions, Offers(), "1", "auto"))


def heard_in(app, scene):
    """What a client hears while this goes on."""

    async def run():
        service, heard = Service(app, None, None), []
        service.changes.add(ChangeListener(lambda method, params: heard.append(method), RemoteClient()))
        follow(service)
        service.menus.of(RemoteClient())
        await scene(service)
        async with asyncio.timeout(PATIENCE):
            await until_async(lambda: CHANGED in heard)
        await asyncio.sleep(0.4)  # nothing more comes
        service.close()
        return heard

    return asyncio.run(run())


def test_a_change_without_a_reload_is_told_once(app):
    async def scene(service):
        await asyncio.to_thread(tells, app, "a")

    assert heard_in(app, scene).count(CHANGED) == 1


def test_a_change_that_is_due_is_told_though_everything_is_read_again(app):
    async def scene(service):
        tells(app, "a")
        await reload(service)

    assert heard_in(app, scene).count(CHANGED) == 1


def test_a_change_in_the_middle_of_a_reload_is_told(app, monkeypatch):
    again = app.reload

    def reload_and_change(**how):
        tells(app, "a")
        again(**how)
        tells(app, "a", "b")

    monkeypatch.setattr(app, "reload", reload_and_change)

    async def scene(service):
        await reload(service)

    assert CHANGED in heard_in(app, scene)
    assert {"one.a", "one.b"} <= {spec.name for spec in app.tools()}


def test_a_reload_that_fails_does_not_swallow_it_either(app):
    async def scene(service):
        tells(app, "a")
        app.config.path.write_text("servers: [")
        await reload(service)

    assert heard_in(app, scene).count(CHANGED) == 1


@pytest.mark.long
@pytest.mark.parametrize("way", ["stdio-old", "http-new"])
def test_a_client_hears_of_tools_that_come_with_a_reload_under_way(tmp_path, way):
    site = Site(tmp_path)
    site.config({"good": site.nasty("ok")}, menu="direct")
    try:
        peer = site.peer(way)
        up(peer, "good")
        listen(peer)
        assert peer.text("good__grow") == "grown"
        peer.reload()
        while "good__grown" not in names(peer):  # who only lists when told to gets there
            peer.hear(CHANGED)
    finally:
        site.close()
