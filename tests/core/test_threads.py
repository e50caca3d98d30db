"""A loop in a thread of its own: values and errors come back, who cancels is heard on both sides, its end is told."""

import asyncio
import gc
import threading
from contextvars import ContextVar
from time import monotonic

import pytest
from helpers import forever, until_async

from onetool.core.threads import LoopThread, run_later

LONG = 600.0  # seconds: nobody waits for that
PATIENCE = 60

colour = ContextVar("colour", default="none")


@pytest.fixture
def background():
    made = LoopThread("the-other-loop")
    yield made
    made.close()


def waited(work):
    """Run it on a loop of the test's own, and not for ever."""

    async def bounded():
        async with asyncio.timeout(PATIENCE):
            return await work

    return asyncio.run(bounded())


async def thread():
    return threading.current_thread().name


async def seven():
    await asyncio.sleep(0)
    return 7


async def fails():
    await asyncio.sleep(0)
    raise LookupError("not here")


class Hangs:
    """Work without an end; it notes that it was begun, and that it was cancelled."""

    def __init__(self):
        self.begun, self.cancelled = threading.Event(), threading.Event()

    async def work(self):
        try:
            self.begun.set()
            await forever()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


# The value comes back


def test_every_way_gives_the_value(background):
    assert background.run_sync(seven()) == 7
    assert background.submit(seven()).result(PATIENCE) == 7
    assert waited(background.run(seven())) == 7


def test_every_way_runs_over_there(background):
    assert background.run_sync(thread()) == "the-other-loop"
    assert background.submit(thread()).result(PATIENCE) == "the-other-loop"
    assert waited(background.run(thread())) == "the-other-loop"


def test_every_way_raises_the_error(background):
    with pytest.raises(LookupError, match="not here"):
        background.run_sync(fails())
    with pytest.raises(LookupError, match="not here"):
        background.submit(fails()).result(PATIENCE)
    with pytest.raises(LookupError, match="not here"):
        waited(background.run(fails()))


def test_nothing_runs_before_it_is_wanted():
    background = LoopThread("nobody-wants-it")
    assert "nobody-wants-it" not in [one.name for one in threading.enumerate()]
    background.close()  # and that nothing was started is not a trouble


