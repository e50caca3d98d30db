"""Looks after a store now and then, in a thread of its own: what was edited by hand is taken in, old things go."""

import logging
from collections.abc import Callable
from threading import Event, Thread
from time import perf_counter

log = logging.getLogger("onetool.bundles")

EVERY = 1.0  # seconds
SHARE = 20  # a look that takes long is made less often: it may cost one part in so many
LAST_WAIT = 2.0


class Keeper:
    """`look` is called again and again until it is closed. What it raises is told once, and it goes on."""

    def __init__(self, look: Callable[[], None], every: float = EVERY) -> None:
        self._look = look
        self._every = every
        self._closed = Event()
        self._trouble = ""
        self._thread = Thread(target=self._keep, name="onetool-bundles", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(LAST_WAIT)

    def _keep(self) -> None:
        pause = self._every
        while not self._closed.wait(pause):
            began = perf_counter()
            trouble = ""
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next look may succeed
                trouble = f"{type(error).__name__}: {error}"
            if trouble and trouble != self._trouble:
                log.error("changes of bundles are not noticed for now: %s", trouble)
            self._trouble = trouble
            pause = max(self._every, (perf_counter() - began) * SHARE)
