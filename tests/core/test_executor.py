"""The executor: every outcome is a result, nothing a handler does ends the process, and waiting really stops."""

import asyncio
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest
from helpers import calls, each, executor_for, forever, run, until_async

from onetool import Executor, Registry, ToolCall, ToolSpec
from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.json_data import plain
from onetool.database import ChangeUnknownError, DatabaseAwayError, DatabaseError

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_sync_and_async_handlers_alike():
    async def double_async(n):
        return 2 * n

    for handler in (lambda n: 2 * n, double_async):
        result = run(executor_for(handler, NUMBER), n=4)
        assert (result.ok, result.data, result.error) == (True, 8, None)
        assert result.meta["tool"] == "t"
        assert result.meta["source"] == "test"
        assert result.meta["duration_ms"] >= 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DatabaseAwayError("host db, role onetool"), "database_away"),
        (ChangeUnknownError(), "change_unknown"),
        (DatabaseError("the database is full"), None),
    ],
)
def test_a_database_error_is_told_as_our_own_stores_tell_it(error, reason):
    def sync():
        raise error

    async def alone():
        raise error

    async def in_a_group():
        async with asyncio.TaskGroup() as group:
            group.create_task(alone())

    for handler in (sync, alone):
        found = run(executor_for(handler)).error
        assert (found.message, found.reason, found.hints) == (str(error), reason, ())
    assert run(executor_for(in_a_group)).error.message.endswith(f": {error}")


def test_a_sync_handler_runs_in_a_thread_and_sees_the_context_of_its_caller():
    from contextvars import ContextVar

    var = ContextVar("var", default="unset")

    async def call():
        var.set("set by the caller")
        executor = executor_for(lambda: (threading.current_thread() is threading.main_thread(), var.get()))
        return await executor.execute(ToolCall("1", "t", {}))

    assert asyncio.run(call()).data == (False, "set by the caller")


def test_an_async_handler_has_a_task_and_a_context_of_its_own_from_its_first_step_on():
    from contextvars import ContextVar

    var = ContextVar("var", default="unset")
    tasks = []

    async def handler():
        tasks.append(asyncio.current_task())
        var.set("set by the handler")
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):  # cancels the task that it was entered in
                await asyncio.sleep(60)
        tasks.append(asyncio.current_task())
        return "timed out by itself"

    async def call():
        result = await executor_for(handler).execute(ToolCall("1", "t", {}))
        return result.data, asyncio.current_task(), var.get()

    data, caller, seen = asyncio.run(call())
    assert (data, seen) == ("timed out by itself", "unset")
    assert tasks[0] is tasks[1] is not caller


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks begin with the next turn of the loop")
@pytest.mark.parametrize("fails", [False, True])
def test_an_async_handler_that_does_not_wait_takes_no_turn_of_the_loop(fails):
    async def handler():
        if fails:
            raise SystemExit("enough")
        return "done"

    async def call():
        turns = []
        asyncio.get_running_loop().call_soon(turns.append, "a turn")
        result = await executor_for(handler).execute(ToolCall("1", "t", {}))
        return result.ok, list(turns)  # the loop takes a turn when it ends

    assert asyncio.run(call()) == (not fails, [])


def test_a_deadline_holds_for_what_an_async_handler_does_after_its_first_step():
    steps = []

    async def handler():
        steps.append("first")
        await asyncio.sleep(60)

    async def call():
        return await executor_for(handler).execute(ToolCall("1", "t", {}, timeout=0.05))

    assert asyncio.run(call()).error.reason == "timeout"
    assert steps == ["first"]


def test_a_sync_handler_may_return_an_awaitable():
    async def later():
        return "waited for"

    assert run(executor_for(lambda: later())).data == "waited for"


class RudeError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def _raises(error):
    def sync():
        raise error

    async def on_the_loop():
        raise error

    return sync, on_the_loop


