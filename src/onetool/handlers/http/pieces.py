"""The body of a streamed answer, piece by piece: what has come and was not read yet. It is never much."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable

from onetool.handlers.http.faults import WireFailure

MUCH = 256 * 1024  # bytes that nobody has read: then the server has to wait
FEW = 64 * 1024


class Pieces:
    """`async for piece in pieces`. `read_on` is told False when there is much, and True when there is room again."""

    def __init__(self, loop: asyncio.AbstractEventLoop, read_on: Callable[[bool], None]) -> None:
        self._loop = loop
        self._read_on = read_on
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._held = False
        self._ended = False
        self._fault: WireFailure | None = None
        self._reader: asyncio.Future[None] | None = None
        self._closed: Callable[[], None] | None = None

    def put(self, piece: bytes) -> None:
        if not piece:
            return
        self._waiting.append(piece)
        self._size += len(piece)
        if self._size > MUCH and not self._held:
            self._held = True
            self._read_on(False)
        self._wake()

    def finish(self, fault: WireFailure | None) -> None:
        self._ended, self._fault = True, fault
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def at_close(self, closed: Callable[[], None]) -> None:
        """Called once, when it has been read to the end or nobody reads it any more."""
        self._closed = closed

    def close(self) -> None:
        if self._held:  # whatever becomes of the connection, it must not stay deaf
            self._held = False
            self._read_on(True)
        closed, self._closed = self._closed, None
        if closed is not None:
            closed()

    async def read(self) -> bytes:
        """All the rest."""
        return b"".join([piece async for piece in self])

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        try:
            while True:
                while self._waiting:
                    piece = self._waiting.popleft()
                    self._size -= len(piece)
                    if self._held and self._size < FEW:
                        self._held = False
                        self._read_on(True)
                    yield piece
                if self._ended:
                    break
                self._reader = self._loop.create_future()
                await self._reader
            if self._fault is not None:
                raise self._fault
        finally:
            self.close()