def test_many_at_once_from_many_loops(background):
    values = []

    async def many():
        async def number(n):
            await asyncio.sleep(0.001 * (n % 3))
            return n

        return await asyncio.gather(*(background.run(number(n)) for n in range(50)))

    threads = [threading.Thread(target=lambda: values.append(waited(many()))) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(PATIENCE)
    assert values == [list(range(50))] * 4


def test_on_its_own_loop_it_can_be_awaited_and_not_waited_for(background):
    async def inside():
        assert await background.run(seven()) == 7
        with pytest.raises(RuntimeError, match="await the async method"):
            background.run_sync(seven())
        return "went on"

    assert background.submit(inside()).result(PATIENCE) == "went on"


# Context variables


def test_the_context_of_who_waits_goes_along_and_is_not_changed(background):
    async def paint():
        before = colour.get()
        colour.set("blue")
        return before

    async def here():
        colour.set("red")
        first = await background.run(paint())
        return first, await background.run(paint()), colour.get()

    assert waited(here()) == ("red", "red", "red")
    token = colour.set("green")
    try:
        assert background.run_sync(paint()) == "green"
        assert background.submit(paint()).result(PATIENCE) == "green"
        assert colour.get() == "green"
    finally:
        colour.reset(token)


# Cancelled


def test_cancelled_here_it_is_cancelled_there(background):
    hangs = Hangs()

    async def here():
        waiting = asyncio.create_task(background.run(hangs.work()))
        await asyncio.to_thread(hangs.begun.wait, PATIENCE)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    waited(here())
    assert hangs.cancelled.wait(PATIENCE)


def test_cancelled_at_once_it_leaves_nothing_behind(background):
    """Before it could begin: nothing runs on, and no coroutine stays that nobody has awaited (that would warn)."""

    async def here():
        hangs = Hangs()
        waiting = asyncio.create_task(background.run(hangs.work()))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()

    async def others():
        return asyncio.all_tasks() - {asyncio.current_task()}

    background.run_sync(seven())
    for _ in range(50):
        waited(here())
    until = monotonic() + PATIENCE
    while left := background.run_sync(others()):
        assert monotonic() < until, left
    gc.collect()


def test_cancelled_there_it_is_cancelled_here(background):
    async def gives_up():
        asyncio.current_task().cancel()
        await forever()

    async def here():
        with pytest.raises(asyncio.CancelledError):
            await background.run(gives_up())
        return asyncio.current_task().cancelling()

    assert waited(here()) == 0  # it was the work, not who waits


def test_a_future_that_is_cancelled_cancels_its_work(background):
    hangs = Hangs()
    future = background.submit(hangs.work())
    assert hangs.begun.wait(PATIENCE)
    assert future.cancel()
    assert hangs.cancelled.wait(PATIENCE)


def test_who_waits_may_go_and_its_loop_with_it(background, caplog):
    """Work that does not heed that it is cancelled ends later, and tells nobody, rather than a loop that is closed."""
    go, ended = threading.Event(), threading.Event()

    async def deaf():
        try:
            await forever()
        except asyncio.CancelledError:
            await asyncio.to_thread(go.wait, PATIENCE)
            asyncio.get_running_loop().call_soon(ended.set)
            return "too late"

    async def here():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await background.run(deaf())

    waited(here())
    go.set()
    assert ended.wait(PATIENCE)
    assert background.run_sync(seven()) == 7
    assert caplog.messages == []


# Closed


def test_its_end_cancels_what_is_under_way(background):
    hangs, more = Hangs(), Hangs()
    future = background.submit(more.work())

    async def here():
        waiting = asyncio.create_task(background.run(hangs.work()))
        await asyncio.to_thread(hangs.begun.wait, PATIENCE)
        await asyncio.to_thread(background.close)
        with pytest.raises(asyncio.CancelledError):
            await waiting

    waited(here())
    assert hangs.cancelled.wait(PATIENCE)
    assert more.cancelled.wait(PATIENCE)
    assert future.cancelled()


def test_work_that_does_not_heed_its_end_holds_nobody_up(background, monkeypatch):
    monkeypatch.setattr("onetool.core.threads.CLOSE_SECONDS", 0.1)
    go = asyncio.Event()

    async def deaf():
        while not go.is_set():
            try:
                await forever()
            except asyncio.CancelledError:
                if go.is_set():
                    raise

    background.submit(deaf())
    background.run_sync(seven())
    background.close()
    assert not go.is_set()


def test_after_its_end_it_begins_anew(background):
    assert background.run_sync(seven()) == 7
    background.close()
    background.close()
    assert background.run_sync(seven()) == 7


def test_a_loop_that_has_ended_is_told_and_its_work_is_not_left_over(background, monkeypatch):
    ended = asyncio.new_event_loop()
    ended.close()
    monkeypatch.setattr(background, "_started", lambda: ended)

    async def here():
        with pytest.raises(RuntimeError, match="closed"):
            await background.run(seven())

    waited(here())
    gc.collect()  # a coroutine that was never awaited would warn


def test_who_comes_while_it_ends_is_not_left_waiting():
    """Some get their value, some an error or a cancellation; all come back."""

    async def many(background):
        calls = (background.run(seven()) for _ in range(3))
        async with asyncio.timeout(PATIENCE):
            return await asyncio.gather(*calls, return_exceptions=True)

    def come(background):
        try:
            answers.extend(asyncio.run(many(background)))
        except BaseException as error:  # looked at below
            answers.append(error)

    for _ in range(100):
        answers = []
        background = LoopThread()
        background.run_sync(seven())
        coming = threading.Thread(target=come, args=(background,))
        coming.start()
        background.close()
        coming.join(2 * PATIENCE)
        background.close()
        assert answers
        assert not any(isinstance(answer, TimeoutError) for answer in answers)


def test_work_for_later_is_done_in_a_thread():
    async def here():
        done = []
        run_later(0, lambda: done.append(threading.current_thread()))
        await until_async(lambda: done)
        return done

    (thread,) = waited(here())
    assert thread is not threading.current_thread()


def test_work_for_later_that_comes_too_late_is_no_error():
    """A server that stops in the first moments: its executor is closed, and its timers still ring."""
    told, done = [], []

    async def here():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        await loop.shutdown_default_executor()
        run_later(0, lambda: done.append(1))
        rang = asyncio.Event()
        loop.call_later(0, rang.set)
        await rang.wait()

    waited(here())
    assert (told, done) == ([], [])
