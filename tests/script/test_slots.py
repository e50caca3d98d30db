"""So many at a time, the others in order; and whoever stops waiting takes nobody's turn."""

import asyncio

import pytest

from onetool.core.principal import Principal, current_principal
from onetool.script.slots import Slots


def test_so_many_at_a_time_and_in_order():
    async def main():
        slots, inside, most, order = Slots(2), 0, 0, []

        async def one(number):
            nonlocal inside, most
            async with slots.slot():
                inside += 1
                most = max(most, inside)
                order.append(number)
                await asyncio.sleep(0.01)
                inside -= 1

        await asyncio.gather(*[one(number) for number in range(8)])
        return most, order

    assert asyncio.run(main()) == (2, list(range(8)))


@pytest.mark.parametrize("when", ["waiting", "let in"])
def test_whoever_stops_waiting_takes_nobody_s_turn(when):
    async def main():
        slots = Slots(1)

        async def one(hold):
            async with slots.slot():
                await hold.wait()

        first, done = asyncio.Event(), asyncio.Event()
        done.set()
        holder = asyncio.create_task(one(first))
        await asyncio.sleep(0)
        waiter = asyncio.create_task(one(done))
        await asyncio.sleep(0)
        if when == "let in":  # the turn is given, but the task has not run yet
            first.set()
            await asyncio.sleep(0)
        waiter.cancel()
        first.set()
        await asyncio.gather(holder, waiter, return_exceptions=True)
        for _ in range(3):  # the turn is there, and there is one
            await asyncio.wait_for(one(done), 60)
        blocker = asyncio.create_task(one(asyncio.Event()))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(one(done), 0.05)
        blocker.cancel()

    asyncio.run(main())


def test_it_works_between_loops():
    """An app may be used from a notebook's loop and from its own."""
    slots = Slots(1)

    async def one():
        async with slots.slot():
            await asyncio.sleep(0.01)

    async def main():
        await asyncio.gather(one(), asyncio.to_thread(asyncio.run, one()), one())

    asyncio.run(main())


@pytest.mark.parametrize("paused_first", [True, False])
def test_a_run_that_waits_for_a_person_lets_the_next_one_in(paused_first):
    async def main():
        slots = Slots(1)
        order = []

        async def another():
            async with slots.slot():
                order.append("another")

        async with slots.slot() as slot:
            waiting = asyncio.create_task(another())
            await asyncio.sleep(0)
            if paused_first:
                slot.pause(True)
            assert slot.wait(True) is not paused_first
            slot.pause(True)
            await waiting
            slot.pause(False)
            assert not slot.wait(False)
            assert slot.take().done()
            order.append("back")
            third = asyncio.create_task(another())
            await asyncio.sleep(0.01)
            assert order == ["another", "back"]  # the one who is back counts again
        await third
        assert order == ["another", "back", "another"]
        async with asyncio.timeout(1), slots.slot():  # and nothing was lost
            pass

    asyncio.run(main())


def test_callers_take_turns():
    """Who has many waiting holds up its own alone."""

    async def main():
        slots, order, first = Slots(1), [], asyncio.Event()

        async def one(who, hold=None):
            current_principal.set(Principal(owner=who))
            async with slots.slot():
                order.append(who)
                if hold is not None:
                    await hold.wait()

        tasks = [asyncio.create_task(one("ada", first))]
        await asyncio.sleep(0)
        for who in ("ada", "ada", "ada", "bob", "bob"):
            tasks.append(asyncio.create_task(one(who)))
            await asyncio.sleep(0)
        first.set()
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(main()) == ["ada", "ada", "bob", "ada", "bob", "ada"]


def as_caller(name):
    current_principal.set(Principal(name=name, owner=name))


@pytest.mark.attack("other callers")
@pytest.mark.parametrize(("count", "share"), [(1, 1), (2, 1), (3, 2), (4, 2), (8, 4)])
def test_one_caller_uses_all_slots_and_leaves_others_the_half_beyond_its_share(count, share):
    async def main():
        slots, inside, end = Slots(count), [], asyncio.Event()

        async def one(who):
            as_caller(who)
            async with slots.slot():
                inside.append(who)
                await end.wait()

        tasks = [asyncio.create_task(one("ada")) for _ in range(count * 2)]
        tasks += [asyncio.create_task(one(f"caller {number}")) for number in range(count)]
        for _ in range(10):
            await asyncio.sleep(0)
        found = inside.copy()
        end.set()
        await asyncio.gather(*tasks)
        return found, len(inside)

    found, all_in_the_end = asyncio.run(main())
    assert found == ["ada"] * count + [f"caller {number}" for number in range(count - share)]
    assert all_in_the_end == count * 3


@pytest.mark.attack("other callers")
def test_a_caller_whose_turn_it_is_but_who_has_a_run_is_passed_over():
    async def main():
        slots, order, ends = Slots(2), [], [asyncio.Event() for _ in range(3)]

        async def one(who, end=None):
            as_caller(who)
            async with slots.slot():
                order.append(who)
                if end is not None:
                    await end.wait()

        tasks = [asyncio.create_task(one("ada", ends[0])), asyncio.create_task(one("bob", ends[1]))]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(one("ada")), asyncio.create_task(one("cy", ends[2]))]
        await asyncio.sleep(0)
        ends[1].set()  # ada is first in the queue, and has the other slot
        for _ in range(10):
            await asyncio.sleep(0)
        assert order == ["ada", "bob", "cy"]
        ends[0].set()
        ends[2].set()
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(main()) == ["ada", "bob", "cy", "ada"]


@pytest.mark.attack("other callers")
def test_a_run_that_comes_back_waits_until_its_caller_has_a_slot():
    async def main():
        slots = Slots(2)
        as_caller("ada")
        async with slots.slot() as slot:
            slot.wait(True)
            slot.pause(True)
            async with asyncio.timeout(1), slots.slot(), slots.slot():  # both of them
                slot.pause(False)
                assert not slot.wait(False)
                ticket = slot.take()
                assert not ticket.done()
                as_caller("bob")
                async with asyncio.timeout(1), slots.slot():
                    pass
                assert not ticket.done()
            assert ticket.done()
        async with asyncio.timeout(1), slots.slot():  # and nothing was lost
            pass

    asyncio.run(main())


@pytest.mark.attack("other callers")
def test_code_that_goes_on_while_a_person_is_asked_keeps_its_slot():
    async def main():
        slots = Slots(1)
        async with slots.slot() as slot:
            slot.pause(True)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01), slots.slot():
                    pass
            assert slot.wait(False)

    asyncio.run(main())


@pytest.mark.parametrize("has_slot", [True, False])
def test_a_run_that_ends_while_it_comes_back_leaves_nothing(has_slot):
    async def main():
        slots = Slots(1)
        async with slots.slot() as slot:
            slot.wait(True)
            slot.pause(True)
            async with slots.slot() as other:
                slot.wait(False)
                ticket = slot.take()
                if has_slot:
                    other.release()
                assert ticket.done() is has_slot
                slot.release()
        async with asyncio.timeout(1), slots.slot():
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01), slots.slot():
                    pass

    asyncio.run(main())
