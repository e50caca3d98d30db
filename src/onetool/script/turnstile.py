"""So many at a time, the others in the order in which they came. For threads and for any event loop."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from threading import Lock


class Turnstile:
    """`async with turnstile.turn():` waits until it is this one's turn, and lets the next one in at the end."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._lock = Lock()
        self._waiting: deque[Future[None]] = deque()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        ticket = self._ticket()
        if ticket is not None:
            try:
                await asyncio.wrap_future(ticket)
            except asyncio.CancelledError:
                self._give_back(ticket)
                raise
        try:
            yield
        finally:
            self._next()

    def lend(self, away: bool) -> None:
        """Whoever has a turn and only waits lets the next one in meanwhile; coming back, it does not wait again."""
        if away:
            self._next()
        else:
            with self._lock:
                self._free -= 1

    def _ticket(self) -> "Future[None] | None":
        """None when there is room."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return None
            ticket: Future[None] = Future()
            self._waiting.append(ticket)
            return ticket

    def _give_back(self, ticket: "Future[None]") -> None:
        """Whoever does not wait any more may have been let in at the same moment: then the turn is the next one's."""
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                return
        if not ticket.cancelled():  # else it was passed over already
            self._next()

    def _next(self) -> None:
        with self._lock:
            while self._waiting and self._free >= 0:
                ticket = self._waiting.popleft()
                if ticket.set_running_or_notify_cancel():
                    break
            else:
                self._free += 1
                return
        ticket.set_result(None)
