"""Whoever is at the other end of a call: how long it was waited for, and what is its own."""

import asyncio

import pytest
from helpers import forever

from onetool import Executor, Registry, ToolCall, ToolSpec
from onetool.core.call import CannotAsk, Declined, Pauses, current_caller
from onetool.core.context import paused_for_caller
from onetool.core.errors import ToolFailure
from onetool.core.principal import LOCAL, Principal, current_principal, owner
from onetool.core.threads import run_blocking


class Patient:
    """A caller that takes its time to answer."""

    def __init__(self, seconds=0.0):
        self._seconds = seconds

    async def ask(self, question):
        with paused_for_caller():
            await asyncio.sleep(self._seconds)
        return question


class Asked:
    """A caller that answers when it is told to."""

    def __init__(self):
        self.answers = asyncio.Event()

    async def ask(self, question):
        with paused_for_caller():
            await asyncio.wait_for(self.answers.wait(), 30)
        return question


def called(handler, caller, timeout=None, principal=LOCAL, run=asyncio.run):
    """What comes of a tool that this caller calls."""
    registry = Registry()
    registry.register(ToolSpec(name="t", description="d", handler=handler))

    async def call():
        current_caller.set(caller)
        current_principal.set(principal)
        return await Executor(registry).execute(ToolCall("1", "t", {}, "test", timeout))

    return run(call())


# Pauses


def test_time_is_counted_while_somebody_is_waited_for(clock):
    pauses = Pauses()
    assert pauses.waited() == 0
    with pauses:
        clock.now += 2
        assert pauses.waited() == 2
    clock.now += 3
    assert pauses.waited() == 2
    with pauses:
        clock.now += 4
    assert pauses.waited() == 6


def test_two_at_once_count_once(clock):
    pauses = Pauses()
    with pauses, pauses:
        clock.now += 3
    assert pauses.waited() == 3


def test_whoever_waits_holds_up_those_outside_and_nobody_else(clock):
    outer = Pauses()
    inner, other = Pauses(outer), Pauses(outer)
    with inner:
        clock.now += 2
    assert inner.waited() == 2
    assert outer.waited() == 2
    assert other.waited() == 0


def test_it_ends_whatever_happens(clock):
    pauses = Pauses()
    with pytest.raises(ZeroDivisionError), pauses:
        raise ZeroDivisionError
    clock.now += 5
    assert pauses.waited() == 0


def test_who_wants_to_know_is_told_when_a_pause_begins_and_ends():
    pauses, heard = Pauses(), []
    with pauses:
        pass
    with pauses.notifying(heard.append):
        with pauses, pauses:
            assert heard == [True]
        assert heard == [True, False]
    with pauses:
        pass
    assert heard == [True, False]


def test_who_comes_and_goes_in_the_middle_of_a_pause_hears_of_it():
    pauses, heard = Pauses(), []
    with pauses:
        with pauses.notifying(heard.append):
            assert heard == [True]
        assert heard == [True, False]
    assert heard == [True, False]


# Deadlines


def test_waiting_for_the_caller_does_not_count(clock):
    caller = Patient(30)

    async def asks():
        return await caller.ask("x")

    assert called(asks, caller, timeout=10, run=clock.run).data == "x"


def test_the_time_of_the_tool_itself_does(clock):
    caller, ended = Patient(30), []

    async def asks_and_works():
        await caller.ask("x")
        await forever()
        ended.append(True)

    result = called(asks_and_works, caller, timeout=10, run=clock.run)
    assert (result.error.reason, ended) == ("timeout", [])


