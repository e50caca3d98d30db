"""A client that leaves wants nothing any more: the task that works for it is cancelled."""

import asyncio
from collections.abc import Callable

from onetool.interfaces.asgi import Receive

PATIENCE = 0.1  # seconds after which it is worth finding out whether the client is still there


class Watch:
    """Around one piece of work, once the body has been read. Costs nothing while that is quick."""

    __slots__ = ("_loop", "_receive", "_slow", "_timer", "_watcher", "_worker", "client_has_gone")

    def __init__(self, receive: Receive, slow: Callable[[], None] = lambda: None) -> None:
        """`slow` is told when it takes longer than that."""
        self.client_has_gone = False
        self._slow = slow
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._worker = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(PATIENCE, self._begin)

    def end(self) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def forgive(self) -> bool:
        """Whether it was us who cancelled the work; then nobody else is to be cancelled for that."""
        if self.client_has_gone and self._worker is not None:
            self._worker.uncancel()
        return self.client_has_gone

    def _begin(self) -> None:
        self._slow()
        self._watcher = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.client_has_gone = True
        if self._worker is not None:
            self._worker.cancel()
