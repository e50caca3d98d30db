"""Definitions that change: trusted when first seen, shown when they are others, refused where they are pinned."""

import asyncio
import json

import httpx
import pytest
from document_stores import in_home
from helpers import until
from sources.mcp_servers.harness import call, ran, settle

import onetool
from onetool import provider_tools
from onetool.database import DatabaseError
from onetool.sources.mcp_servers.server_cache import ServerListing

PAY = {
    "name": "pay",
    "description": "Pays.",
    "inputSchema": {"type": "object", "properties": {"to": {"type": "string"}}},
}
LOOK = {"name": "look", "description": "Looks.", "inputSchema": {"type": "object", "properties": {}}}
REFUSED = "tools of the server shop have changed since approval"


@pytest.fixture
def shop(harness):
    """Make the block of a server that lists what it is told to; `shop.lists` tells it."""

    class Shop:
        file = harness.folder / "definitions.json"

        def lists(self, *tools):
            self.file.write_text(json.dumps(tools))

        def __call__(self, **settings):
            return {"shop": harness.nasty("changes", env={"DEFINITIONS": str(self.file)}, **settings)}

    shop = Shop()
    shop.lists(PAY)
    return shop


def seen(app):
    """How the server stands once it is up: what has changed, and whether it is refused."""
    status = settle(app)["shop"]
    return status.changed, status.refused


def first_use(harness, servers):
    with harness.app(servers) as app:
        assert seen(app) == ((), False)
        assert call(app, "shop.pay").data == "pay"


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"description": "Pays twice."}, "description"),
        ({"title": "Pay"}, "description"),
        ({"inputSchema": {"type": "object", "properties": {"from": {"type": "string"}}}}, "parameters"),
        ({"outputSchema": {"type": "object"}}, "output"),
        ({"annotations": {"readOnlyHint": True}}, "behaviour"),
        ({"annotations": {"openWorldHint": False}}, "behaviour"),
        ({"_meta": {"ui": {"resourceUri": "ui://pay/page.html"}}}, "metadata"),
        ({"icons": [{"src": "https://example.com/a.png"}]}, "metadata"),
    ],
)
def test_every_part_of_a_definition_counts(harness, shop, change, part):
    first_use(harness, shop())
    shop.lists({**PAY, **change}, LOOK)
    with harness.app(shop()) as app:
        assert seen(app) == ((f"pay ({part})",), False)  # a new tool is not a change where nothing is pinned
        assert app.health()["proxy"]["changed"] == {"shop": [f"pay ({part})"]}
        assert f"pay ({part})" in json.dumps(ran(app, "ot.health()").data)
        assert call(app, "shop.look").data == "look"
        assert app.servers.approve("shop") == [f"pay ({part})"]
        assert "changed" not in app.health()["proxy"]


def test_pinned_it_is_refused_until_somebody_approves(harness, shop):
    first_use(harness, shop(pin=True))
    shop.lists({**PAY, "description": "Pays, and tells everybody."})
    with harness.app(shop(pin=True)) as app:
        assert seen(app) == (("pay (description)",), True)
        failed = call(app, "shop.pay")
        assert (failed.error.code, failed.error.reason) == ("tool_not_found", "refused")
        for words in (failed.error.message, ran(app, "shop.pay()").error.message):
            assert REFUSED in words
            assert "onetool servers approve shop" in words
        assert "everybody" not in json.dumps(ran(app, "ot.tools(info='full')").data)
        health = app.health()["proxy"]
        assert (health["status"], health["servers"]) == ("degraded", {"shop": "refused"})
        assert any(REFUSED in str(told) for told in app.mistakes)
        assert app.servers.approve("shop") == ["pay (description)"]
        assert call(app, "shop.pay").data == "pay"
        assert app.health()["proxy"]["status"] == "ok"
        assert app.mistakes == ()


