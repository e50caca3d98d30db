"""`UsageCounter`, which counts the calls of tools and records their last calls.

Calls are counted in memory and written about once a second, by the thread of a `Recorder`.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from time import monotonic

from onetool.database import ChangeUnknownError, Database, DatabaseError
from onetool.database.connection import CALL_WAIT_S
from onetool.services.journal.recorder import Recorder
from onetool.sources.bundles.store.text import time_text

log = logging.getLogger("onetool.bundles")
GATHER_SECONDS = 1.0
MAX_PENDING = 100_000  # tools counted in memory while the database is unavailable
MAX_IDS = 500  # in one query
_ADD = (
    "INSERT INTO bundle_usage (tool, calls, last_called_at) VALUES (%s, %s, %s) ON CONFLICT (tool) DO UPDATE SET "
    "calls = bundle_usage.calls + excluded.calls, last_called_at = CASE "
    "WHEN bundle_usage.last_called_at > excluded.last_called_at THEN bundle_usage.last_called_at "
    "ELSE excluded.last_called_at END"
)

Counts = dict[str, tuple[int, str]]
"""callCount and lastCalledAt by tool id."""


class UsageCounter:
    """A thread-safe counter of calls. Counts that can't be written stay in memory."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now
        self._pending: Counts = {}
        self._lock = Lock()
        self._writing = Lock()
        self._due: float | None = None  # when to write, on the clock of time.monotonic
        self._recorder: Recorder | None = None

    def follow(self, recorder: Recorder) -> None:
        """Let the thread of the recorder write the counts. Readers wait for its pending events."""
        self._recorder = recorder
        recorder.writers.append(self.write)

    def record(self, id: str) -> None:
        at = time_text(self._now())
        with self._lock:
            calls, last = self._pending.get(id, (0, at))
            if calls or len(self._pending) < MAX_PENDING:
                self._pending[id] = (calls + 1, max(last, at))

    def of(self, ids: Iterable[str]) -> Counts:
        """Return callCount and lastCalledAt, including calls that are not written yet."""
        ids = list(dict.fromkeys(ids))
        self._wait()
        with self._writing:  # otherwise calls being written would be missed or counted twice
            with self._lock:
                pending = {id: self._pending[id] for id in ids if id in self._pending}
            written: Counts = {}
            try:
                for start in range(0, len(ids), MAX_IDS):
                    part = ids[start : start + MAX_IDS]
                    written |= self._select(f" WHERE tool IN ({', '.join(['%s'] * len(part))})", part)
            except DatabaseError as error:  # lists are shown without usage
                log.debug("usage of tools can't be read: %s", error)
                written = {}
            return sum_counts(written, pending)

    def all(self) -> Counts:
        """Return all counts. Raises DatabaseError."""
        self.flush()
        return self._select("", ())

    def add(self, counts: Counts) -> None:
        """Add calls counted elsewhere, and write them at once if possible."""
        with self._lock:
            self._pending = sum_counts(self._pending, counts)
        self.flush()

    def write(self, is_last: bool = False) -> float | None:
        """Write the counts that are due, and return the seconds until the next are due."""
        now = monotonic()
        if not self._pending:
            self._due = None
            return None
        self._due = self._due or now + GATHER_SECONDS
        if now < self._due and not is_last:
            return self._due - now
        self._flush()
        self._due = None
        return GATHER_SECONDS if self._pending else None

    def flush(self) -> None:
        self._wait()
        self._flush()

    def _wait(self) -> None:
        """Wait until all finished calls are counted."""
        if self._recorder is not None:
            self._recorder.flush()

    def _flush(self) -> None:
        with self._writing:
            with self._lock:
                counts, self._pending = self._pending, {}
            if not counts:
                return
            # Sorted by id, so that concurrent writes of replicas can't deadlock.
            rows = [(id, calls, last) for id, (calls, last) in sorted(counts.items())]
            try:
                self._database.write(lambda work: work.execute_many(_ADD, rows), max_wait=CALL_WAIT_S)
            except ChangeUnknownError:
                pass  # the write may have succeeded, and losing counts is better than counting twice
            except DatabaseError as error:
                log.debug("usage of tools can't be written yet: %s", error)
                with self._lock:
                    self._pending = sum_counts(counts, self._pending)

    def forget(self, id: str | None) -> None:
        """Delete the counts of a deleted tool. The id is None if the tool's file was broken."""
        if id is None:
            return
        with self._writing:
            with self._lock:
                self._pending.pop(id, None)
            try:
                self._database.write(lambda work: work.execute("DELETE FROM bundle_usage WHERE tool = %s", (id,)))
            except DatabaseError as error:
                log.debug("usage of a deleted tool can't be removed: %s", error)

    def close(self) -> None:
        self.flush()
        if self._recorder is not None:
            self._recorder.writers.remove(self.write)

    def _select(self, where: str, values: Sequence[str]) -> Counts:
        sql = f"SELECT tool, calls, last_called_at FROM bundle_usage{where}"  # noqa: S608 - constant SQL
        return {id: (calls, last) for id, calls, last in self._database.read(lambda work: work.execute(sql, values))}


def sum_counts(counts: Counts, more: Counts) -> Counts:
    total = dict(counts)
    for id, (calls, last) in more.items():
        before, at = total.get(id, (0, last))
        total[id] = (before + calls, max(at, last))
    return total
