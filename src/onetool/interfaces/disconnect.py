"""Watches for a client that disconnects while its request is being answered, and cancels the task that answers."""

import asyncio
from collections.abc import Callable
from typing import Self

from onetool.interfaces.asgi import Receive

CHECK_AFTER_S = 0.1  # seconds after which it is worth finding out whether the client is still there


class DisconnectWatch:
    """Watches the client while the current task answers it, once the body has been read. Starts only after a moment.

    with DisconnectWatch(receive):
        return ...        # cancelled if the client disconnects
    return None           # which ends the block without an exception
    """

    __slots__ = ("_loop", "_on_slow", "_receive", "_timer", "_watcher", "_worker", "is_disconnected")

    def __init__(self, receive: Receive, on_slow: Callable[[], None] = lambda: None) -> None:
        """`on_slow` is called when the answer takes longer than CHECK_AFTER_S."""
        self.is_disconnected = False
        self._on_slow = on_slow
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._worker = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(CHECK_AFTER_S, self._begin)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self.end()
        return kind is not None and issubclass(kind, asyncio.CancelledError) and self.was_disconnected()

    def end(self) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def was_disconnected(self) -> bool:
        """Whether this watch cancelled the task; if so, the cancellation is taken back (`Task.uncancel`)."""
        if self.is_disconnected and self._worker is not None:
            self._worker.uncancel()
        return self.is_disconnected

    def _begin(self) -> None:
        self._on_slow()
        self._watcher = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_disconnected = True
        if self._worker is not None:
            self._worker.cancel()
