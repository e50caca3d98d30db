"""Tool calls of one run that are under way on the event loop: begun from the run's thread, and answered to it.

One queue takes all answers. That is a good deal faster than a future for each of them, and whoever stops the run wakes
its thread through the same queue.
"""

import asyncio
from collections.abc import Callable, Collection
from queue import SimpleQueue
from typing import Any

from onetool.core.failure import words_for
from onetool.sandbox.messages import Answer, Raised

Cancel = Callable[[], Any]
Work = Callable[[Callable[[Answer], None]], Cancel]
"""Begins something on the loop, and calls with the answer when there is one; gives back how to cancel it."""

STOPPED = -1  # no call has this number


class UnderWay:
    """`begin` work under a number; `answers` waits for those numbers. `stop` cancels everything and wakes who waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._cancels: dict[int, Cancel | None] = {}  # touched on the loop only
        self._arriving: SimpleQueue[tuple[int, Answer | None]] = SimpleQueue()
        self._arrived: dict[int, Answer] = {}
        self._stopped = self._begun = False

    def begin(self, number: int, work: Work) -> None:
        self._begun = True
        self._loop.call_soon_threadsafe(self._start, number, work)

    def answers(self, wanted: Collection[int]) -> dict[int, Answer]:
        """Those that are there, as soon as there is one; none when the run was stopped."""
        while not self._stopped:
            while not self._arriving.empty():
                self._take(self._arriving.get())
            if found := {number: self._arrived.pop(number) for number in wanted if number in self._arrived}:
                return found
            self._take(self._arriving.get())
        return {}

    def stop(self) -> None:
        """From any thread, any number of times."""
        self._stopped = True
        if not self._begun:
            return
        self._arriving.put((STOPPED, None))
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            return  # the loop has closed, and everything on it has ended

    def _take(self, arrival: tuple[int, Answer | None]) -> None:
        number, answer = arrival
        if answer is not None:
            self._arrived[number] = answer

    def _start(self, number: int, work: Work) -> None:
        if self._stopped:
            return

        def arrived(answer: Answer) -> None:
            self._cancels.pop(number, None)
            self._arriving.put((number, answer))

        self._cancels[number] = None
        try:
            cancel = work(arrived)
        except Exception as error:  # noqa: BLE001 - none is expected; but whoever waits must get an answer
            arrived(Raised("RuntimeError", words_for(error)))
            return
        if number in self._cancels:  # it may have been over at once
            self._cancels[number] = cancel

    def _cancel(self) -> None:
        for cancel in list(self._cancels.values()):
            if cancel is not None:
                cancel()
