"""An alarm rings when the time of a call is up, and not while its caller is being waited for."""

import asyncio
import time

import pytest

from onetool.core.call import Pauses, ToolCall
from onetool.core.context import CallContext
from onetool.core.running import Deadline, within_deadline
from onetool.core.spec import ToolSpec


def context(seconds, pauses=None):
    return CallContext(
        spec=ToolSpec(name="t", description="d"),
        call=ToolCall("1", "t"),
        deadline=time.monotonic() + seconds,
        pauses=pauses,
    )


def rings_after(seconds, pauses=None, grace=0.0, meanwhile=None, patience=2.0):
    """How long it took to ring; None if it did not."""

    async def test():
        loop = asyncio.get_running_loop()
        rang, started = loop.create_future(), time.monotonic()
        alarm = Deadline(loop, context(seconds, pauses), lambda: rang.set_result(time.monotonic() - started), grace)
        if meanwhile is not None:
            await meanwhile(alarm)
        try:
            return await asyncio.wait_for(rang, patience)
        except TimeoutError:
            return None

    return asyncio.run(test())


@pytest.mark.parametrize("pauses", [None, Pauses()], ids=["alone", "with a caller"])
def test_it_rings_when_the_time_is_up(pauses):
    assert 0.04 < rings_after(0.05, pauses) < 0.5


def test_grace_is_time_beyond_the_deadline():
    assert 0.14 < rings_after(0.05, Pauses(), grace=0.1) < 0.6


def test_a_deadline_that_is_over_rings_at_once():
    assert rings_after(-1, Pauses()) < 0.2


def test_it_can_be_turned_off():
    async def turn_off(alarm):
        alarm.cancel()

    assert rings_after(0.05, Pauses(), meanwhile=turn_off, patience=0.2) is None


def test_it_can_be_turned_off_while_somebody_is_waited_for():
    pauses = Pauses()

    async def wait_and_turn_off(alarm):
        with pauses:
            await asyncio.sleep(0.15)
        alarm.cancel()

    assert rings_after(0.05, pauses, meanwhile=wait_and_turn_off, patience=0.2) is None


def test_waiting_puts_it_off():
    pauses = Pauses()

    async def wait(alarm):
        with pauses:
            await asyncio.sleep(0.3)

    assert 0.34 < rings_after(0.05, pauses, meanwhile=wait) < 0.8


def test_waiting_of_a_call_inside_puts_it_off_too():
    pauses = Pauses()

    async def wait(alarm):
        with Pauses(pauses):
            await asyncio.sleep(0.3)

    assert 0.34 < rings_after(0.05, pauses, meanwhile=wait) < 0.8


def test_it_does_not_ring_as_long_as_somebody_is_waited_for():
    pauses = Pauses()

    async def wait(alarm):
        pauses.__enter__()

    assert rings_after(0.05, pauses, meanwhile=wait, patience=0.4) is None


def test_in_time_ends_what_takes_longer():
    async def work(seconds, context):
        async with within_deadline(context):
            await asyncio.sleep(seconds)
            return "done"

    assert asyncio.run(work(0, context(1))) == "done"
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(work(30, context(0.05)))
    assert time.monotonic() - started < 2


def test_in_time_waits_for_the_caller():
    async def work():
        pauses = Pauses()
        async with within_deadline(context(0.1, pauses)):
            with pauses:
                await asyncio.sleep(0.3)
            return "done"

    assert asyncio.run(work()) == "done"
