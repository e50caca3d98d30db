"""A call of a tool whose server has told of it a moment ago: it runs, though the tools are not listed anew yet."""

import asyncio
from threading import Event, Thread

import pytest
from helpers import until
from sources.mcp_servers.harness import call, ran

from onetool import App
from onetool.sources.mcp_servers.owners import ServerOwners


class Late:
    """Tools are listed anew only when the test lets them."""

    def __init__(self, servers):
        self._now, self.told, self.go_on = servers._on_change, Event(), Event()
        servers._on_change = self

    def __call__(self):
        self.told.set()
        self.go_on.wait(20)
        self._now()


@pytest.mark.parametrize(
    "used",
    [lambda app: call(app, "ok.echo", text="hello"), lambda app: ran(app, "ok.echo(text='hello')")],
    ids=["call", "run"],
)
def test_what_is_used_between_what_a_server_tells_and_its_listing(harness, used):
    with harness.app({"ok": harness.nasty("ok")}) as app:
        late, results = Late(app.servers), []
        connecting = Thread(target=lambda: asyncio.run(app.servers.wait_connected()))
        connecting.start()
        until(late.told.is_set)
        using = Thread(target=lambda: results.append(used(app)))
        using.start()
        until(lambda: results or "ok.echo" in app.catalog.registry)
        late.go_on.set()  # before that the server is not connected
        using.join()
        connecting.join()
    assert [one.data for one in results] == ["hello"]


class Elsewhere(ServerOwners):
    """Another process runs all servers: an app of this test."""

    def __init__(self, app):
        self._app = app

    def is_shared(self, _settings):
        return True

    def is_own(self, _server):
        return False

    def take(self, _server):
        return False

    def holder(self, _server):
        return "other"

    async def do(self, server, request, may_repeat, _here):
        if request.kind == "connect":
            return await self._app.servers.wait_connected([server])
        return await self._app.servers.do_here(server, request.name, request, may_repeat)


def test_a_tool_that_is_new_where_the_server_runs_is_called_from_elsewhere(harness):
    with harness.app({"ok": harness.nasty("ok")}) as owner, App.open(harness.folder / "onetool.yaml") as app:
        app.catalog.share_servers(Elsewhere(owner))
        assert call(app, "ok.echo", text="hello").data == "hello"
        assert call(owner, "ok.grow").error is None
        until(lambda: "ok.grown" in owner.catalog.registry)
        assert call(app, "ok.grown").data == "grown"
        assert call(app, "ok.never").error is not None
