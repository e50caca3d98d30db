"""Calls under way on a connection: whose they are, so that what a server says or asks meanwhile reaches the right one.

The protocol of old servers does not tell to which call a question, a progress or a message belongs. Where only one
caller has calls under way it is clear; where several have, it is nobody's: no client sees what is another's.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar, copy_context
from time import monotonic
from typing import Any, TypeVar

from onetool.core.caller import Caller, current_caller
from onetool.core.context import current_call
from onetool.core.errors import ToolFailure
from onetool.sources.mcp_servers.trouble import Trouble

T = TypeVar("T")

LINGERS = 10.0  # seconds for which a call that was given up may still be meant


class Flight:
    """One call, as the side that made it sees it. Made there; used on the loop of the servers."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # with the call that is running
        self._limit: asyncio.Timeout | None = None
        call = current_call.get()
        self.caller: Caller | None = current_caller.get()
        self.peer: object = getattr(self.caller, "peer", self.caller)  # where it calls from, where that is known
        self.progress = None if call is None else call.progress
        self.tried_again = False
        self.trouble = Trouble()
        self._questions = 0  # that wait for an answer
        self._left = 0.0  # seconds, while the clock stands still

    @asynccontextmanager
    async def in_time(self, seconds: float) -> AsyncGenerator[None]:
        """TimeoutError when the server takes longer; the time that its caller takes to answer does not count."""
        async with asyncio.timeout(seconds) as self._limit:
            try:
                yield
            finally:
                self._limit = None

    async def of_caller(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Done where the caller is; the clock stands still as long as there is a question."""
        if self._limit is None:
            raise ToolFailure("the call is over, and nobody is there to be asked")
        with self._clock_stopped():
            done = self._context.copy().run(asyncio.run_coroutine_threadsafe, ask(), self._loop)
            return await asyncio.wrap_future(done)

    @contextmanager
    def _clock_stopped(self) -> Generator[None]:
        here = asyncio.get_running_loop()
        if self._questions == 0 and self._limit is not None and (until := self._limit.when()) is not None:
            self._left = until - here.time()
            self._limit.reschedule(None)
        self._questions += 1
        try:
            yield
        finally:
            self._questions -= 1
            if self._questions == 0 and self._limit is not None:  # else the call has ended meanwhile
                self._limit.reschedule(here.time() + self._left)

    def tell(self, say: Callable[..., None], *what: Any) -> None:
        """Say something as if the caller's own code did."""
        self._context.copy().run(say, *what)


class Flights:
    """Those of one connection."""

    def __init__(self) -> None:
        self._flights: list[Flight] = []
        # The server may go on with what was given up all the same: who did, and until when something may be theirs.
        self._given_up: dict[int, tuple[object, float]] = {}

    @contextmanager
    def under_way(self, flight: Flight) -> Generator[None]:
        self._flights.append(flight)
        try:
            yield
        except (asyncio.CancelledError, TimeoutError):
            self._given_up[id(flight.peer)] = flight.peer, monotonic() + LINGERS
            raise
        finally:
            self._flights.remove(flight)

    def are_none(self) -> bool:
        """Whether no call is under way."""
        return not self._flights

    def only(self) -> Flight | None:
        """The flight to which something without an address belongs."""
        flights, now = self._flights, monotonic()
        self._given_up = {key: (peer, until) for key, (peer, until) in self._given_up.items() if until > now}
        peers = [*(flight.peer for flight in flights), *(peer for peer, _ in self._given_up.values())]
        if not flights or any(peer is not peers[0] for peer in peers):
            return None
        return flights[-1]


current_flight: ContextVar[Flight | None] = ContextVar("onetool_current_flight", default=None)
"""Where a question comes as part of an answer, or on the stream of a request, it is known whose it is."""
