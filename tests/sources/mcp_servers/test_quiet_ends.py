"""What still goes wrong while everything ends is nobody's news: no traceback on standard error, where people read."""

import asyncio
import gc
import logging
import threading
from contextlib import asynccontextmanager

import pytest
from helpers import forever
from sources.mcp_servers.harness import call
from sources.mcp_servers.test_ends import QUICK, until

from onetool.core.errors import ToolFailure
from onetool.core.threads import LoopThread


@pytest.fixture
def told(caplog):
    """What asyncio says of errors that nobody has looked at, once they are thrown away."""

    def told():
        gc.collect()
        return [record.getMessage() for record in caplog.records if record.name == "asyncio"]

    gc.freeze()  # what other tests have left: collecting that takes a second
    with caplog.at_level(logging.WARNING, logger="asyncio"):
        yield told


def test_one_that_fails_at_the_moment_it_is_ended(harness, monkeypatch, told):
    """As a web server that goes just before us: where a group of tasks has an error, it comes instead of the end."""
    begun, lives = threading.Event(), []

    @asynccontextmanager
    async def connected(upstream):
        lives.append(upstream._task)
        try:
            begun.set()
            await forever()
        except asyncio.CancelledError:
            raise ToolFailure("it can't be reached") from None
        yield

    monkeypatch.setattr("onetool.sources.mcp_servers.opening.connected", connected)
    with harness.app({"web": {"url": "http://127.0.0.1:9/mcp"}}) as app:
        app.connect()
        assert begun.wait(QUICK)
    (life,) = lives
    assert life.cancelled()
    del life
    lives.clear()
    assert told() == []


def test_a_call_that_fails_when_its_caller_is_gone(harness, told):
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    async def work(link, flight):
        try:
            begun.set()
            await forever()
        except asyncio.CancelledError:
            await asyncio.to_thread(go.wait, QUICK)
            asyncio.get_running_loop().call_soon(ended.set)
            raise ToolFailure("too late") from None

    async def give_up(app):
        waiting = asyncio.create_task(app.servers.do("good", "work", work, False))
        await asyncio.to_thread(begun.wait, QUICK)
        waiting.cancel()
        await asyncio.wait({waiting})

    with harness.app({"good": harness.nasty("ok")}) as app:
        assert call(app, "good.echo", text="x").data == "x"
        asyncio.run(give_up(app))
        go.set()
        assert ended.wait(QUICK)
        assert call(app, "good.echo", text="x").data == "x"
        assert told() == []


def test_work_that_does_not_heed_the_end_in_the_middle_of_a_generator(monkeypatch, told):
    """It is left behind: closing what is running is not possible, and nothing to tell anybody."""
    monkeypatch.setattr("onetool.core.threads.CLOSE_SECONDS", 0.1)
    begun, cancelled, may_end = threading.Event(), threading.Event(), threading.Event()

    async def numbers():
        begun.set()
        while not may_end.is_set():
            try:
                await forever()
            except asyncio.CancelledError:
                cancelled.set()
        yield 1

    async def deaf():
        async for _ in numbers():
            pass

    background = LoopThread()
    background.submit(deaf())
    assert begun.wait(QUICK)
    there = background._loop
    background.close()
    assert cancelled.is_set()
    until(there.is_closed)
    assert [one for one in told() if "closing of asynchronous generator" in one] == []
    may_end.set()