@each(
    ("error", "message"),
    [
        (ValueError("no good"), "ValueError: no good"),
        (KeyError("x"), "KeyError: 'x'"),
        (SystemExit(3), "the tool tried to end the process (SystemExit: 3)"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (asyncio.CancelledError(), "CancelledError"),
        (StopIteration(1), None),
        (RecursionError("deep"), "RecursionError: deep"),
        (RudeError(), "RudeError"),
        (ExceptionGroup("two", [ValueError("a"), TypeError("b")]), "a"),
    ],
)
def test_whatever_a_handler_raises_becomes_an_execution_error(error, message):
    for handler in _raises(error):
        result = run(executor_for(handler))
        assert not result.ok
        assert result.error.code == "execution_error"
        if message:
            assert message in result.error.message


def test_a_handler_can_fail_in_its_own_words():
    def handler():
        raise ToolFailure("the archive is closed on Mondays", reason="source_unavailable", hints=["try on Tuesday"])

    error = run(executor_for(handler)).error
    assert error.message == "the archive is closed on Mondays"
    assert (error.code, error.reason, error.hints) == ("execution_error", "source_unavailable", ("try on Tuesday",))


@pytest.mark.attack("event queue")
@pytest.mark.parametrize("where", ["message", "reason", "hints"])
def test_texts_of_a_class_of_their_own_hide_no_call(where):
    """The event of a call is encoded, and msgspec knows exact texts alone."""

    class Text(str):
        def __str__(self):
            return self

    def fail():
        more = {"reason": Text("x")} if where == "reason" else {"hints": [Text("x")]} if where == "hints" else {}
        raise ToolFailure(Text("m"), **more)

    events = []
    registry = Registry()
    registry.add(ToolSpec(name="t", description="Fail.", handler=fail))
    result = asyncio.run(Executor(registry, recorders=[events.append]).execute(ToolCall("1", "t", {})))
    assert (result.error.message, len(events)) == ("m", 1)


def test_a_handler_can_refuse_an_argument():
    def handler(n):
        raise BadArguments("n: must be a prime")

    error = run(executor_for(handler, NUMBER), n=4).error
    assert (error.code, error.message) == ("invalid_args", "Invalid arguments for t: n: must be a prime")
    assert error.hints == ("t(n: int)",)


@pytest.mark.parametrize("kind", ["sync", "async", "async that ignores being cancelled"])
def test_a_time_out_really_stops_waiting(kind):
    release, ended = threading.Event(), []

    def waits():
        release.wait(30)
        ended.append(kind)

    async def sleeps():
        await forever()
        ended.append(kind)

    async def ignores():
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.02)
        ended.append(kind)

    handler = {"sync": waits, "async": sleeps, "async that ignores being cancelled": ignores}[kind]

    async def call():
        executor = Executor(_registry(handler, timeout=0.1))
        result = await executor.execute(ToolCall("1", "t", {}))
        assert ended == []
        release.set()
        return result

    result = asyncio.run(call())
    assert (result.error.code, result.error.reason) == ("execution_error", "timeout")
    assert "0.1 s" in result.error.message


def test_the_deadline_is_the_calls_then_the_tools_then_the_default(clock):
    async def sleeps():
        await asyncio.sleep(30)
        return "done"

    async def outcome(default, tools, calls):
        executor = Executor(_registry(sleeps, timeout=tools), timeout=default)
        return (await executor.execute(ToolCall("1", "t", {}, timeout=calls))).ok

    assert clock.run(outcome(1, None, None)) is False
    assert clock.run(outcome(1, 50, None)) is True
    assert clock.run(outcome(50, 1, None)) is False
    assert clock.run(outcome(1, 1, 50)) is True


def test_cancelling_the_call_cancels_the_handler_and_is_recorded():
    seen, events = [], []

    async def sleeps():
        seen.append("began")
        try:
            await forever()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def call():
        executor = Executor(_registry(sleeps), recorders=[events.append])
        task = asyncio.create_task(executor.execute(ToolCall("1", "t", {})))
        await until_async(lambda: seen)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_async(lambda: events)

    asyncio.run(call())
    assert seen == ["began", "cancelled"]
    assert [event.error.reason for event in events] == ["cancelled"]


