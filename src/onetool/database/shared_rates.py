"""`SharedWindows`: rate limits in sliding windows of time, shared by all processes of a database, by the database's
clock.

A window is a row. Counting updates the row, which locks it until the end of the transaction, so two processes never
take the same place. On an event loop, a thread does this. While the database is unavailable or slow, each process
counts alone, including its previous counts, up to the rate divided by the number of replicas. Processes without a
database always count alone.

A full window is cached until a place is free, so that refused callers, however many, don't load the database, or slow
it down until processes count alone.
"""

import asyncio
import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

import msgspec

from onetool.core.limits import PARTS, RateWindow
from onetool.database.connection import CALL_WAIT_S, Database, DatabaseError, Transaction

log = logging.getLogger("onetool.database")
ANSWER_S = 2.0  # time limit for the database
ALONE_S = 2.0  # how long a process counts alone after the database did not answer
SWEEP_S = 600.0  # between two sweeps of old windows
MAX_OWN = 10_000  # windows cached by a process
THREADS = 4

_LOCK = """INSERT INTO rates (name, parts, seen_at, until) VALUES (%s, '[]', {clock}, {clock})
ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at
RETURNING parts, {clock}"""  # reads the clock again after waiting for the row
_PARTS = msgspec.json.Decoder(list[tuple[int, int]])


class WindowCount(NamedTuple):
    """A window after counting. `wait` is None if a place was free, else the seconds until one is."""

    wait: float | None
    used: int
    reset_s: float  # until the oldest count has left the window


class _Full(NamedTuple):
    """A full window: its size, and the earliest time when a place is free."""

    limit: int
    until: float


class SharedWindows:
    """All windows of a database. `replicas` returns the number by which rates are divided while the database is
    unavailable.
    """

    def __init__(self, database: Database | None, replicas: Callable[[], int] = lambda: 1) -> None:
        self._database = database
        self._replicas = replicas
        self._own: OrderedDict[str, RateWindow] = OrderedDict()  # counted by this process
        self._full: dict[str, _Full] = {}
        self._lock = threading.Lock()
        self._alone_until = 0.0
        self._sweep_at = monotonic()
        self._threads: ThreadPoolExecutor | None = None

    def take(self, name: str, limit: int, seconds: float) -> WindowCount:
        """Count one event, unless the window is full."""
        key = f"{name} in {seconds:g} s"
        if (refused := self._refused(key, limit)) is not None:
            return refused
        if (database := self._database) is not None and monotonic() >= self._alone_until:
            try:
                counted = database.write(
                    lambda work: _count(work, database.clock, key, limit, seconds), max_wait=CALL_WAIT_S
                )
            except DatabaseError as error:
                self._count_alone(error)
            else:
                if counted.wait is not None:
                    with self._lock:
                        if len(self._full) >= MAX_OWN:
                            self._full.clear()
                        self._full[key] = _Full(limit, monotonic() + counted.wait)
                else:
                    self._take_own(key, math.inf, seconds)
                self._sweep(database)
                return counted
        return self._take_share(key, limit, seconds)

    async def take_async(self, name: str, limit: int, seconds: float) -> WindowCount:
        """Count like `take`, on an event loop. A slow database counts as unavailable."""
        key = f"{name} in {seconds:g} s"
        if (refused := self._refused(key, limit)) is not None:
            return refused
        if self._database is not None and monotonic() >= self._alone_until and not self._database.is_away:
            with self._lock:
                if self._threads is None:
                    self._threads = ThreadPoolExecutor(THREADS, "onetool-rates")
            work = asyncio.get_running_loop().run_in_executor(self._threads, self.take, name, limit, seconds)
            try:
                return await asyncio.wait_for(asyncio.shield(work), ANSWER_S)
            except TimeoutError:
                work.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieves the exception
                self._count_alone(None)
        return self._take_share(key, limit, seconds)

    # Without the database

    def _refused(self, key: str, limit: int) -> WindowCount | None:
        """Return the count of a window cached as full, unless the limit is now larger."""
        full = self._full.get(key)
        if full is None or limit > full.limit or (wait := full.until - monotonic()) <= 0:
            return None
        return WindowCount(wait, full.limit, wait)

    def _take_share(self, key: str, limit: int, seconds: float) -> WindowCount:
        return self._take_own(key, max(1, limit // max(1, self._replicas())), seconds)

    def _take_own(self, key: str, limit: float, seconds: float) -> WindowCount:
        with self._lock:
            window = self._own.get(key)
            if window is None:
                window = self._own[key] = RateWindow(seconds)
                if len(self._own) > MAX_OWN:
                    self._own.popitem(last=False)
            self._own.move_to_end(key)
            now = monotonic()
            wait = window.take(now, limit)
            return WindowCount(wait, window.count, window.next_free(now))

    def _count_alone(self, error: DatabaseError | None) -> None:
        if not self._alone_until:
            log.warning("each process counts rates by itself: %s", error or "the database does not respond")
        self._alone_until = monotonic() + ALONE_S

    def _sweep(self, database: Database) -> None:
        """Delete old windows, at most once in `SWEEP_S`."""
        with self._lock:
            if monotonic() < self._sweep_at:
                return
            self._sweep_at = monotonic() + SWEEP_S
        sql = f"DELETE FROM rates WHERE until < {database.clock} - 60"  # noqa: S608 - ours
        try:
            database.write(lambda work: work.execute(sql), max_wait=CALL_WAIT_S)
        except DatabaseError as error:
            log.debug("old rates can't be deleted: %s", error)


def _count(work: Transaction, clock: str, key: str, limit: int, seconds: float) -> WindowCount:
    parts, now = work.execute(_LOCK.format(clock=clock), (key,))[0]
    counted: list[tuple[int, int]] = []
    with suppress(msgspec.MsgspecError):
        counted = _PARTS.decode(parts)
    # Ignore invalid parts, so that a damaged row does not lock anyone out.
    last = int(now / (seconds / PARTS)) + 1
    window = RateWindow(seconds, [(part, count) for part, count in counted if part <= last and count > 0])
    wait = window.take(now, limit)
    if wait is None:
        sql = "UPDATE rates SET parts = %s, until = %s WHERE name = %s"
        work.execute(sql, (msgspec.json.encode(window.parts).decode(), now + 2 * seconds, key))
    return WindowCount(wait, window.count, window.next_free(now))
