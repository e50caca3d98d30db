"""A limit of calls a minute is one limit for all processes of the state, and outlives tools and damage."""

import asyncio
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest
from mcp import Client, StdioServerParameters

from onetool.app import App
from onetool.core.call import ToolCall
from onetool.database import shared_rates
from onetool.sources.bundles.names import new_id

SAY = {"type": "script", "scriptImpl": {"code": "'hi'"}, "limits": {"maxCallsPerMinute": 5}}
CALLER = """
import asyncio, json, sys
from onetool.app import App
from onetool.core.call import ToolCall
with App.open(sys.argv[1]) as app:
    for line in sys.stdin:
        result = asyncio.run(app.call(ToolCall("1", "mine.say", {})))
        print(json.dumps([result.ok, result.meta["rate_limit"]["remaining"]]), flush=True)
"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "onetool.yaml"
    file.write_text("{}\n")
    return file


@pytest.fixture
def app(config):
    with App.open(config) as app:
        id = new_id(time.time())
        app.bundles.put_bundle(id, {"slug": "mine"})
        app.bundles.put_tool(id, "say", "1", SAY)
        yield app


def call(app, name="mine.say"):
    return asyncio.run(app.call(ToolCall("1", name, {})))


def rows(app):
    return app.runtime.state.read(lambda work: work.execute("SELECT name FROM rates"))


class Process:
    """Another process with the same config, which calls the tool when it is told to."""

    def __init__(self, config):
        command = [sys.executable, "-c", CALLER, str(config)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def call(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def others(config):
    started = []

    def start():
        started.append(Process(config))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.process.stdin.close()
        one.process.stdout.close()


@pytest.mark.long
def test_processes_share_one_limit_also_with_one_that_was_killed(app, config, others):
    one, other = others(), others()
    assert (one.call(), other.call(), one.call()) == ([True, 4], [True, 3], [True, 2])
    one.kill()
    assert call(app).meta["rate_limit"]["remaining"] == 1
    assert others().call() == [True, 0]  # one that was started later
    assert other.call() == [False, 0]
    refused = call(app)
    assert refused.error.reason == "rate_limited"
    assert 0 < refused.meta["rate_limit"]["reset_s"] <= 60


@pytest.mark.long
def test_many_processes_at_once_take_no_more_than_there_is(app, others):
    crowd = [others() for _ in range(4)]
    for one in crowd:
        one.process.stdin.write("\n" * 4)
        one.process.stdin.flush()
    answers = [json.loads(one.process.stdout.readline()) for _ in range(4) for one in crowd]
    assert sum(ok for ok, _ in answers) == 5
    assert sorted(left for ok, left in answers if ok) == [0, 1, 2, 3, 4]


def test_who_deletes_a_tool_and_puts_it_again_has_what_was_left(app):
    bundle = app.bundles.bundles()[0]
    id = next(one["id"] for one in bundle if one["slug"] == "mine")
    call(app), call(app)
    app.bundles.delete_tool(id, "say", "1")
    app.bundles.put_tool(id, "say", "1", SAY)
    assert call(app).meta["rate_limit"]["remaining"] == 2
    app.bundles.put_tool(id, "say", "2", SAY)  # another version is another tool
    assert call(app, "mine.say@2").meta["rate_limit"]["remaining"] == 4


@pytest.mark.parametrize("menu", ["direct", "search"])
def test_a_client_of_mcp_is_told_what_is_left(app, config, menu):
    start = StdioServerParameters(
        command=sys.executable,
        args=["-m", "onetool", "mcp", "--menu", menu, "--config", str(config)],
        env={"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    )

    async def asked():
        async with Client(start) as client:
            if menu == "search":
                return await client.call_tool("call", {"name": "mine.say"})
            return await client.call_tool("mine__say", {})

    left = asyncio.run(asked()).meta["onetool/rate_limit"]
    assert (left["limit"], left["remaining"]) == (5, 4)
    assert call(app).meta["rate_limit"]["remaining"] == 3


def test_a_tool_without_a_limit_has_no_row_and_says_nothing(app):
    id = next(one["id"] for one in app.bundles.bundles()[0] if one["slug"] == "mine")
    app.bundles.put_tool(id, "free", "1", {**SAY, "limits": {}})
    assert "rate_limit" not in call(app, "mine.free").meta
    assert rows(app) == []


@pytest.mark.parametrize("content", ["", "{}", "[[1,", '[["x",1]]', "[[9,-7]]", "[" * 9000])
def test_a_broken_row_counts_as_empty(app, content):
    call(app), call(app)
    app.runtime.state.write(lambda work: work.execute("UPDATE rates SET parts = %s", (content,)))
    assert call(app).meta["rate_limit"]["remaining"] == 4
    assert call(app).meta["rate_limit"]["remaining"] == 3


def test_a_database_that_cannot_be_used_is_reported_once_and_each_process_counts(app, caplog):
    app.runtime.state.write(lambda work: work.execute("DROP TABLE rates"))
    with caplog.at_level(logging.WARNING, "onetool.database"):
        assert [call(app).ok for _ in range(6)] == [True] * 5 + [False]
    assert len([one for one in caplog.messages if "each process counts rates by itself" in one]) == 1


def test_a_process_that_stopped_with_the_lock_holds_up_nobody(app, monkeypatch):
    monkeypatch.setattr(shared_rates, "CALL_WAIT_S", 0.01)
    call(app)
    with closing(sqlite3.connect(app.runtime.state.file)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert call(app).meta["rate_limit"]["remaining"] == 3  # which this process has counted alone


def test_the_event_loop_goes_on_while_a_call_waits_for_the_lock(app, monkeypatch):
    monkeypatch.setattr(shared_rates, "CALL_WAIT_S", 60)
    monkeypatch.setattr(shared_rates, "ANSWER_S", 60)
    call(app)

    async def released_by_the_loop():
        with closing(sqlite3.connect(app.runtime.state.file)) as other:
            other.execute("BEGIN IMMEDIATE")
            calls = [asyncio.create_task(app.call(ToolCall(str(number), "mine.say", {}))) for number in range(2)]
            await asyncio.sleep(0.1)
        return [result.meta["rate_limit"]["remaining"] for result in await asyncio.gather(*calls)]

    assert sorted(asyncio.run(released_by_the_loop())) == [2, 3]
    assert len(rows(app)) == 1
