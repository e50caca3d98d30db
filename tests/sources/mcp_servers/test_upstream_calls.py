"""A call under way whose server asks its caller: whose time it is, and what comes of a question that comes late."""

import asyncio

import pytest
from helpers import FakeClock, forever

from onetool.core.errors import ToolFailure
from onetool.sources.mcp_servers.upstream_calls import UpstreamCall, UpstreamCalls

LONG = 600.0


def of(seconds, value="answer"):
    async def question():
        await asyncio.sleep(seconds)
        return value

    return question


def test_a_question_that_outlives_its_call_is_answered_all_the_same():
    async def scene():
        flight = UpstreamCall()
        async with flight.within(LONG):
            asked = asyncio.create_task(flight.on_caller_loop(of(0.1)))
            await asyncio.sleep(0.02)
        return await asked

    assert FakeClock().run(scene()) == "answer"


def test_a_question_after_the_end_of_its_call_is_refused_in_words():
    async def scene():
        flight = UpstreamCall()
        with pytest.raises(ToolFailure, match="its caller can't be asked"):
            await flight.on_caller_loop(of(0))
        async with flight.within(LONG):
            pass
        with pytest.raises(ToolFailure, match="its caller can't be asked"):
            await flight.on_caller_loop(of(0))

    asyncio.run(scene())


def test_the_clock_stands_still_until_the_last_question_is_answered():
    async def scene():
        flight = UpstreamCall()
        async with flight.within(4):
            short = asyncio.create_task(flight.on_caller_loop(of(1, "short")))
            await asyncio.sleep(0)
            long = asyncio.create_task(flight.on_caller_loop(of(10, "long")))
            return await short, await long

    assert FakeClock().run(scene()) == ("short", "long")


def test_and_goes_on_with_what_was_left():
    async def scene():
        flight = UpstreamCall()
        async with flight.within(3):
            await asyncio.gather(*(flight.on_caller_loop(of(n * 10)) for n in range(3)))
            await forever()

    with pytest.raises(TimeoutError):
        FakeClock().run(scene())


@pytest.mark.parametrize("how", ["error", "cancelled"])
def test_the_clock_goes_on_when_a_question_fails(how):
    async def fails():
        raise LookupError

    async def scene():
        flight = UpstreamCall()
        async with flight.within(3):
            if how == "error":
                with pytest.raises(LookupError):
                    await flight.on_caller_loop(fails)
            else:
                asked = asyncio.create_task(flight.on_caller_loop(of(LONG)))
                await asyncio.sleep(0.02)
                asked.cancel()
            await forever()

    with pytest.raises(TimeoutError):
        FakeClock().run(scene())


def test_calls_that_are_under_way():
    async def scene():
        flights, one, two = UpstreamCalls(), UpstreamCall(), UpstreamCall()
        assert flights.is_empty()
        assert flights.only() is None
        with flights.pending(one):
            assert not flights.is_empty()
            assert flights.only() is one
            with flights.pending(two):  # of the same caller: the newest is meant
                assert flights.only() is two
        assert flights.is_empty()

    asyncio.run(scene())
