"""What takes long is done in a thread: others go on meanwhile, and whoever is cancelled leaves nothing behind."""

import asyncio
import threading
from contextlib import suppress

import pytest
from ask.sessions.harness import harness
from helpers import until, until_async

from onetool.ask.errors import SessionError
from onetool.ask.messages import Usage, User
from onetool.ask.sessions import store
from onetool.ask.sessions.store import SessionStore
from onetool.ask.sessions.turn import ChatSession
from onetool.core.work import check_wanted, run_in_thread

__all__ = ["harness"]

MAX_WAIT_S = 10  # that a thread waits for the loop, which would never come if it were held up


@pytest.fixture
def sessions(harness):
    made = harness.open()
    asyncio.run(turn(made))
    return made


class Held:
    """One of our functions, which goes on when the loop says so: `calls` of it have begun."""

    def __init__(self, real):
        self._real = real
        self.calls = []
        self.let_go = threading.Event()

    def __call__(self, *args, **options):
        self.calls.append(args)
        assert self.let_go.wait(MAX_WAIT_S), "the loop was held up"
        return self._real(*args, **options)

    async def begun(self):
        await until_async(lambda: self.calls)


@pytest.fixture
def held(monkeypatch):
    def make(place, name):
        function = Held(getattr(place, name))
        monkeypatch.setattr(place, name, lambda *args, **options: function(*args, **options))
        return function

    return make


async def turn(sessions, id="x"):
    async with sessions.turn(id) as session:
        session.append(User(text="a"))
        session.end("p", "m", Usage(), 1)


def is_free():
    return not store._under_way


async def cancelled_once_begun(sessions, function, times=1, id="x"):
    task = asyncio.create_task(turn(sessions, id))
    await function.begun()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0.01)
    assert not task.done()
    function.let_go.set()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


SLOW = [(SessionStore, "_content"), (SessionStore, "_infos"), (ChatSession, "_write")]


@pytest.mark.parametrize("what", SLOW, ids=lambda what: what[1])
def test_nobody_else_is_held_up(sessions, held, what):
    function = held(*what)

    async def others():
        task = asyncio.create_task(turn(sessions, "last"))
        await function.begun()
        function.let_go.set()
        await task

    asyncio.run(others())


@pytest.mark.parametrize("what", [SLOW[0], SLOW[2]], ids=lambda what: what[1])
def test_who_is_cancelled_gives_its_session_back(sessions, harness, held, what):
    asyncio.run(cancelled_once_begun(sessions, held(*what), times=2))
    assert is_free()
    assert sessions.list()[0].turns == (1 if what[1] == "_content" else 2)


def test_a_new_one_is_not_left_empty(sessions, harness, held):
    asyncio.run(cancelled_once_begun(sessions, held(ChatSession, "__init__"), id=None))
    assert harness.write("SELECT id FROM ask_sessions") == [("x",)]


def test_it_is_written_before_others_have_it(sessions, harness, held):
    function = held(ChatSession, "_write")

    async def both():
        first = asyncio.create_task(turn(sessions))
        await function.begun()
        with pytest.raises(SessionError, match="in use by this process"):
            await turn(sessions)
        function.let_go.set()
        await first

    asyncio.run(both())
    assert is_free()


def full(*_, **__):
    raise SessionError("the disk is full", "session")


def test_what_came_first_says_more_than_a_full_disk(sessions, harness, monkeypatch):
    monkeypatch.setattr(ChatSession, "_write", full)

    async def failing():
        async with sessions.turn("x") as session:
            session.end("p", "m", Usage(), 1)
            raise RuntimeError("first")

    with pytest.raises(RuntimeError, match="first"):
        asyncio.run(failing())
    with pytest.raises(SessionError, match="the disk is full"):
        asyncio.run(turn(sessions))
    assert is_free()


def test_a_turn_that_is_thrown_away_gives_its_session_back(sessions, harness):
    """Without a loop: nothing can be awaited any more."""
    loop = asyncio.new_event_loop()
    under_way = sessions.turn("x")
    loop.run_until_complete(under_way.__aenter__())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    assert not is_free()
    with suppress(RuntimeError):
        under_way.gen.athrow(GeneratorExit).send(None)
    assert is_free()


def test_what_it_gives_and_what_it_raises():
    async def tried():
        assert await run_in_thread(lambda: 1) == 1
        with pytest.raises(ZeroDivisionError):
            await run_in_thread(lambda: 1 / 0)

    asyncio.run(tried())


def test_work_ends_at_its_next_check_and_is_waited_for():
    steps = []

    def work():
        check_wanted()
        steps.append("begins")
        until(lambda: "cancelled" in steps)
        steps.append("ends")
        check_wanted()
        steps.append("goes on")

    async def tried():
        task = asyncio.create_task(run_in_thread(work))
        await until_async(lambda: steps)
        task.cancel()
        await asyncio.sleep(0)
        steps.append("cancelled")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert steps == ["begins", "cancelled", "ends"]

    asyncio.run(tried())
