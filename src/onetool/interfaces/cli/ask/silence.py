"""A model that says nothing for a while: who waits for it is told, so that nobody wonders what is broken."""

import asyncio
from collections.abc import Callable

from onetool.ask.events import CallEnded, CallStarted, Event, Started

TOLD_AFTER = (8.0, 60.0)  # seconds of silence


class Silence:
    """Hears all events, and has `say` tell who is being waited for. While tools run, it is not the model."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._who = ""
        self._calls: set[str] = set()  # under way
        self._heard = 0.0  # when something was, on the loop's clock
        self._told = 0  # how often, of this silence
        self._timer: asyncio.TimerHandle | None = None

    def heard(self, event: Event) -> None:
        if isinstance(event, Started):
            self._who = f"{event.model} ({event.provider})"
        elif isinstance(event, CallStarted):
            self._calls.add(event.call.id)
        elif isinstance(event, CallEnded):
            self._calls.discard(event.call.id)
        loop = asyncio.get_running_loop()
        self._heard, self._told = loop.time(), 0
        if self._timer is None:  # models speak in thousands of pieces: one timer looks after all of them
            self._look_again(loop)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if self._calls:
            self._heard = loop.time()
        elif loop.time() >= self._heard + TOLD_AFTER[self._told]:
            self._told += 1
            self._say(f"waiting for {self._who} …")
        self._look_again(loop)

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """When the next word is due, if nothing is heard until then; after the last one, the next event begins anew."""
        is_due = self._told < len(TOLD_AFTER)
        self._timer = loop.call_at(self._heard + TOLD_AFTER[self._told], self._look) if is_due else None
