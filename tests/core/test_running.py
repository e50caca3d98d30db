"""An alarm rings when the time of a call is up, and not while its caller is being waited for."""

import asyncio

import pytest

from onetool.core.call import Pauses, ToolCall
from onetool.core.context import CallContext
from onetool.core.running import Deadline, within_deadline
from onetool.core.spec import ToolSpec


def context(deadline, pauses=None):
    spec = ToolSpec(name="t", description="d")
    return CallContext(spec=spec, call=ToolCall("1", "t"), deadline=deadline, pauses=pauses)


@pytest.fixture
def rings_after(clock):
    """When it rings, in seconds from its start; None if it does not within a minute."""

    def rings_after(seconds, pauses=None, grace=0.0, meanwhile=None):
        async def test():
            loop, started, rang = asyncio.get_running_loop(), clock.now, []
            due = context(started + seconds, pauses)
            alarm = Deadline(loop, due, lambda: rang.append(clock.now - started), grace)
            if meanwhile is not None:
                await meanwhile(alarm)
            await asyncio.sleep(60)
            return rang[0] if rang else None

        return clock.run(test())

    return rings_after


@pytest.mark.parametrize("pauses", [None, Pauses()], ids=["alone", "with a caller"])
def test_it_rings_when_the_time_is_up(rings_after, pauses):
    assert rings_after(5, pauses) == pytest.approx(5)


def test_grace_is_time_beyond_the_deadline(rings_after):
    assert rings_after(5, Pauses(), grace=2) == pytest.approx(7)


def test_a_deadline_that_is_over_rings_at_once(rings_after):
    assert rings_after(-1, Pauses()) == 0


def test_it_can_be_turned_off(rings_after):
    async def turn_off(alarm):
        alarm.timer.cancel()

    assert rings_after(5, Pauses(), meanwhile=turn_off) is None


def test_it_can_be_turned_off_while_somebody_is_waited_for(rings_after):
    pauses = Pauses()

    async def wait_and_turn_off(alarm):
        with pauses:
            await asyncio.sleep(15)
        alarm.timer.cancel()

    assert rings_after(5, pauses, meanwhile=wait_and_turn_off) is None


@pytest.mark.parametrize("is_inside", [False, True])
def test_waiting_puts_it_off(rings_after, is_inside):
    pauses = Pauses()

    async def wait(alarm):
        with Pauses(pauses) if is_inside else pauses:
            await asyncio.sleep(30)

    assert rings_after(5, pauses, meanwhile=wait) == pytest.approx(35)


def test_it_does_not_ring_as_long_as_somebody_is_waited_for(rings_after):
    pauses = Pauses()

    async def wait(alarm):
        pauses.__enter__()

    assert rings_after(5, pauses, meanwhile=wait) is None


def test_in_time_ends_what_takes_longer(clock):
    async def work(seconds):
        async with within_deadline(context(clock.now + 5)):
            await asyncio.sleep(seconds)
            return "done"

    assert clock.run(work(4)) == "done"
    with pytest.raises(TimeoutError):
        clock.run(work(6))


def test_in_time_waits_for_the_caller(clock):
    async def work():
        pauses = Pauses()
        async with within_deadline(context(clock.now + 5, pauses)):
            with pauses:
                await asyncio.sleep(30)
            return "done"

    assert clock.run(work()) == "done"
