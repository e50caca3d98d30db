"""Tools that may be repeated are, after a failure; nothing else is."""

import asyncio
import threading

import pytest
from helpers import until_async
from msgspec.structs import replace

from onetool import App, Registry, ToolCall
from onetool.core import running
from onetool.core.errors import BadArguments, DefinitionError, ToolFailure
from onetool.core.executor import Executor
from onetool.core.spec import ToolSpec
from onetool.core.threads import run_blocking
from onetool.sdk import tool
from onetool.sdk.pack import tool_from_function


class Flaky:
    """Fails so often, then gives how often it was called."""

    def __init__(self, failures, error=lambda: OSError("not yet")):
        self.failures, self.error, self.calls = failures, error, 0

    def __call__(self):
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error()
        return self.calls


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(running, "FIRST_PAUSE", 0.001)


def in_async(handler):
    async def run():
        return handler()

    return run


def spec_of(handler, **more):
    return ToolSpec(name="t", description="It may fail.", handler=handler, **more)


def registered(spec):
    registry = Registry()
    registry.register(spec)
    return registry


def driven(spec, how, **options):
    executor = Executor(registered(spec), **options)
    call = ToolCall("1", "t", {})
    if how == "blocking":
        return run_blocking(executor.execute(call))
    return asyncio.run(executor.execute(call))


@pytest.mark.parametrize("how", ["async", "blocking"])
@pytest.mark.parametrize("is_async", [False, True])
class TestEveryWay:
    def test_it_is_tried_again(self, how, is_async):
        handler = Flaky(2)
        result = driven(spec_of(in_async(handler) if is_async else handler, retries=2), how)
        assert (result.data, result.meta["tries"]) == (3, 3)

    def test_and_no_more_often_than_it_says(self, how, is_async):
        handler = Flaky(9)
        result = driven(spec_of(in_async(handler) if is_async else handler, retries=2), how)
        assert (handler.calls, result.meta["tries"]) == (3, 3)
        assert result.error.message == "OSError: not yet (tried 3 times)"

    def test_nothing_is_by_itself(self, how, is_async):
        handler = Flaky(1)
        result = driven(spec_of(in_async(handler) if is_async else handler, idempotent=True), how)
        assert (handler.calls, result.error.message) == (1, "OSError: not yet")
        assert "tries" not in result.meta


class NotAgainError(ToolFailure):
    again = False


@pytest.mark.parametrize(
    "error",
    [
        lambda: BadArguments("no"),
        lambda: ToolFailure("no", reason="denied"),
        lambda: ToolFailure("no", reason="rate_limited"),
        lambda: NotAgainError("no"),
        lambda: SystemExit(1),
    ],
)
def test_what_no_other_try_mends(error):
    handler = Flaky(1, error)
    assert not driven(spec_of(handler, retries=3), "async").ok
    assert handler.calls == 1


def test_a_failure_with_words_is_tried_again():
    handler = Flaky(1, lambda: ToolFailure("busy", reason="source_unavailable"))
    assert driven(spec_of(handler, retries=1), "async").data == 2


def test_all_tries_have_one_deadline(monkeypatch):
    monkeypatch.setattr(running, "FIRST_PAUSE", 60.0)
    monkeypatch.setattr(running, "MAX_PAUSE", 60.0)
    handler = Flaky(9)
    result = driven(spec_of(handler, retries=5, timeout=5), "async")
    assert (handler.calls, result.error.message) == (1, "OSError: not yet")


def test_a_call_that_took_all_its_time_is_over():
    calls, release = [], threading.Event()

    def slow():
        calls.append(1)
        release.wait(20)

    result = driven(spec_of(slow, retries=3, timeout=0.1), "async")
    release.set()
    assert (len(calls), result.error.reason) == (1, "timeout")


def test_who_cancels_ends_it_between_two_tries(monkeypatch):
    monkeypatch.setattr(running, "FIRST_PAUSE", 5.0)
    handler = Flaky(9)

    async def cancelled():
        executor = Executor(registered(spec_of(handler, retries=5, timeout=60)))
        task = asyncio.create_task(executor.execute(ToolCall("1", "t", {})))
        await until_async(lambda: handler.calls)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert handler.calls == 1


@pytest.mark.parametrize(
    ("marks", "calls"),
    [({"idempotent": True}, 2), ({"pure": True}, 2), ({}, 1), ({"idempotent": True, "retries": 0}, 1)],
)
def test_the_default_is_for_tools_that_say_that_they_may_be_repeated(marks, calls):
    handler = Flaky(1)

    @tool(**marks)
    def once() -> int:
        return handler()

    driven(replace(tool_from_function(once, "p"), name="t"), "async", retries=1)
    assert handler.calls == calls


def test_the_default_does_not_count_for_what_a_server_says_of_itself():
    handler = Flaky(1)
    driven(spec_of(handler, idempotent=True, source="proxy:x"), "async", retries=1)
    assert handler.calls == 1


def test_one_call_is_recorded_once():
    events = []
    driven(spec_of(Flaky(2), retries=2), "async", recorders=[events.append])
    assert len(events) == 1


@pytest.mark.parametrize("wrong", [-1, 11, True, 1.0, "2"])
def test_what_is_no_number_of_retries(wrong):
    with pytest.raises(ValueError, match="retries: expected a number from 0 to 10"):
        tool(retries=wrong)
    with pytest.raises(DefinitionError, match="retries: expected a number from 0 to 10"):
        registered(spec_of(lambda: 1, retries=wrong))


PACK = """
import time
from onetool.sdk import tool

calls = []

@tool(idempotent=True)
def shaky() -> int:
    calls.append(1)
    if len(calls) < 3:
        raise OSError("not yet")
    return len(calls)

def slow(seconds: float) -> str:
    time.sleep(seconds)
    return "done"

@tool(timeout=20)
def patient(seconds: float) -> str:
    time.sleep(seconds)
    return "done"
"""


def test_the_config_has_the_defaults_and_what_a_tool_says_wins(tmp_path):
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "mine.py").write_text(PACK)
    config = tmp_path / "onetool.yaml"
    config.write_text("packs: [packs]\ndefaults: {timeout_s: 0.2, retries: 2}\n")
    with App.open(config) as app:

        def call(name, **args):
            return asyncio.run(app.call(ToolCall("1", name, args)))

        slow = call("mine.slow", seconds=3)
        assert (slow.error.reason, "within 0.2 s" in slow.error.message) == ("timeout", True)
        assert call("mine.patient", seconds=0.4).data == "done"
        assert call("mine.shaky").data == 3