def test_a_stuck_thread_keeps_neither_other_calls_nor_the_end_of_the_process_waiting():
    code = """
import asyncio, time
from onetool import Executor, Registry, ToolCall, ToolSpec
registry = Registry()
registry.register(ToolSpec(name="stuck", description="hangs", handler=lambda: time.sleep(3600), timeout=0.1))
registry.register(ToolSpec(name="fine", description="answers", handler=lambda: "fine"))
async def main():
    executor = Executor(registry)
    stuck = [executor.execute(ToolCall(str(n), "stuck", {})) for n in range(40)]
    results = await asyncio.gather(*stuck, executor.execute(ToolCall("x", "fine", {})))
    print(sum(result.ok for result in results), results[-1].data)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == ["1", "fine"]


def test_many_calls_at_once_keep_their_own_results():
    async def call():
        executor = executor_for(lambda n: (time.sleep(0.001), n)[1], NUMBER)
        results = await asyncio.gather(*(executor.execute(ToolCall(str(n), "t", {"n": n})) for n in range(300)))
        return [result.data for result in results]

    assert asyncio.run(call()) == list(range(300))


def test_more_calls_than_threads_wait_their_turn():
    from onetool.core.threads import Threads

    async def call():
        threads = Threads(most=2)
        jobs = [threads.run(lambda n: (time.sleep(0.005), n)[1], {"n": n}) for n in range(20)]
        return await asyncio.gather(*jobs)

    assert asyncio.run(call()) == list(range(20))


def test_output_that_its_schema_forbids_is_an_error():
    spec = ToolSpec(
        name="t", description="d", handler=lambda: {"c": "warm"},
        output_schema={"type": "object", "properties": {"c": {"type": "number"}}},
    )  # fmt: skip
    registry = Registry()
    registry.register(spec)
    error = run(Executor(registry)).error
    assert (error.code, error.reason) == ("execution_error", "output_invalid")
    assert "c: expected a number" in error.message


@each("value", [object(), lambda: 1, {("a", 1): 2}, 1j, (n for n in range(3))])
def test_what_is_not_data_does_not_leave_a_tool(value):
    error = run(executor_for(lambda: value)).error
    assert (error.code, error.reason) == ("execution_error", "output_invalid")


def test_data_that_contains_itself_is_an_error_and_not_a_crash():
    value = []
    value.append(value)
    assert run(executor_for(lambda: value)).error.reason == "output_invalid"


def test_a_value_that_holds_itself_over_and_over_is_refused():
    """Forty times `x = [x, x]` is small, and has 2^40 leaves for whoever copies it."""
    for again in (lambda one: [one, one], lambda one: {"a": one, "b": (one,)}):
        value = again(0)
        for _ in range(40):
            value = again(value)
        with pytest.raises(ToolFailure, match="more than 5,000,000 parts"):
            plain(value)
    shared = {"a": [1, 2]}
    assert plain([shared] * 3) == [shared] * 3


def test_common_python_values_become_plain_data():
    import datetime
    import enum
    import pathlib
    from dataclasses import dataclass

    @dataclass
    class Point:
        x: int

    class Colour(enum.Enum):
        RED = "red"

    value = {1: Point(2), "when": datetime.date(2026, 1, 2), "where": pathlib.Path("a/b"), "c": Colour.RED, "b": b"hi"}
    expected = {"1": {"x": 2}, "when": "2026-01-02", "where": "a/b", "c": "red", "b": "aGk="}
    assert run(executor_for(lambda: value)).data == expected


def test_arguments_that_are_secrets_are_in_no_event_and_no_message():
    events = []
    schema = {
        "type": "object",
        "properties": {"user": {"type": "string"}, "api_key": {"type": "string", "maxLength": 9}},
    }

    def login(user, api_key):
        raise ValueError(f"{user} can't log in with {api_key}")

    registry = Registry()
    registry.register(ToolSpec(name="t", description="d", input_schema=schema, handler=login))
    executor = Executor(registry, recorders=[events.append])
    for key in ("hunter2", "hunter2-but-too-long"):
        result = run(executor, user="ann", api_key=key)
        assert "hunter2" not in repr(result)
        assert "***" in result.error.message
    assert "hunter2" not in repr([(event.shown_args(), event.error) for event in events])
    assert events[0].shown_args() == {"user": "ann", "api_key": "***"}


def test_app_secrets_are_redacted_from_what_a_tool_says():
    def handler():
        raise RuntimeError("401 for key s3cr3t")

    from onetool.services.secrets import Secrets

    executor = Executor(_registry(handler), redact=Secrets({"KEY": "s3cr3t"}).redact_data)
    assert run(executor).error.message == "RuntimeError: 401 for key ***"


def test_secrets_are_taken_out_of_every_part_of_a_result():
    from onetool.services.secrets import Secrets

    redact = Secrets({"KEY": "s3cr3t"}).redact_data

    def fails():
        raise ToolFailure("no", reason="s3cr3t", hints=["try s3cr3t"])

    assert "s3cr3t" not in repr(run(Executor(_registry(fails), redact=redact)))
    assert run(Executor(_registry(lambda: {"deep": ["s3cr3t"]}), redact=redact)).data == {"deep": ["***"]}


def test_a_value_that_the_caller_sent_is_masked_in_records_and_not_in_its_result():
    from onetool.services.secrets import Secrets

    events = []
    redact = Secrets({"KEY": "s3cr3t-0123"}).redact_data
    executor = executor_for(lambda n: n, NUMBER, redact=redact, recorders=[events.append])
    assert "s3cr3t-0123" in run(executor, n="s3cr3t-0123").error.message
    assert "***" in events[0].error.message
    assert "s3cr3t-0123" not in repr(events[0].error)


NESTED = {
    "type": "object",
    "properties": {"options": {"type": "object"}, "hint": {"$ref": "#/$defs/hidden"}, "n": {"type": "integer"}},
    "$defs": {"hidden": {"anyOf": [{"type": "string", "writeOnly": True}, {"type": "null"}]}},
}


def test_nested_borrowed_and_unknown_secrets_are_in_no_event():
    events = []

    def fails(**args):
        raise ValueError(f"bad {args}")

    executor = executor_for(fails, NESTED, recorders=[events.append])
    secret = "hunter2-hunter2"
    for args in (
        {"options": {"headers": {"Authorization": secret}, "list": [{"api_key": secret}]}},
        {"hint": secret},
        {"pasword": secret},
        {"options": {"credentials": {"user": secret}}},
    ):
        result = run(executor, **args)
        assert secret not in repr(result)
    assert secret not in repr([(event.shown_args(), event.error) for event in events])


class FaultyFailure(ToolFailure):
    def __init__(self):
        pass

    def __str__(self):
        raise SystemExit("from __str__")


class OddFailure(ToolFailure):
    reason = 5
    hints = 7


class RudeModel:
    def model_dump(self, mode):
        raise SystemExit("from model_dump")


def test_a_secret_that_looks_like_an_error_code_is_no_trouble():
    schema = {"type": "object", "properties": {"password": {"type": "string"}}}

    def fails(password):
        raise ValueError("no")

    error = run(executor_for(fails, schema), password="execution_error").error
    assert error.code == "execution_error"


def test_however_rude_a_failure_is_it_becomes_a_result():
    deep = ValueError("bottom")
    for _ in range(1_500):
        deep = ExceptionGroup("g", [deep])
    wide = ValueError("bottom")
    for _ in range(8):
        wide = ExceptionGroup("g", [wide] * 5)
    for error in (FaultyFailure(), OddFailure("odd"), deep, wide):
        for handler in _raises(error):
            with calls(20_000):
                assert run(executor_for(handler)).error.code == "execution_error"
    assert run(executor_for(RudeModel)).error.reason == "output_invalid"


def test_a_mock_object_is_no_data():
    from unittest.mock import Mock

    with calls(20_000):
        assert run(executor_for(lambda: Mock())).error.reason == "output_invalid"


def test_a_task_of_a_tool_that_exits_does_not_end_the_process():
    async def leaves():
        raise SystemExit(7)

    async def gathers():
        await asyncio.gather(leaves(), asyncio.sleep(0))

    async def groups():
        async with asyncio.TaskGroup() as group:
            group.create_task(leaves())

    for handler in (gathers, groups):
        assert "end the process" in run(executor_for(handler)).error.message


@each("timeout", [float("nan"), 0, -1, "5", True, 10**400])
def test_a_time_limit_that_is_none(timeout):
    executor = executor_for(lambda: 1)
    result = asyncio.run(executor.execute(ToolCall("1", "t", {}, timeout=timeout)))
    assert result.ok if timeout == 10**400 else result.error.code == "invalid_args"
    if timeout != 10**400:
        with pytest.raises(ValueError, match="timeout"):
            Executor(Registry(), timeout=timeout)


def test_hung_threads_do_not_use_up_the_others():
    from onetool.core.threads import Threads

    release = threading.Event()

    async def call():
        executor = executor_for(lambda: release.wait(20))
        executor._runner._threads = Threads(most=4)
        for _ in range(12):
            result = await executor.execute(ToolCall("1", "t", {}, timeout=0.05))
            assert result.error.reason == "timeout"
        release.set()
        return await executor.execute(ToolCall("1", "t", {}, timeout=5))

    assert asyncio.run(call()).ok


class NoThread(threading.Thread):
    """A thread of a system that has none left."""

    def start(self):
        raise RuntimeError("can't start new thread")


def test_without_a_thread_a_call_fails_and_is_recorded(monkeypatch):
    from onetool.core import threads

    events = []
    executor = executor_for(lambda: 1, recorders=[events.append])
    with monkeypatch.context() as patch:
        patch.setattr(threads, "Thread", NoThread)
        found = [run(executor), threads.run_blocking(executor.execute(ToolCall("1", "t", {})))]
    assert [result.error.message for result in found] == ["RuntimeError: can't start new thread"] * 2
    assert [event.ok for event in events] == [False, False]
    assert run(executor).ok


def test_a_call_that_hangs_ends_though_no_thread_is_left_for_the_next_one(monkeypatch):
    from onetool.core import threads

    release = threading.Event()

    async def call():
        executor = executor_for(lambda: release.wait(20))
        executor._runner._threads = threads.Threads(most=1)
        hangs = asyncio.create_task(executor.execute(ToolCall("1", "t", {}, timeout=0.05)))
        await asyncio.sleep(0)
        monkeypatch.setattr(threads, "Thread", NoThread)
        return await asyncio.gather(hangs, executor.execute(ToolCall("2", "t", {}, timeout=0.1)))

    results = asyncio.run(asyncio.wait_for(call(), 10))
    release.set()
    assert [result.error.reason for result in results] == ["timeout", "timeout"]


def test_an_allow_list_can_only_be_narrowed():
    registry = Registry()
    for name in ("a", "b"):
        registry.register(ToolSpec(name=name, description="d", handler=lambda: 1))
    executor = Executor(registry, allowed=["a"])
    assert not asyncio.run(executor.execute(ToolCall("1", "b", {}), allowed=["a", "b"])).ok
    assert asyncio.run(executor.execute(ToolCall("1", "a", {}), allowed=["a", "b"])).ok
    with pytest.raises(TypeError, match="list of names"):
        asyncio.run(executor.execute(ToolCall("1", "a", {}), allowed="a"))


def test_a_tool_name_of_a_megabyte_is_refused_in_short():
    with calls(20_000):
        error = run(executor_for(lambda: 1), "x" * 1_000_000).error
    assert len(error.message) < 500


def test_a_recorder_that_fails_does_not_touch_the_call(caplog):
    def broken(event):
        raise RuntimeError("disk full")

    assert run(Executor(_registry(lambda: 1), recorders=[broken])).ok
    assert "recorder failed" in caplog.text


def test_a_tool_without_a_handler_says_so():
    assert "no handler" in run(executor_for(None)).error.message


def test_arguments_that_are_not_an_object():
    executor = executor_for(lambda: 1)
    for args in ([], None, "x", 3):
        result = asyncio.run(executor.execute(ToolCall("1", "t", args)))
        assert result.error.code == "invalid_args"
        assert "expected an object" in result.error.message


def test_arguments_that_are_not_json():
    result = run(executor_for(lambda n: n, {"type": "object", "properties": {"n": {"type": "array"}}}), n={1, 2})
    assert result.error.code == "invalid_args"
    assert "JSON data" in result.error.message


def _registry(handler, schema=None, timeout=None):
    registry = Registry()
    spec = ToolSpec(name="t", description="d", handler=handler, timeout=timeout)
    registry.register(spec)
    return registry


def test_a_call_that_is_cancelled_as_its_handler_ends_leaves_no_noise(caplog):
    import gc

    async def main():
        gate = asyncio.Event()

        async def waits():
            await gate.wait()

        call = asyncio.create_task(executor_for(waits).execute(ToolCall("1", "t")))
        await asyncio.sleep(0.05)
        gate.set()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.sleep(0.05)

    asyncio.run(main())
    gc.collect()
    assert caplog.records == []


def test_whatever_a_failure_carries_there_is_a_result():
    class Odd:
        def __repr__(self):
            raise ValueError("no")

    async def fails():
        raise ToolFailure("a", reason=Odd())

    assert run(executor_for(fails)).error.reason == "Odd"