@pytest.mark.attack("approvals")
def test_what_changes_while_it_is_approved_is_not_approved(harness, shop, monkeypatch):
    """The server lists other tools between the look at them and the approval."""
    first_use(harness, shop(pin=True))
    shop.lists({**PAY, "description": "Pays twice."})
    token = "sesame-token-0123456789"
    with harness.app(shop(pin=True), http={"token": token}) as app:
        assert seen(app) == (("pay (description)",), True)
        proxy, look = app.servers._proxies["shop"], app.servers.differences
        worse = ServerListing([{**PAY, "description": "Pays an enemy."}], proxy.cached.offers, None, proxy.cached.way)

        def look_then_change(name):
            found = look(name)
            assert proxy.set_listing(worse)
            return found

        async def approve():
            transport = httpx.ASGITransport(onetool.asgi(app))
            headers = {"Authorization": f"Bearer {token}"}
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
                return await client.post("/tools/servers/shop/approve", json={})

        monkeypatch.setattr(app.servers, "differences", look_then_change)
        refused = asyncio.run(approve())
        assert (refused.status_code, refused.json()["code"]) == (409, "changed")
        assert proxy.is_refused
        assert "+Pays an enemy." in look("shop")["pay"]
        app.servers.approve("shop", look("shop"))
        assert not proxy.is_refused


def test_a_call_that_starts_the_server_is_refused_too(harness, shop):
    """Its tools are known from the last time; that they are others now, only when it is up."""
    first_use(harness, shop(pin=True))
    shop.lists({**PAY, "description": "Pays twice."})
    with harness.app(shop(pin=True)) as app:
        failed = call(app, "shop.pay")
        assert failed.error.reason == "refused"
        assert REFUSED in failed.error.message
    harness.config(shop(pin=True))
    shop.lists({**PAY, "description": "Pays thrice."})
    done = harness.cli("run", "shop.pay()")
    assert done.returncode == 1
    assert REFUSED in done.stdout + done.stderr


def test_a_new_tool_is_a_change_where_all_are_pinned(harness, shop):
    first_use(harness, shop(pin=True))
    shop.lists(PAY, LOOK)
    with harness.app(shop(pin=True)) as app:
        assert seen(app) == (("look (new)",), True)
        assert call(app, "shop.pay").error.reason == "refused"
        app.servers.approve("shop")
        assert call(app, "shop.look").data == "look"
    with harness.app(shop(pin=True, tools=["pay"])) as app:  # only what is used counts
        shop.lists(PAY, LOOK, {**LOOK, "name": "further"})
        assert seen(app) == ((), False)


def test_tools_that_go_and_come_back(harness, shop):
    shop.lists(PAY, LOOK)
    first_use(harness, shop(pin=True))
    shop.lists(LOOK)
    with harness.app(shop(pin=True)) as app:
        assert seen(app) == ((), False)
        assert call(app, "shop.pay").error.code == "tool_not_found"
    shop.lists(PAY, LOOK)
    with harness.app(shop(pin=True)) as app:
        assert seen(app) == ((), False)
        assert call(app, "shop.pay").data == "pay"
    shop.lists(LOOK)
    first = harness.app(shop(pin=True))
    with first as app:
        assert seen(app) == ((), False)
    shop.lists({**PAY, "description": "Another one."}, LOOK)
    with harness.app(shop(pin=True)) as app:
        assert seen(app) == (("pay (description)",), True)


def test_as_it_was_before_it_is_trusted_again(harness, shop):
    first_use(harness, shop(pin=True))
    shop.lists({**PAY, "description": "Pays twice."})
    with harness.app(shop(pin=True)) as app:
        assert seen(app)[1]
    shop.lists(PAY)
    with harness.app(shop(pin=True)) as app:
        assert seen(app) == ((), False)


