"""`UsageCounter`: how often tools were called, and when last.

Calls are counted in memory and written about once a second by a thread of its own: a call of a tool waits for nothing,
and does not fail because of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from threading import Event, Lock, Thread

from onetool.sources.bundles.files.form import time_text

GATHER_SECONDS = 1.0
MOST_PENDING = 100_000  # tools that are counted in memory while nothing can be written

Counts = dict[str, tuple[int, str]]
"""callCount and lastCalledAt, by the ids of tools."""


class UsageCounter(ABC):
    """Counts uses with `record`, from any thread. What can't be written stays in memory."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._waiting: Counts = {}
        self._lock = Lock()
        self._writing = Lock()
        self._thread: Thread | None = None
        self._closed = Event()

    def record(self, id: str) -> None:
        at = time_text(self._now())
        with self._lock:
            calls, last = self._waiting.get(id, (0, at))
            if calls or len(self._waiting) < MOST_PENDING:
                self._waiting[id] = (calls + 1, max(last, at))
            if self._thread is None and not self._closed.is_set():
                self._start()

    def of(self, ids: Iterable[str]) -> Counts:
        """callCount and lastCalledAt, also of calls that wait to be written."""
        wanted = list(dict.fromkeys(ids))
        with self._writing:  # else a call on its way from memory to the file would be missed, or counted twice
            with self._lock:
                waiting = {id: self._waiting[id] for id in wanted if id in self._waiting}
            return sum_counts(self._read(wanted), waiting)

    def add(self, counts: Counts) -> None:
        """Those that were counted elsewhere. They are written at once, if that can be done."""
        with self._lock:
            self._waiting = sum_counts(self._waiting, counts)
        self.flush()

    def flush(self) -> None:
        with self._writing:
            with self._lock:
                taken, self._waiting = self._waiting, {}
            if taken and not self._written(taken):
                with self._lock:
                    self._waiting = sum_counts(taken, self._waiting)

    def close(self) -> None:
        self._closed.set()
        self.flush()

    def _start(self) -> None:
        self._thread = Thread(target=self._gather, name="onetool-usage", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the process is about to end
            self._thread = None

    def _gather(self) -> None:
        """One batch; the next call starts the next."""
        self._closed.wait(GATHER_SECONDS)
        with self._lock:
            self._thread = None
        self.flush()

    @abstractmethod
    def all(self) -> Counts:
        """All that is written."""

    @abstractmethod
    def _written(self, counts: Counts) -> bool:
        """Add them to what is kept; whether that could be done."""

    @abstractmethod
    def _read(self, ids: list[str]) -> Counts:
        """What is kept of these."""


def sum_counts(some: Counts, more: Counts) -> Counts:
    total = dict(some)
    for id, (calls, last) in more.items():
        before, at = total.get(id, (0, last))
        total[id] = (before + calls, max(at, last))
    return total
