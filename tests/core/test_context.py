"""What is told of calls and runs: who called, from which run, and what came of it."""

import asyncio

import pytest
from helpers import Checkpoint, executor_for, run

from onetool import App, Executor, Registry, ToolCall, ToolSpec
from onetool.core.call import current_caller
from onetool.core.context import current_call
from onetool.core.json_data import size_of
from onetool.script.engine import Engine
from onetool.script.run_result import RunLimits

PACK = """
import asyncio
from onetool.sdk import call_tool

def add(a: int, b: int = 1) -> int:
    return a + b

async def nap(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds

def twice(a: int) -> int:
    return call_tool("work.add", a=a, b=a)

def fail() -> None:
    raise ValueError("no")
"""


class Someone:
    """A caller with a name."""

    owner, client_name = "", "claude"


class Nameless:
    owner = ""


def test_the_value_and_the_error_are_told():
    events = []
    assert run(executor_for(lambda: {"a": 1}, recorders=[events.append])).ok
    assert not run(executor_for(lambda: 1 / 0, recorders=[events.append])).ok
    assert [(event.bytes_out, event.ok, event.client, event.run) for event in events] == [
        (7, True, "", None),
        (size_of(events[1].error), False, "", None),
    ]


def test_the_value_is_told_without_secrets():
    events = []
    masking = executor_for(lambda: "key", recorders=[events.append], redact=lambda value, sent=None: value and "***")
    run(masking)
    assert events[0].bytes_out == len("***")


@pytest.mark.parametrize(("caller", "name"), [(Someone(), "claude"), (Nameless(), ""), (None, "")])
def test_the_client_is_the_one_who_called(caller, name):
    """Whichever context the call ends in."""
    events = []

    async def slow():
        await asyncio.sleep(0.05)

    async def main():
        executor = executor_for(slow, recorders=[events.append])
        token = current_caller.set(caller)
        call = asyncio.create_task(executor.execute(ToolCall("1", "t")))
        current_caller.reset(token)
        current_caller.set(Nameless())
        await call

    asyncio.run(main())
    assert [event.client for event in events] == [name]


def test_a_call_that_is_cancelled_is_told_once():
    events = []

    async def main():
        there = Checkpoint()
        executor = executor_for(there.pause, recorders=[events.append])
        task = asyncio.create_task(executor.execute(ToolCall("1", "t")))
        await there.arrival()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    assert [event.error.reason for event in events] == ["cancelled"]


# Runs


@pytest.fixture
def told(tmp_path):
    """Runs code; gives the result and what was told of its calls and of itself."""
    (tmp_path / "work.py").write_text(PACK)
    (tmp_path / "onetool.yaml").write_text("packs: [work.py]\n")
    calls, runs = [], []
    with App.open(tmp_path / "onetool.yaml") as app:
        parts = app.runtime
        parts.__dict__["executor"] = executor = Executor(
            app.catalog.registry, environment=parts, recorders=[calls.append]
        )
        engine = Engine(RunLimits(), executor.execute, environment=parts, recorders=[runs.append])

        def go(code):
            async def inside():
                current_caller.set(Someone())
                return await engine.run(code, app.catalog.registry.snapshot(), source="mcp")

            calls.clear()
            runs.clear()
            return asyncio.run(inside()), calls, runs

        yield go
        engine.close()


def test_a_run_and_its_calls(told):
    result, calls, runs = told(
        "import asyncio\na = work.add(1)\nawait asyncio.gather(work.nap(0.01), work.nap(0.02))\na # é"
    )
    (one,) = runs
    assert result.data == 2
    assert (result.meta["run"], result.meta["calls"]) == (one.id, 3)
    assert sorted((event.tool, event.run == one.id, event.client, event.source) for event in calls) == [
        ("work.add", True, "claude", "mcp"),
        ("work.nap", True, "claude", "mcp"),
        ("work.nap", True, "claude", "mcp"),
    ]
    assert (one.source, one.client, one.calls, one.error, one.duration_ms) == (
        "mcp",
        "claude",
        3,
        None,
        pytest.approx(result.meta["duration_ms"], abs=50),
    )
    assert one.code_bytes == len(
        "import asyncio\na = work.add(1)\nawait asyncio.gather(work.nap(0.01), work.nap(0.02))\na # é".encode()
    )


def test_what_a_tool_calls_is_not_of_the_run(told):
    _, calls, (one,) = told("work.twice(4)")
    assert [(event.tool, event.run) for event in calls] == [("work.add", None), ("work.twice", one.id)]


def test_runs_that_fail_are_told_too(told):
    _, _, (refused,) = told("work.ad(1)")
    _, _, (broken,) = told("work.fail()")
    assert (refused.error.code, refused.calls) == ("invalid_args", 0)
    assert (broken.error.code, broken.calls) == ("execution_error", 1)


def test_a_cancelled_run_is_one_that_failed():
    runs = []

    async def main():
        registry, there = Registry(), Checkpoint()
        registry.register(ToolSpec(name="p.nap", description="d", handler=there.pause))
        engine = Engine(RunLimits(), Executor(registry).execute, recorders=[runs.append])
        task = asyncio.create_task(engine.run("p.nap()", registry.snapshot()))
        await there.arrival()
        task.cancel()
        await asyncio.wait([task])
        engine.close()

    asyncio.run(main())
    (one,) = runs
    assert (one.error.reason, one.calls) == ("cancelled", 1)


def test_code_that_a_tool_runs_is_a_part_of_its_call():
    runs, calls = [], []

    async def main():
        registry = Registry()

        async def inner():
            assert current_call.get() is not None
            result = await engine.run("p.one()", registry.snapshot())
            return [result.data, result.meta["run"]]

        registry.register(ToolSpec(name="p.one", description="d", handler=lambda: 1))
        registry.register(ToolSpec(name="p.code", description="d", handler=inner))
        executor = Executor(registry, recorders=[calls.append])
        engine = Engine(RunLimits(), executor.execute, recorders=[runs.append])
        result = await engine.run("p.code()", registry.snapshot())
        engine.close()
        return result

    result = asyncio.run(main())
    assert result.data == [1, None]
    assert [run.id for run in runs] == [result.meta["run"]]
    assert [(event.tool, event.run) for event in calls] == [("p.one", None), ("p.code", result.meta["run"])]


def test_a_recorder_that_fails_is_not_the_runs_business(caplog):
    async def main():
        registry = Registry()
        engine = Engine(RunLimits(), Executor(registry).execute, recorders=[lambda event: 1 / 0])
        result = await engine.run("1 + 1", registry.snapshot())
        engine.close()
        return result

    assert asyncio.run(main()).data == 2
    assert "a recorder failed" in caplog.text
