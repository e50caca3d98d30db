"""Rings when the time of a call is up. Waiting for the caller does not count, so that it may have to wait longer."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from onetool.core.context import CallContext

SHORTEST = 0.05  # seconds between two looks, while somebody is being waited for


class Alarm:
    """On the loop. `grace` are seconds beyond the deadline."""

    __slots__ = ("_context", "_grace", "_loop", "_ring", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, context: CallContext, ring: Callable[[], None], grace: float = 0.0
    ) -> None:
        self._loop = loop
        self._context = context
        self._ring = ring
        self._grace = grace
        self._timer = loop.call_later(context.left() + grace, self._due)

    def cancel(self) -> None:
        self._timer.cancel()

    def _due(self) -> None:
        left = self._context.left() + self._grace
        if left <= 0 or self._context.pauses is None:  # timers may be early by a hair
            self._ring()
        else:
            self._timer = self._loop.call_later(max(left, SHORTEST), self._due)


@asynccontextmanager
async def in_time(context: CallContext, grace: float = 0.0) -> AsyncGenerator[None]:
    """TimeoutError when the time of the call is up."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        alarm = Alarm(loop, context, lambda: limit.reschedule(loop.time()), grace)
        try:
            yield
        finally:
            alarm.cancel()
