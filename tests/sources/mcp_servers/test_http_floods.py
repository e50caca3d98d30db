"""Servers behind a url that answer wrongly or without end: every call ends, and other servers answer meanwhile."""

import asyncio
import time

import pytest
from helpers import until
from sources.mcp_servers.harness import Harness, call, is_fine, settle
from sources.mcp_servers.nasty.hostile_http import HOW, hostile
from sources.mcp_servers.nasty.http_server import HttpServer

from onetool import ToolCall
from onetool.sources.mcp_servers.http_transport import STREAM_PAUSE

pytestmark = [pytest.mark.attack("hostile MCP servers"), pytest.mark.long]

MAX_TASKS = 400
REFUSED = ("comments_without_end", "fields_without_end", "one_line_without_end", "packed", "packed_twice")
SAFE = ("answers_of_others", "changes", "cookies", "drops", "events_of_other_kinds", "two_answers")


@pytest.fixture(scope="module")
def hostile_app(tmp_path_factory):
    harness = Harness(tmp_path_factory.mktemp("hostile"))
    with hostile() as bad, HttpServer() as elsewhere, HttpServer() as good:
        bad.state.target = elsewhere.url("ok")
        headers = {"Authorization": "Bearer mine"}
        blocks = {"bad": {"url": bad.url("ok"), "timeout": 8, "headers": headers}, "good": {"url": good.url("ok")}}
        with harness.app(blocks) as app:
            settle(app)
            app.bad, app.elsewhere = bad, elsewhere
            yield app


def done(app, how):
    """Make a call while the other server is called, too. Return its result, and the most tasks that there were."""
    loop, most = app.servers._loop.background._loop, 0

    async def both():
        nonlocal most
        bad = asyncio.ensure_future(app.call(ToolCall("1", "bad.do", {"how": how})))
        assert (await app.call(ToolCall("2", "good.echo", {"text": "x"}))).data == "x"
        while not bad.done():
            most = max(most, len(asyncio.all_tasks(loop)))
            await asyncio.sleep(0.01)
        return await bad

    return asyncio.run(both()), most


@pytest.mark.parametrize("how", [how for how in HOW if how != "pings"])
def test_an_answer_that_is_none(hostile_app, how):
    result, tasks = done(hostile_app, how)
    assert result.data == "done" or result.error is not None
    assert (how in SAFE) <= (result.data == "done"), result.error
    assert (how in REFUSED) <= (result.error is not None)
    assert len(str(result.error)) < 5_000
    assert "\x1b" not in str(result.error and result.error.message)
    assert tasks < MAX_TASKS
    assert is_fine(hostile_app)
    until(lambda: call(hostile_app, "bad.echo", text="again").data == "again", 30)
    assert hostile_app.elsewhere.requests == []


def test_requests_whose_answers_are_not_taken(harness, http):
    """Each of them waits for its place, so their number is bounded."""
    with hostile() as bad:
        blocks = {"bad": {"url": bad.url("ok"), "timeout": 3}, "good": {"url": http.url("ok")}}
        with harness.app(blocks) as app:
            settle(app)
            assert done(app, "pings")[1] < MAX_TASKS
            assert is_fine(app)
            bad.state.ending.set()


def test_a_stream_that_ends_whenever_it_is_opened(harness):
    """It is opened again as often as we want, not as often as the server says."""
    with hostile() as bad, harness.app({"bad": {"url": bad.url("streams")}}) as app:
        assert call(app, "bad.echo", text="x").data == "x"
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 2)
        opened = [one for one in bad.requests if one.verb == "GET"]
        assert 0 < len(opened) <= (time.monotonic() - began) / STREAM_PAUSE + 5


def test_calls_that_hang_leave_room_for_the_next_one(harness):
    with hostile() as bad, harness.app({"bad": {"url": bad.url("ok"), "timeout": 1}}) as app:
        settle(app)

        async def hang():
            return await asyncio.gather(*(app.call(ToolCall(str(n), "bad.hang", {})) for n in range(120)))

        assert {one.error.reason for one in asyncio.run(hang())} <= {"timeout", "source_unavailable"}
        until(lambda: call(app, "bad.echo", text="x").data == "x")