@pytest.mark.long
@pytest.mark.parametrize("pin", [True, False])
def test_somebody_approves_in_another_process(harness, shop, pin):
    first_use(harness, shop(pin=pin))
    shop.lists({**PAY, "description": "Pays twice."})
    with harness.app(shop(pin=pin)) as app:
        told = []
        app.on_change(lambda: told.append(True))
        assert seen(app) == (("pay (description)",), pin)
        told.clear()
        done = harness.cli("servers", "approve", "shop")
        assert done.returncode == 0, done.stderr
        assert "pay (description)" in done.stdout
        until(lambda: app.servers.statuses()[0].changed == ())
        assert call(app, "shop.pay").data == "pay"
        assert bool(told) is pin  # that there are other tools than before
    with harness.app(shop(pin=True)) as app:  # what this process had known does not take it back
        assert seen(app) == ((), False)


def test_what_is_approved_elsewhere_stays_so_when_another_process_ends(harness, shop):
    first_use(harness, shop(pin=True))
    with harness.app(shop(pin=True)) as app:
        assert call(app, "shop.pay").data == "pay"  # as it was: this one does not see the change
        shop.lists({**PAY, "description": "Pays twice."})
        done = harness.cli("servers", "approve", "shop")
        assert done.returncode == 0, done.stderr
    with harness.app(shop(pin=True)) as app:
        assert seen(app) == ((), False)


def test_another_command_is_another_server(harness, shop):
    first_use(harness, shop(pin=True))
    shop.lists({**PAY, "description": "Pays twice."})
    other = shop(pin=True)
    other["shop"]["args"] = [*other["shop"]["args"], "--other"]
    with harness.app(other) as app:
        assert seen(app) == ((), False)


def test_a_change_while_it_is_connected(harness):
    """`ok` has one tool more when it is asked to, and tells us."""
    with harness.app({"good": harness.nasty("ok", pin=True)}) as app:
        settle(app)
        assert call(app, "good.grow").data == "grown"
        until(lambda: app.servers.statuses()[0].refused)
        assert app.servers.statuses()[0].changed == ("grown (new)",)
        assert call(app, "good.echo", text="x").error.reason == "refused"
        app.servers.approve("good")
        assert call(app, "good.grown").data == "grown"


def hints(app):
    """What counts of `pay`: whether it changes nothing, and whether it may be tried again."""
    spec = app.catalog.registry.get("shop.pay")
    return spec.read_only, spec.idempotent


LOOSE = {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False}


@pytest.mark.parametrize("before", [None, {}, {"readOnlyHint": False, "destructiveHint": True}])
@pytest.mark.attack("approvals")
def test_hints_that_loosen_count_as_before_until_somebody_approves(harness, shop, before):
    shop.lists(PAY if before is None else {**PAY, "annotations": before})
    first_use(harness, shop())
    shop.lists({**PAY, "annotations": LOOSE})
    strict = (False if before else None, False)  # what nobody has said isn't known
    with harness.app(shop()) as app:
        assert seen(app) == (("pay (behaviour)",), False)
        assert hints(app) == strict
        assert call(app, "shop.pay").data == "pay"
    with harness.app(shop()) as app:  # known from the file alone
        assert hints(app) == strict
        seen(app)
        app.servers.approve("shop")
        assert hints(app) == (True, True)
    with harness.app(shop()) as app:
        assert hints(app) == (True, True)


@pytest.mark.attack("approvals")
def test_hints_that_were_there_at_first_sight_count_and_tighter_ones_at_once(harness, shop):
    shop.lists({**PAY, "annotations": {"readOnlyHint": True}})
    first_use(harness, shop())
    shop.lists({**PAY, "annotations": {"readOnlyHint": True, "idempotentHint": True}})
    with harness.app(shop()) as app:
        seen(app)
        assert hints(app) == (True, False)
    shop.lists(PAY)
    with harness.app(shop()) as app:
        seen(app)
        assert hints(app) == (None, False)
    shop.lists({**PAY, "annotations": {"readOnlyHint": True}})
    with harness.app(shop()) as app:  # as it was approved
        assert seen(app) == ((), False)
        assert hints(app) == (True, False)


