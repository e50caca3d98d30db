"""Slots: limits how many runs, or other works, proceed at the same time. Callers have fair shares."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from threading import Lock, RLock

from onetool.core.fair_shares import FairShares
from onetool.core.principal import current_principal

Ticket = Future[None]  # done once it has a slot


class Slots:
    """A semaphore for threads and any event loop: `async with slots.slot():` waits for a slot."""

    def __init__(self, slots: int) -> None:
        self._lock = Lock()
        self._shares: FairShares[Ticket] = FairShares(slots)

    @asynccontextmanager
    async def slot(self) -> "AsyncIterator[Slot]":
        slot = Slot(self, current_principal.get().caller)
        try:
            if not (ticket := slot.take()).done():
                await asyncio.wrap_future(ticket)
            yield slot
        finally:
            slot.release()

    def usage(self) -> tuple[int, int]:
        """Return the number of runs that hold a slot, and of those that wait for one."""
        with self._lock:
            return self._shares.held.total(), sum(map(len, self._shares.waiting.values()))

    def ticket(self, caller: str) -> Ticket:
        """Return a ticket, which has its slot already if there is one for the caller."""
        ticket = Ticket()
        with self._lock:
            if self._shares.take(caller):
                ticket.set_result(None)
            else:
                self._shares.wait(caller, ticket)
        return ticket

    def discard(self, caller: str, ticket: Ticket) -> None:
        """Release the slot of a ticket. If the ticket has none yet, remove it from the queue."""
        with self._lock:
            if self._shares.stop_waiting(caller, ticket) or ticket.cancelled():  # cancelled before its turn
                return
            self._shares.give_back(caller)
        while (ready := self._next()) is not None:
            ready.set_result(None)

    def _next(self) -> Ticket | None:
        """Take a slot for the next ticket."""
        with self._lock:
            while (found := self._shares.next()) is not None:
                caller, ticket = found
                if ticket.set_running_or_notify_cancel():
                    return ticket
                self._shares.give_back(caller)
        return None


class Slot:
    """The slot of one run. Other runs may use it while this run waits for the user and its code waits for answers.

    If the code continues while one of its calls still waits for the user, the run needs the slot again.
    """

    def __init__(self, slots: Slots, caller: str) -> None:
        self._slots = slots
        self._caller = caller
        self._lock = RLock()
        self._ticket: Ticket | None = None
        self._is_paused = self._is_waiting = False

    def take(self) -> Ticket:
        """Return the ticket to wait for. Called on the event loop that ends the run, so never after the run's end."""
        self._ticket = self._slots.ticket(self._caller)
        return self._ticket

    def release(self) -> None:
        with self._lock:
            ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._slots.discard(self._caller, ticket)

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
