"""A reload, seen from the servers: the old one teaches the new one nothing, and what was a secret stays one."""

import asyncio
from pathlib import Path

import pytest
from helpers import until, until_async
from interfaces.mcp.upstreams import Site
from sources.mcp_servers.harness import call, is_gone, settle, tools_of

from onetool.sources.mcp_servers.server_cache import Offers, ServerListing

SECRET = "tok-abcdefghijklmnop"


def test_one_that_is_replaced_does_not_teach_its_successor(harness):
    gate = harness.folder / "gate"
    with harness.app({"one": harness.nasty("lists_slowly", gate, pin=True)}) as app:
        old = call(app, "one.grow").data
        until(Path(f"{gate}.asked").exists)
        harness.config({"one": harness.nasty("ok", pin=True)})
        app.reload()
        gate.touch()
        assert is_gone(int(old))
        memory = app.servers.proxy("one").cached
        assert (memory.tools, memory.approved) == (None, None)
        assert settle(app)["one"].changed == ()
        assert call(app, "one.echo", text="x").data == "x"
        assert not {"grow", "grown"} <= tools_of(app, "one")


def test_what_is_told_for_a_proxy_that_was_replaced_is_not_heard(harness):
    with harness.app({"one": harness.nasty("ok")}) as app:
        old = app.servers.proxy("one")
        harness.config({"one": harness.nasty("ok", env={"OTHER": "yes"})})
        app.reload()
        assert app.servers.proxy("one") is not old
        app.servers.listing_received(
            old, ServerListing([{"name": "a", "inputSchema": {"type": "object"}}], Offers(), "1", "auto")
        )
        assert app.servers.proxy("one").cached.tools is None
        assert tools_of(app, "one") == set()


def test_secrets_that_were_learnt_are_masked_after_a_reload(harness):
    with harness.app({"one": harness.nasty("ok")}) as app:
        app.servers.mask_also(SECRET)
        assert SECRET not in app.runtime.redact(SECRET)
        for _ in range(2):
            app.reload()
            assert SECRET not in app.runtime.redact(SECRET)
            assert call(app, "one.echo", text=f"it is {SECRET}").data == f"it is {SECRET}"  # its caller has it


def test_secrets_are_masked_in_all_that_a_server_tells(harness):
    with harness.app({"one": harness.nasty("ok")}) as app:
        app.servers.mask_also(SECRET)
        proxy = app.servers.proxy("one")
        words = f"use {SECRET}"
        offers = Offers(
            prompts=({"name": "p", "description": words, "arguments": [{"name": "a", "description": words}]},),
            resources=({"uri": "file:///r", "name": "r", "description": words},),
            templates=({"uriTemplate": "file:///{t}", "name": "t", "description": words},),
        )
        tools = [{"name": "a", "description": words, "inputSchema": {"type": "object"}}]
        app.servers.listing_received(proxy, ServerListing(tools, offers, f"1 {SECRET}", "auto"))
        assert len(app.catalog.prompts) == 1
        assert {"file:///r", "file:///{t}"} <= {one.uri for one in app.catalog.resources}
        shown = [
            app.tools(),
            app.catalog.prompts,
            app.catalog.resources,
            app.servers.statuses(),
            app.health(),
            proxy.cached,
        ]
        for part in shown:
            assert SECRET not in str(part)
        stored = app.runtime.documents("servers")
        assert stored.keys()
        assert not [key for key in stored.keys() if SECRET.encode() in stored.read(key)]  # noqa: SIM118 - no dict


@pytest.mark.parametrize("kind", [list, iter])
def test_those_to_be_settled_may_be_given_as_they_come(harness, kind):
    with harness.app({name: harness.nasty("ok") for name in ("a", "b", "c")}) as app:
        asyncio.run(app.servers.wait_connected(kind(["b", "c"])))
        states = {status.name: status.state for status in app.servers.statuses()}
        assert states == {"a": "idle", "b": "connected", "c": "connected"}


def test_a_call_under_way_ends_with_the_server_that_it_began_with(harness):
    site, file = Site(harness.folder), harness.folder / "file"
    with harness.app({"one": site.upstream()}) as app:
        old = call(app, "one.pid").data

        async def both():
            code = f"[one.waits(file={str(file)!r}, then=''), one.echo(text='after')]"
            slow = asyncio.create_task(app.run(code))
            await until_async(Path(f"{file}.began").exists)
            harness.config({"one": site.upstream(env={"OTHER": "yes"})})
            await asyncio.to_thread(app.reload)
            assert not slow.done()
            new = (await app.run("one.pid()")).value()
            file.touch()
            return new, (await slow).value()

        new, (_, after) = asyncio.run(both())
        assert after == "after"
        assert new != old
        assert is_gone(int(old))  # nobody needs it any more


def test_who_is_left_with_a_call_ends_with_the_app(harness):
    file = harness.folder / "file"
    with harness.app({"one": Site(harness.folder).upstream()}) as app:
        old = call(app, "one.pid").data

        async def left():
            slow = asyncio.create_task(app.run(f"one.waits(file={str(file)!r}, then='')"))
            await until_async(Path(f"{file}.began").exists)
            harness.config({})
            await asyncio.to_thread(app.reload)
            await asyncio.to_thread(app.close)
            slow.cancel()

        asyncio.run(left())
        assert is_gone(int(old))
