"""A call of a tool whose server has told of it a moment ago: it runs, though the tools are not listed anew yet."""

import asyncio
import os
import signal
from threading import Event, Thread
from time import perf_counter

import pytest
from helpers import until
from sources.mcp_servers.harness import call, connection_lost, ran, settle


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


def test_the_time_in_which_its_server_starts_is_not_the_tools(harness):
    with harness.app({"ok": harness.nasty("ok")}) as app:
        settle(app)
        first = call(app, "ok.echo", text="hello")
        with connection_lost(app, "ok"):
            os.kill(int(call(app, "ok.pid").data), signal.SIGKILL)
        began = perf_counter()
        second = call(app, "ok.echo", text="hello")
        whole = (perf_counter() - began) * 1000
        facts = app.runtime.stats.summary()["tools"]
    assert "startup_ms" not in first.meta
    assert second.data == "hello"
    assert second.meta["startup_ms"] > 0
    assert second.meta["duration_ms"] + second.meta["startup_ms"] <= whole
    assert {row["tool"]: row["p95_ms"] for row in facts}["ok.echo"] < whole
