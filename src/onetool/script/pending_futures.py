"""PendingFutures: the pending tool calls of a run on the event loop, and their answers."""

import asyncio
from collections.abc import Callable, Collection
from queue import SimpleQueue
from typing import Any

from onetool.core.errors import describe_error
from onetool.sandbox.messages import Answer, Raised

CancelWork = Callable[[], Any]
Work = Callable[[Callable[[Answer], None]], CancelWork]
"""Starts work on the loop, which calls its argument with the answer. Returns a function that cancels it."""

STOPPED = -1  # not the number of any call


class PendingFutures:
    """The pending calls by ID: `begin` starts one, `answers` waits for some, `stop` cancels all."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._cancels: dict[int, CancelWork | None] = {}  # touched on the loop only
        self._queue: SimpleQueue[tuple[int, Answer | None]] = SimpleQueue()
        self._arrived: dict[int, Answer] = {}
        self._stopped = self._started = False

    def begin(self, number: int, work: Work) -> None:
        self._started = True
        self._loop.call_soon_threadsafe(self._start, number, work)

    def answers(self, numbers: Collection[int]) -> dict[int, Answer]:
        """Wait for at least one answer, and return those that have arrived; none if the run was stopped."""
        while not self._stopped:
            while not self._queue.empty():
                self._take(self._queue.get())
            if arrived := {number: self._arrived.pop(number) for number in numbers if number in self._arrived}:
                return arrived
            self._take(self._queue.get())
        return {}

    def stop(self) -> None:
        """Cancel all calls. Any thread may call this, any number of times."""
        self._stopped = True
        if not self._started:
            return
        self._queue.put((STOPPED, None))
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            return  # the loop has closed, and all its work has ended

    def _take(self, item: tuple[int, Answer | None]) -> None:
        number, answer = item
        if answer is not None:
            self._arrived[number] = answer

    def _start(self, number: int, work: Work) -> None:
        if self._stopped:
            return

        def finish(answer: Answer) -> None:
            self._cancels.pop(number, None)
            self._queue.put((number, answer))

        self._cancels[number] = None
        try:
            cancel = work(finish)
        except Exception as error:  # noqa: BLE001 - unexpected, but the waiting code must get an answer
            finish(Raised("RuntimeError", describe_error(error)))
            return
        if number in self._cancels:  # it may have finished immediately
            self._cancels[number] = cancel

    def _cancel(self) -> None:
        for cancel in list(self._cancels.values()):
            if cancel is not None:
                cancel()
