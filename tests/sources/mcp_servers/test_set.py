"""All servers of a config as one set: listed without being started, started side by side, many of them."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import examples, until, until_async
from interfaces.mcp.upstreams import Site
from sources.mcp_servers.harness import call, is_gone, ran, settle

from onetool import App, ToolCall

SERVERS, EACH = examples(50), 40


def packs_of(app):
    return {spec.pack for spec in app.tools() if spec.source.startswith("proxy:")}


# What is there before anybody has been started


def test_who_only_looks_starts_nobody(harness):
    servers = {"good": harness.nasty("ok"), "off": harness.nasty("ok", enabled=False)}
    with harness.app(servers) as app:
        app.tools()
        app.search("echo")
        states = {status.name: (status.state, status.tools) for status in app.servers.statuses()}
        assert states == {"good": ("idle", 0), "off": ("disabled", 0)}
        assert app.servers.unlisted() == ["good"]
        assert app.servers.packs() == ["good"]
        assert app.servers.packs(allowed={"time.now"}) == []
        assert app.servers.packs(allowed={"good.echo"}) == ["good"]
    assert harness.started() == []


def test_one_that_is_switched_off_says_so(harness):
    off = harness.nasty("ok")
    with harness.app({"off": {**off, "disabled": True}}) as app:
        failed = call(app, "off.echo", text="x")
        assert (failed.error.code, failed.error.reason) == ("tool_not_found", "denied")
        assert "switched off in the config" in failed.error.message
        assert "switched off in the config" in ran(app, "off.echo(text='x')").error.message
    assert harness.started() == []


def test_only_some_tools_and_under_another_name(harness):
    servers = {
        "good": harness.nasty("ok", tools=["echo", "more_*", "nothing_like_that"], prefix="mine"),
        "with.dot": harness.nasty("ok"),
    }
    with harness.app(servers) as app:
        assert settle(app)["good"].tools == 1
        assert packs_of(app) == {"mine", "with-dot"}
        assert call(app, "mine.echo", text="x").data == "x"
        assert call(app, "mine.add", a=1, b=2).error.code == "tool_not_found"
        assert ran(app, "with_dot.echo(text='y')").data == "y"
        assert any("no tool of the server matches nothing_like_that" in str(told) for told in app.mistakes)


def test_what_was_learnt_is_there_the_next_time(harness):
    servers = {"good": harness.nasty("ok")}
    with harness.app(servers) as app:
        settle(app)
        names = [spec.name for spec in app.tools()]
    before = harness.started()
    with harness.app(servers) as app:
        assert [spec.name for spec in app.tools()] == names
        assert harness.started() == before
        assert app.servers.statuses()[0].version == "nasty 1.0"
        assert call(app, "good.echo", text="x").data == "x"
        assert len(harness.started()) == len(before) + 1


# Calls from everywhere


def test_calls_come_from_many_loops_at_once(harness):
    async def several(app, n):
        calls = [app.call(ToolCall(f"{n}-{k}", "good.echo", {"text": f"{n} {k}"})) for k in range(20)]
        return [result.data for result in await asyncio.gather(*calls)]

    with harness.app({"good": harness.nasty("ok")}) as app, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda n: asyncio.run(several(app, n)), range(8)))
    assert found == [[f"{n} {k}" for k in range(20)] for n in range(8)]
    assert len(harness.started()) == 1


def test_a_reload_leaves_alone_what_is_as_it_was(tmp_path):
    site = Site(tmp_path)
    kept, file = site.upstream(), site.file("wait")

    async def main(app):
        first = await app.call(ToolCall("1", "kept.count"))
        other = await app.call(ToolCall("2", "other.pid"))
        waiting = asyncio.ensure_future(app.call(ToolCall("3", "kept.waits", {"file": str(file), "then": ""})))
        await until_async(lambda: file.with_name(f"{file.name}.began").exists())
        site.config({"kept": kept, "other": site.upstream(timeout=5), "new": site.upstream()})
        await asyncio.to_thread(app.reload)
        assert not waiting.done()
        assert is_gone(int(other.data))
        again = await app.call(ToolCall("4", "other.pid"))
        assert again.data != other.data
        assert (await app.call(ToolCall("5", "new.count"))).data == "1"
        file.touch()
        assert (await waiting).data == "it came"
        return first.data, (await app.call(ToolCall("6", "kept.count"))).data

    with site.app({"kept": kept, "other": site.upstream()}) as app:
        assert asyncio.run(main(app)) == ("1", "2")
    assert len(site.started()) == 4


def test_servers_may_come_with_a_reload(tmp_path):
    site = Site(tmp_path)
    with App.open(site.config({})) as app:
        assert app.servers is None
        site.config({"first": site.upstream()})
        app.reload()
        assert call(app, "first.count").data == "1"
        site.config({})
        app.reload()
        assert call(app, "first.count").error.code == "tool_not_found"
        assert app.health()["proxy"]["server_count"] == 0
    assert site.left() == []


# Many


@pytest.mark.long
@pytest.mark.longer
def test_many_servers_with_many_tools(harness, live_tools):
    servers = {}
    for n in range(SERVERS):
        tools = [live_tools[(n * EACH + k) % len(live_tools)] for k in range(EACH)]
        tools = [{**tool, "name": f"{tool['name'].partition('.')[2][:40]}-{k}"} for k, tool in enumerate(tools)]
        file = harness.folder / f"{n}.json"
        file.write_text(json.dumps(tools))
        servers[f"s{n}"] = harness.nasty("changes", env={"DEFINITIONS": str(file)})
    with harness.app(servers) as app:
        statuses = settle(app)
        assert {status.state for status in statuses.values()} == {"connected"}
        total = sum(status.tools for status in statuses.values())
        assert total > 0.98 * SERVERS * EACH  # a few have schemas that are none
        assert len(harness.started()) == SERVERS
        assert packs_of(app) == set(servers)
        found = [spec.name for spec, _ in app.search("today's date in Shanghai for train tickets", 5)]
        assert any("get-current-date" in name for name in found)
        name = next(spec.name for spec in app.tools() if spec.name.endswith("get-current-date-0"))
        assert call(app, name).data == name.partition(".")[2]
    with harness.app(servers) as app:
        assert sum(status.tools for status in app.servers.statuses()) == total
        assert [spec.name for spec, _ in app.search("today's date in Shanghai for train tickets", 5)] == found
        assert len(harness.started()) == SERVERS  # nobody was started for that


@pytest.mark.long
def test_all_start_at_once(harness):
    gate = harness.folder / "gate"
    with harness.app({f"slow{n}": harness.nasty("starts_slowly", gate) for n in range(20)}) as app:
        app.connect()
        until(lambda: len(harness.started()) == 20)
        gate.touch()
        assert {status.state for status in settle(app).values()} == {"connected"}