@pytest.mark.parametrize("is_async", [True, False])
def test_a_tool_that_called_the_one_who_asks_does_not_run_out_of_time_either(is_async):
    caller = Patient(0.4)
    registry = Registry()
    executor = Executor(registry)

    async def asks():
        return await caller.ask("x")

    async def calls():
        return (await executor.execute(ToolCall("2", "asks", {}))).data

    def calls_blocking():
        return run_blocking(executor.execute(ToolCall("2", "asks", {}))).data

    for name, handler in (("asks", asks), ("calls", calls if is_async else calls_blocking)):
        registry.register(ToolSpec(name=name, description="d", handler=handler, timeout=0.2))

    async def call():
        current_caller.set(caller)
        return await executor.execute(ToolCall("1", "calls", {}))

    result = asyncio.run(call())
    assert (result.error, result.data) == (None, "x")


def test_what_runs_beside_the_one_who_asks_gets_no_more_time(clock):
    caller = Patient(50)
    registry = Registry()
    executor = Executor(registry)

    async def asks():
        return await caller.ask("x")

    async def works():
        await forever()

    async def both():
        calls = [executor.execute(ToolCall(name, name, {})) for name in ("asks", "works")]
        results = await asyncio.gather(*calls)
        return [result.data or result.error.reason for result in results]

    for name, handler, timeout in (("asks", asks, 10), ("works", works, 10), ("both", both, 500)):
        registry.register(ToolSpec(name=name, description="d", handler=handler, timeout=timeout))

    async def call():
        current_caller.set(caller)
        return await executor.execute(ToolCall("1", "both", {}))

    assert clock.run(call()).data == ["x", "timeout"]


def test_waiting_outside_of_any_call_is_nothing():
    with paused_for_caller():
        pass


def test_two_calls_of_one_caller_do_not_lend_each_other_time(clock):
    """What the first has waited is over when the second begins."""
    caller = Patient(20)

    async def asks():
        return await caller.ask("x")

    async def works():
        await forever()

    registry = Registry()
    for name, handler in (("asks", asks), ("works", works)):
        registry.register(ToolSpec(name=name, description="d", handler=handler, timeout=10))
    executor = Executor(registry)

    async def call():
        current_caller.set(caller)
        assert (await executor.execute(ToolCall("1", "asks", {}))).ok
        started = clock.now
        result = await executor.execute(ToolCall("2", "works", {}))
        return result, clock.now - started

    result, seconds = clock.run(call())
    assert result.error.reason == "timeout"
    assert seconds == pytest.approx(10)


# Words, and whose it is


def test_failures_say_what_they_are():
    error = CannotAsk("sampling", "no model here")
    assert isinstance(error, ToolFailure)
    assert (str(error), error.capability, error.reason) == ("no model here", "sampling", "cannot_ask")
    assert (str(Declined("decline")), Declined("decline").reason) == ("the person declined", "declined")
    assert (str(Declined("cancel")), Declined("cancel").action) == ("the person cancelled", "cancel")


def test_what_is_stored_belongs_to_whoever_called():
    assert owner() == ""
    assert called(lambda: owner(), Patient(), principal=Principal(owner="me")).data == "me"
    assert called(lambda: owner(), None).data == ""


def test_what_runs_beside_the_one_who_asks_has_its_own_time():
    """Else a question that nobody answers would keep everything alive that was begun with it."""
    caller = Asked()
    registry = Registry()
    executor = Executor(registry)

    async def asks():
        return await caller.ask("x")

    async def hangs():
        await forever()

    async def both():
        asked = asyncio.ensure_future(executor.execute(ToolCall("2", "asks", {})))
        hung = await executor.execute(ToolCall("3", "hangs", {}))
        is_first = not asked.done()
        caller.answers.set()
        return [hung.error.reason, is_first, (await asked).data]

    for name, handler, timeout in (("asks", asks, 0.2), ("hangs", hangs, 0.2), ("both", both, 0.5)):
        registry.register(ToolSpec(name=name, description="d", handler=handler, timeout=timeout))

    async def call():
        current_caller.set(caller)
        return await executor.execute(ToolCall("1", "both", {}))

    assert asyncio.run(call()).data == ["timeout", True, "x"]