@pytest.mark.attack("approvals")
def test_a_tool_that_goes_and_comes_back_looser_is_not_new(harness, shop):
    first_use(harness, shop())
    for tools in ([LOOK], [LOOK, {**PAY, "annotations": LOOSE}]):
        shop.lists(*tools)
        with harness.app(shop()) as app:
            seen(app)
    with harness.app(shop()) as app:
        assert hints(app) == (None, False)


def test_what_another_process_approves_counts_here(harness, shop):
    first_use(harness, shop())
    shop.lists({**PAY, "annotations": LOOSE})
    with harness.app(shop()) as app:
        seen(app)
        assert hints(app) == (None, False)
        done = harness.cli("servers", "approve", "shop")
        assert done.returncode == 0, done.stderr
        until(lambda: call(app, "shop.pay") and hints(app) == (True, True))


@pytest.mark.attack("approvals")
def test_tools_of_a_server_that_look_alike_are_told(harness, shop):
    shop.lists(PAY, {**PAY, "name": "p\u0430y"}, LOOK)
    with harness.app(shop()) as app:
        seen(app)
        (told,) = [one for one in app.mistakes if "look alike" in one.message]
        assert "'pay', 'p\\u0430y'" in told.message
        assert (told.key, told.severity) == ("servers.shop", "warning")


@pytest.mark.parametrize("damage", [lambda kept, key: kept.delete(key), lambda kept, key: kept.write(key, b"junk")])
@pytest.mark.attack("approvals")
def test_what_was_approved_stays_so_when_somebody_deletes_or_damages_it(harness, shop, damage):
    first_use(harness, shop(pin=True))
    with harness.app(shop(pin=True)) as app:
        assert call(app, "shop.pay").data == "pay"
        proxy = app.servers.proxy("shop")
        approved, kept, key = proxy.cached.approved, in_home(harness.folder, "servers"), proxy._cache._key
        damage(kept, key)
        app.servers.reread_approvals()
        assert (proxy.cached.approved, proxy.is_listed) == (approved, True)
        damage(kept, key)
        app.servers.reread_approvals()
        assert proxy._cache.read().approved == approved


def test_what_cannot_be_read_now_is_not_written_over(harness, shop, monkeypatch):
    """Another process may have approved more, which stands there."""
    first_use(harness, shop(pin=True))
    with harness.app(shop(pin=True)) as app:
        assert call(app, "shop.pay").data == "pay"
        proxy = app.servers.proxy("shop")
        approved, kept, key = proxy.cached.approved, in_home(harness.folder, "servers"), proxy._cache._key
        stands_there = kept.read(key) + b" "
        kept.write(key, stands_there)  # by another process

        def refuse(key):
            raise DatabaseError("no disk")

        monkeypatch.setattr(type(proxy._cache._documents), "load", lambda self, key: refuse(key))
        app.servers.reread_approvals()
        assert proxy.cached.approved == approved
        monkeypatch.undo()
    assert kept.read(key) == stands_there


# Pins of a version that did not pin all parts yet


@pytest.mark.attack("approvals")
def test_clients_see_no_looser_hints_than_the_approved_ones(harness, shop):
    first_use(harness, shop())
    shop.lists({**PAY, "annotations": {"title": "Pay", "destructiveHint": False, "openWorldHint": False}})
    with harness.app(shop()) as app:
        seen(app)
        strict = {"title": "Pay", "destructiveHint": True, "openWorldHint": True}
        assert _annotations(app) == strict
        app.servers.approve("shop")
        assert _annotations(app) == {"title": "Pay", "destructiveHint": False, "openWorldHint": False}


def _annotations(app):
    return provider_tools([app.catalog.registry.get("shop.pay")], "mcp")[0]["annotations"]
