"""The connections of one event loop: kept for a while, handed out one request at a time, so many for each origin.

An origin is more than a host: it is the rule that allowed it, too. So a connection that one rule let through is never
used for a request that another one would have to judge.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable

from onetool.handlers.http.wire import Connection

MOST = 64  # connections to one origin
MOST_IDLE = 256  # in all
IDLE_SECONDS = 15.0

Dial = Callable[[], Awaitable[Connection]]


class _Origin:
    __slots__ = ("count", "idle", "waiting")

    def __init__(self) -> None:
        self.idle: list[Connection] = []  # the one used last at the end
        self.count = 0  # idle, in use, and being made
        self.waiting: deque[asyncio.Future[Connection | None]] = deque()


class Pool:
    """Everything here happens on its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int = MOST, idle_seconds: float = IDLE_SECONDS) -> None:
        self._loop = loop
        self._most = most
        self._patience = idle_seconds
        self._origins: dict[Hashable, _Origin] = {}
        self._keys: dict[Connection, Hashable] = {}
        self._idle = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        self._farewell = self._until_the_loop_ends()

    async def begin(self) -> None:
        """Have it closed with the loop, which closes all generators that have begun before it ends."""
        await anext(self._farewell)

    async def _until_the_loop_ends(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.close()
            await asyncio.sleep(0)  # transports tell their end in the next turn

    def at_hand(self, key: Hashable) -> Connection | None:
        """An idle connection, the one used last: it is the least likely to be closed in a moment."""
        origin = self._origins.get(key)
        while origin is not None and origin.idle:
            connection = origin.idle.pop()
            self._idle -= 1
            if connection.is_open():
                return connection
            self.drop(connection)
        return None

    async def take(self, key: Hashable, dial: Dial) -> Connection:
        """A connection of its own for the caller: idle, new, or another one's that is done with it."""
        if (connection := self.at_hand(key)) is not None:
            return connection
        origin = self._origins.setdefault(key, _Origin())
        if origin.count >= self._most:
            if (handed := await self._turn(key, origin)) is not None:
                if handed.is_open():
                    return handed
                self.drop(handed)  # it ended on the way to us
                return await self.take(key, dial)
        else:
            origin.count += 1
        try:
            connection = await dial()
        except BaseException:
            self._free(key, origin)
            raise
        self._keys[connection] = key
        return connection

    async def _turn(self, key: Hashable, origin: _Origin) -> Connection | None:
        """Wait for a connection, or for the right to make one."""
        turn: asyncio.Future[Connection | None] = self._loop.create_future()
        origin.waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it came just then: it is for the next one
                handed = turn.result()
                self._free(key, origin) if handed is None else self.give_back(handed)
            else:
                origin.waiting.remove(turn)
            raise

    def give_back(self, connection: Connection) -> None:
        if self._closed or not connection.is_open():
            self.drop(connection)
            return
        origin = self._origins[self._keys[connection]]
        while origin.waiting:
            turn = origin.waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        if self._idle >= MOST_IDLE:
            self.drop(connection)
            return
        self._idle += 1
        origin.idle.append(connection)
        connection.since = self._loop.time()
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._patience, self._sweep)

    def drop(self, connection: Connection) -> None:
        """It is over, wherever it was."""
        connection.end()
        key = self._keys.pop(connection, None)
        if key is None:
            return
        origin = self._origins[key]
        if connection in origin.idle:
            origin.idle.remove(connection)
            self._idle -= 1
        self._free(key, origin)

    def drop_idle(self, key: Hashable) -> None:
        origin = self._origins.get(key)
        for connection in list(origin.idle) if origin else ():
            self.drop(connection)

    def _free(self, key: Hashable, origin: _Origin) -> None:
        """There is room for one more connection."""
        while origin.waiting:
            turn = origin.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        origin.count -= 1
        if origin.count == 0:
            self._origins.pop(key, None)

    def _sweep(self) -> None:
        """Close what has been idle for long. Those used least recently stand first."""
        self._sweeper = None
        now = self._loop.time()
        for origin in list(self._origins.values()):
            for connection in [one for one in origin.idle if now - one.since >= self._patience]:
                self.drop(connection)
        if self._idle:
            self._sweeper = self._loop.call_later(self._patience / 2, self._sweep)

    def close(self) -> None:
        """End all of them, also those in use."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in list(self._keys):
            self.drop(connection)
