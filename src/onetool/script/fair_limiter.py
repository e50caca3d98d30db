"""FairLimiter: limits the number of concurrent runs, in total and per caller."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from threading import Lock, RLock

from onetool.core.principal import current_principal

Ticket = Future[None]  # done once it has a slot


class FairLimiter:
    """A semaphore for threads and any event loop: `async with limiter.slot():` waits for a slot.

    Callers take turns. The last half of the slots, at least one, is reserved for callers that hold none, so that one
    caller can't block all others. Callers without a token can't be told apart, and may take all slots.
    """

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._reserved = max(slots // 2, 1)
        self._lock = Lock()
        self._held: Counter[str] = Counter()  # slots by caller
        self._waiting: dict[str, deque[Ticket]] = {}  # by caller; the first one is next

    @asynccontextmanager
    async def slot(self) -> "AsyncIterator[RunSlot]":
        slot = RunSlot(self, current_principal.get().owner)
        try:
            if not (ticket := slot.take()).done():
                await asyncio.wrap_future(ticket)
            yield slot
        finally:
            slot.release()

    def usage(self) -> tuple[int, int]:
        """Return the number of runs that hold a slot, and of those that wait for one."""
        with self._lock:
            return self._held.total(), sum(map(len, self._waiting.values()))

    def ticket(self, caller: str) -> Ticket:
        """Return a ticket, which has its slot already if one is free and the caller has no other ticket waiting."""
        ticket = Ticket()
        with self._lock:
            if self._has_room(caller):
                self._free -= 1
                self._held[caller] += 1
                ticket.set_result(None)
            else:
                self._waiting.setdefault(caller, deque()).append(ticket)
        return ticket

    def discard(self, caller: str, ticket: Ticket) -> None:
        """Release the slot of a ticket. If the ticket has none yet, remove it from the queue."""
        with self._lock:
            tickets = self._waiting.get(caller, deque())
            if ticket in tickets:
                tickets.remove(ticket)
                if not tickets:
                    del self._waiting[caller]
                return
            if ticket.cancelled():  # cancelled before its turn
                return
            self._free += 1
            self._held[caller] -= 1
            if not self._held[caller]:
                del self._held[caller]
        while self._waiting and (ready := self._next()) is not None:
            ready.set_result(None)

    def _has_room(self, caller: str) -> bool:
        return self._free > (self._reserved if caller and self._held[caller] else 0)

    def _next(self) -> Ticket | None:
        """Take a slot for the first caller allowed to have one, and return its ticket. That caller goes to the end of
        the queue.
        """
        with self._lock:
            for caller in [caller for caller in self._waiting if self._has_room(caller)]:
                tickets = self._waiting.pop(caller)
                while tickets:
                    ticket = tickets.popleft()
                    if ticket.set_running_or_notify_cancel():
                        self._free -= 1
                        self._held[caller] += 1
                        if tickets:
                            self._waiting[caller] = tickets
                        return ticket
        return None


class RunSlot:
    """The slot of one run. Other runs may use it while this run waits for the user and its code waits for answers.

    If the code continues while one of its calls still waits for the user, the run needs the slot again.
    """

    def __init__(self, limiter: FairLimiter, caller: str) -> None:
        self._limiter = limiter
        self._caller = caller
        self._lock = RLock()
        self._ticket: Ticket | None = None
        self._is_paused = self._is_waiting = False

    def take(self) -> Ticket:
        """Return the ticket to wait for. Called on the event loop that ends the run, so never after the run's end."""
        self._ticket = self._limiter.ticket(self._caller)
        return self._ticket

    def release(self) -> None:
        with self._lock:
            ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._limiter.discard(self._caller, ticket)

    def pause(self, is_paused: bool) -> None:
        """Record whether the run waits for the user."""
        with self._lock:
            self._is_paused = is_paused
            if is_paused and self._is_waiting:
                self.release()

    def wait(self, is_waiting: bool) -> bool:
        """Record whether the code waits for answers. Return whether the run has its slot."""
        with self._lock:
            self._is_waiting = is_waiting
            if is_waiting and self._is_paused:
                self.release()
            return self._ticket is not None
