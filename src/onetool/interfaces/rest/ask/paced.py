"""An outlet that makes who tells wait for who listens: nothing is dropped, and never is much kept."""

import asyncio

from onetool.interfaces.asgi import Send
from onetool.interfaces.outlet import MOST_UNSENT, Outlet

BEGIN_AFTER = 0.25  # seconds; enough for everything that is refused


class Paced(Outlet):
    """A model goes on writing only while its reader reads."""

    def __init__(self, send: Send) -> None:
        super().__init__(send)
        self._written = asyncio.Event()

    def open_with(self, event: bytes) -> None:
        """The first event. It is held back for a moment: what goes wrong by then can still have a status."""
        if self.is_stream:
            self.push_event(event)
        else:
            self._opening = event
            asyncio.get_running_loop().call_later(BEGIN_AFTER, self.begin)  # which does nothing where all is over

    async def tell(self, event: bytes) -> None:
        self.push_event(event)
        while self._size >= MOST_UNSENT:
            self._written.clear()
            await self._written.wait()

    async def _write(self, event: bytes) -> None:
        await super()._write(event)
        self._written.set()
