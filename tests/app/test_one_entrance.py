"""Every call enters by `App.call`, whichever interface, code, model or pack makes it."""

import asyncio
import re
import time
from pathlib import Path

import httpx
import pytest
from ask.harness import Harness
from ask.stand_in import Says, Wants
from click.testing import CliRunner

import onetool
from onetool import App, Executor, ToolCall
from onetool.interfaces.cli import cli as root
from onetool.sources.bundles.names import new_id

PACK = '''
from onetool.sdk import call_tool, prompt, tool

pack = "sums"

def add(x: int) -> int:
    """Add one."""
    return x + 1

async def add_async(x: int) -> int:
    """Add one, on the loop."""
    return x + 1

def twice(x: int) -> int:
    """Add one twice."""
    return call_tool("sums.add", x=call_tool("sums.add_async", x=x))

async def twice_async(x: int) -> int:
    """Add one twice, on the loop."""
    return await call_tool("sums.add", x=await call_tool("sums.add_async", x=x))

@prompt
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"
'''
ADD = {"type": "python", "pythonImpl": {"func": "sums.add"}}
MODERN = {"MCP-Protocol-Version": "2025-11-25", "Accept": "application/json, text/event-stream"}


@pytest.fixture
def calls(monkeypatch):
    """The ids of calls that entered, and of those that were executed."""
    entered, executed = [], []
    call, execute = App.call, Executor.execute

    def entering(app, made, *args, **options):
        entered.append(made.id)
        return call(app, made, *args, **options)

    def executing(executor, made, *args, **options):
        executed.append(made.id)
        return execute(executor, made, *args, **options)

    monkeypatch.setattr(App, "call", entering)
    monkeypatch.setattr(Executor, "execute", executing)
    return entered, executed


@pytest.fixture
def app(tmp_path, calls):
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "sums.py").write_text(PACK)
    (tmp_path / "onetool.yaml").write_text("packs: [packs]\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        yield app


def client_of(app):
    serving = onetool.asgi(app, menu="direct")
    return httpx.AsyncClient(transport=httpx.ASGITransport(serving), base_url="http://127.0.0.1:8765")


async def post(app, path, body):
    async with client_of(app) as client:
        reply = await client.post(path, json=body)
        assert reply.status_code == 200, reply.text


async def over_mcp(app, method, **params):
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    async with client_of(app) as client:
        begun = await client.post("/mcp", json=message, headers=MODERN)
        session = {**MODERN, "Mcp-Session-Id": begun.headers["Mcp-Session-Id"]}
        reply = await client.post("/mcp", json=message | {"method": method, "params": params}, headers=session)
        assert "result" in reply.json(), reply.text


def versions(app):
    bundle = new_id(time.time())
    app.bundles.put_bundle(bundle, {"slug": "mine"})
    app.bundles.put_tool(bundle, "add", "1", ADD)
    return f"/tools/bundles/{bundle}/tools/add/version/1/invoke"


ONE, THREE = 1, 3
WAYS = {
    "python": (ONE, lambda app: app.call(ToolCall("1", "sums.add", {"x": 1}))),
    "a pack": (THREE, lambda app: app.call(ToolCall("1", "sums.twice", {"x": 1}))),
    "a pack on the loop": (THREE, lambda app: app.call(ToolCall("1", "sums.twice_async", {"x": 1}))),
    "code": (ONE, lambda app: app.run("sums.add(x=1)")),
    "code that waits": (ONE, lambda app: app.run("await sums.add(x=1)")),
    "code, a tool on the loop": (ONE, lambda app: app.run("sums.add_async(x=1)")),
    "code, past a gate": (ONE, lambda app: app.run("sums.add(x=1)", gate=let_pass)),
    "MCP": (ONE, lambda app: over_mcp(app, "tools/call", name="sums__add", arguments={"x": 1})),
    "MCP, a prompt": (ONE, lambda app: over_mcp(app, "prompts/get", name="greet", arguments={"name": "Ada"})),
    "REST": (ONE, lambda app: post(app, "/call/sums.add", {"x": 1})),
    "REST, a version": (ONE, lambda app: post(app, versions(app), {"args": {"x": 1}})),
    "REST, code": (ONE, lambda app: post(app, "/run", {"code": "sums.add(x=1)"})),
    "a person in a session": (ONE, lambda app: app.user_call("sums.add", {"x": 1}, lambda _: None)),
}


async def let_pass(call, spec):
    return None


@pytest.mark.parametrize("way", WAYS)
def test_every_call_enters_by_app_call(app, calls, way):
    entered, executed = calls
    count, make = WAYS[way]
    asyncio.run(as_coroutine(make(app)))
    assert sorted(executed) == sorted(entered)
    assert len(executed) == count


async def as_coroutine(awaitable):
    return await awaitable


def test_a_call_of_a_model_does(tmp_path, calls):
    entered, executed = calls
    with Harness(tmp_path) as harness:
        harness.model.will(Says("", calls=[Wants("time__now", {})]), Says("Done."))
        assert harness.ask().answer == "Done."
    assert executed == entered
    assert len(executed) == 1


def test_a_command_does(app, calls):
    entered, executed = calls
    found = CliRunner().invoke(
        root, ["--config", str(app.config.path), "tools", "invoke", "sums.add", "--args", '{"x": 1}']
    )
    assert found.exit_code == 0, found.output
    assert executed == entered
    assert len(executed) == 1


def test_no_other_module_uses_the_executor_of_an_app():
    package = Path(onetool.__file__).parent
    used = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if re.search(r"\bexecutor\.execute|runtime\)?\.executor\b", file.read_text())
    }
    assert used == {"app/app.py"}
