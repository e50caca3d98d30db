"""An event loop in a thread of its own, for callers that have none they could wait on: a notebook runs one already."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 1.0  # seconds for what is under way to end, when it is cancelled


async def _all_cancelled() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    late = (await asyncio.wait(others, timeout=PATIENCE))[1] if others else ()
    if not late:  # those that do not heed it are left behind, and their generators with them: nobody can close these
        await asyncio.get_running_loop().shutdown_asyncgens()


class Background:
    """`background.call(coroutine)` runs it over there and waits for its value here. The loop starts when first used."""

    def __init__(self, name: str = "onetool-loop") -> None:
        self._name = name
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        if asyncio._get_running_loop() is not None and asyncio._get_running_loop() is self._loop:  # pyright: ignore[reportPrivateUsage]
            work.close()
            raise RuntimeError("this runs on the loop that it would wait for: await the async form instead")
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:  # Ctrl-C reaches the thread that waits, not the one that works
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run it over there, and go on here."""
        return asyncio.run_coroutine_threadsafe(work, self._started())

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it over there, and wait for it here, on another loop. Cancelled here, it is cancelled there."""
        here, there = asyncio.get_running_loop(), self._started()
        done: asyncio.Future[T] = here.create_future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(there.create_task(work))
            tasks[0].add_done_callback(ended)

        def ended(task: "asyncio.Task[T]") -> None:
            _ = task.cancelled() or task.exception()  # else it is told on standard error where nobody waits any more
            with suppress(RuntimeError):  # whoever waited is gone, and their loop with them
                here.call_soon_threadsafe(settle, task)

        def settle(task: "asyncio.Task[T]") -> None:
            if task.cancelled():
                done.cancel()
            elif (error := task.exception()) is not None:
                _ = done.done() or done.set_exception(error)
            elif not done.done():
                done.set_result(task.result())

        # Leaner than run_coroutine_threadsafe with wrap_future, which takes two futures and their locks.
        try:
            there.call_soon_threadsafe(begin)
        except RuntimeError:  # it has just ended
            work.close()
            raise
        try:
            return await done
        except asyncio.CancelledError:
            with suppress(RuntimeError):
                there.call_soon_threadsafe(lambda: tasks[0].cancel())
            raise

    def close(self) -> None:
        """Cancel what is under way, so that nobody waits for ever, and end the loop."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(_all_cancelled(), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                Thread(target=self._serve, args=(self._loop,), name=self._name, daemon=True).start()
            return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.close()
