"""How long who asks may wait for others. On a thread that runs an event loop everybody waits with it: a moment only."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock, Thread
from time import monotonic

from onetool.sources.bundles.index.faults import Busy

LONG = 10.0  # seconds
SHORT = 0.2
REST = 1.0  # after a moment that was in vain others wait still less, for so long: many moments are a long time
LEAST = 0.02


def on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Patience:
    """Long until the first answer: before there is one, nobody is served who could be kept waiting."""

    def __init__(self) -> None:
        self._has_answered = False
        self._spent = float("-inf")

    def answered(self) -> None:
        self._has_answered = True

    def spent(self) -> None:
        self._spent = monotonic()

    @property
    def is_short(self) -> bool:
        return self._has_answered and on_loop()

    @property
    def seconds(self) -> float:
        if not self.is_short:
            return LONG
        return LEAST if monotonic() - self._spent < REST else SHORT


class Aside:
    """What takes long, done in a thread of its own, once at a time; who asks for it waits no longer than it can."""

    def __init__(self, name: str, patience: Patience) -> None:
        self._name = name
        self._patience = patience
        self._lock = Lock()
        self._running: Future[None] | None = None

    def do(self, work: Callable[[], object]) -> None:
        """Raises what the work raises; Busy, if that goes on."""
        try:
            self._started(work).result(self._patience.seconds)
        except TimeoutError:
            self._patience.spent()
            raise Busy(f"{self._name}: try again in some seconds") from None

    def _started(self, work: Callable[[], object]) -> "Future[None]":
        with self._lock:
            if self._running is not None and not self._running.done():
                return self._running
            running: Future[None] = Future()
            try:
                Thread(target=_run, args=(running, work), name="onetool-index", daemon=True).start()
            except RuntimeError:  # there are too many, or the process is about to end
                raise Busy(f"{self._name}, and no thread can be started for it now: try again") from None
            self._running = running
            return running


def _run(running: "Future[None]", work: Callable[[], object]) -> None:
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for it
        running.set_exception(error)
    else:
        running.set_result(None)
