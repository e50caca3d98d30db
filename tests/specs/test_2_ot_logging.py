"""2-ot-pack.md: the scenarios of logging: every function of `ot` is a span of its own."""

import asyncio

import pytest
from specs.ot import Agent

from onetool import ToolCall

CALLS = {
    "aliases": "ot.aliases()",
    "config": "ot.config()",
    "health": "ot.health()",
    "help": "ot.help()",
    "notify": 'ot.notify(topic="notes", message="x")',
    "packs": "ot.packs()",
    "reload": "ot.reload()",
    "search": 'ot.search("read a file")',
    "servers": "ot.servers()",
    "signature": 'ot.signature("time.now")',
    "snippets": "ot.snippets()",
    "stats": "ot.stats()",
    "tools": "ot.tools()",
    "version": "ot.version()",
}


@pytest.fixture
def agent(tmp_path):
    with Agent(tmp_path) as agent:
        yield agent


@pytest.fixture
def spans(caplog):
    caplog.set_level("INFO", "onetool.span")
    return lambda: [vars(record) for record in caplog.records if record.name == "onetool.span"]


# Requirement: Logging


@pytest.mark.parametrize("function", CALLS)
def test_span_naming(agent, spans, function):
    agent.value(CALLS[function])
    assert [span["outcome"] for span in spans() if span["span"] == f"ot.{function}"] == ["ok"]


def test_span_naming_of_every_function(agent):
    """None was forgotten here."""
    names = {name.removeprefix("ot.") for name in agent.value('ot.tools(pattern="ot.", info="list")')}
    assert names == {*CALLS, "result", "load", "call", "all"}


def test_span_naming_of_all(agent, spans):
    call = ToolCall("1", "ot.all", {"tool": "ot.packs", "args": {"info": "list"}, "limit": 1}, "test")
    assert asyncio.run(agent.app.call(call)).data == ["ot"]
    assert {span["span"] for span in spans()} == {"ot.all", "ot.packs"}


def test_span_naming_of_call(agent, spans):
    """In code it is another way to write the call of the tool which it names, and is counted as well."""
    call = ToolCall("1", "ot.call", {"name": "ot.version", "args": {}}, "test")
    assert asyncio.run(agent.app.call(call)).ok
    assert {span["span"] for span in spans()} == {"ot.call", "ot.version"}
    assert agent.value('ot.call("ot.version", {})')
    assert [span["span"] for span in spans()].count("ot.version") == 2
    assert [span["outcome"] for span in spans() if span["span"] == "ot.call"] == ["ok", "ok"]
    counted = {row["tool"]: row["calls"] for row in agent.value("ot.stats()")["tools"]}
    assert (counted["ot.call"], counted["ot.version"]) == (2, 2)
    calls = "await asyncio.gather(ot.call('ot.help', {}))\nawait asyncio.gather(ot.call(name))"
    code = f"import asyncio\nname = 'no.such'\n{calls}"
    assert agent.error(code)
    assert sorted(span["outcome"] for span in spans() if span["span"] == "ot.call") == ["error", "ok", "ok", "ok"]


# Requirement: Result Query Logging


def test_span_naming_of_result(agent, spans):
    handle = agent.app.runtime.store_result("a\nb").handle
    agent.value(f'ot.result(handle="{handle}")')
    agent.value(f'ot.result(handle="{handle}", offset=2, limit=5, search="b")')
    agent.value('ot.result(handle="nonexistent")')
    agent.value(f'ot.load("{handle}")')
    plain, searched, failed, loaded = spans()
    assert (loaded["span"], loaded["handle"]) == ("ot.load", handle)
    assert {span["span"] for span in (plain, searched, failed)} == {"ot.result"}
    assert (plain["handle"], plain["offset"], plain["limit"]) == (handle, 1, 100)
    assert "search" not in plain
    assert (searched["offset"], searched["limit"], searched["search"]) == (2, 5, "b")
    assert (failed["handle"], failed["outcome"]) == ("nonexistent", "error")
