"""`SharedWindows` counts in sliding windows of time, together with all who use the database, by the database's clock.

A count is a row. Who counts updates it, which locks it until the end of the transaction: so two never take the same
place. On an event loop a thread does that. The SQL is for PostgreSQL and for SQLite.

While the database is away, or does not answer soon, each process counts for itself: its share of the rate, which is
the rate divided by the number of replicas. What it has counted before that counts, too.
"""

import asyncio
import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import NamedTuple

import msgspec

from onetool.core.limits import PARTS, RateWindow
from onetool.database.connection import Database, DatabaseError, Transaction

log = logging.getLogger("onetool.database")

ANSWER_S = 2.0  # that a request waits for the database
ALONE_S = 2.0  # that a process counts for itself, after the database did not answer
SWEEP_S = 600.0  # between two looks for counts that nobody needs any more
MOST_OWN = 10_000  # counts that a process remembers
THREADS = 4

_LOCK = """INSERT INTO rates (name, parts, seen_at, until) VALUES (%s, '[]', {clock}, {clock})
ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at
RETURNING parts, {clock}"""  # the clock is read again: whoever had to wait for the row is later than when it began
_PARTS = msgspec.json.Decoder(list[tuple[int, int]])


def _read_parts(text: str, now: float, seconds: float) -> list[tuple[int, int]]:
    """What has been counted. What nobody can have counted is left out: a broken row locks nobody out."""
    try:
        found = _PARTS.decode(text)
    except msgspec.MsgspecError:
        return []
    last = int(now / (seconds / PARTS)) + 1
    return [(part, count) for part, count in found if part <= last and count > 0]


class WindowCount(NamedTuple):
    """What came of it: `wait` is None if one was counted, else the seconds until there is a place."""

    wait: float | None
    used: int
    reset_s: float  # until the oldest of them has left the window


class SharedWindows:
    """`replicas` says among how many a rate is divided while the database is away."""

    def __init__(self, database: Database, replicas: Callable[[], int] = lambda: 1) -> None:
        self._database = database
        self._replicas = replicas
        self._own: OrderedDict[str, RateWindow] = OrderedDict()  # what this process has counted
        self._lock = threading.Lock()
        self._alone_until = 0.0
        self._sweep_at = monotonic()
        self._threads: ThreadPoolExecutor | None = None

    def take(self, name: str, most: int, seconds: float, *, counts: bool = True) -> WindowCount:
        """Count one, if there are not as many already. Without `counts` only look."""
        key = f"{name} in {seconds:g} s"
        if monotonic() >= self._alone_until:
            try:
                found = self._database.write(lambda work: self._counted(work, key, most, seconds, counts))
            except DatabaseError as error:
                self._count_alone(error)
            else:
                if counts and found.wait is None:
                    self._take_own(key, math.inf, seconds)
                self._sweep()
                return found
        return self._take_share(key, most, seconds, counts)

    async def take_async(self, name: str, most: int, seconds: float) -> WindowCount:
        """The same on an event loop. A database that does not answer soon counts as away."""
        if monotonic() >= self._alone_until and not self._database.is_away:
            work = asyncio.get_running_loop().run_in_executor(self._pool(), self.take, name, most, seconds)
            try:
                return await asyncio.wait_for(asyncio.shield(work), ANSWER_S)
            except TimeoutError:
                work.add_done_callback(_forget)
                self._count_alone(None)
        return self._take_share(f"{name} in {seconds:g} s", most, seconds, True)

    def _counted(self, work: Transaction, key: str, most: int, seconds: float, counts: bool) -> WindowCount:
        clock = self._database.clock
        parts, now = work.execute(_LOCK.format(clock=clock), (key,))[0]
        window = RateWindow(seconds, _read_parts(parts, now, seconds))
        if not counts:
            window.forget_old(now)
            return WindowCount(None, window.count, window.next_free(now))
        wait = window.take(now, most)
        if wait is None:
            sql = "UPDATE rates SET parts = %s, until = %s WHERE name = %s"
            work.execute(sql, (msgspec.json.encode(window.parts).decode(), now + 2 * seconds, key))
        return WindowCount(wait, window.count, window.next_free(now))

    # For this process alone

    def _take_share(self, key: str, most: int, seconds: float, counts: bool) -> WindowCount:
        share = max(1, most // max(1, self._replicas()))
        return self._take_own(key, share if counts else 0, seconds)

    def _take_own(self, key: str, most: float, seconds: float) -> WindowCount:
        with self._lock:
            window = self._own.get(key)
            if window is None:
                window = self._own[key] = RateWindow(seconds)
                if len(self._own) > MOST_OWN:
                    self._own.popitem(last=False)
            self._own.move_to_end(key)
            now = monotonic()
            wait = window.take(now, most)
            return WindowCount(wait, window.count, window.next_free(now))

    def _count_alone(self, error: DatabaseError | None) -> None:
        if not self._alone_until:
            log.warning("rates are counted by each replica for itself: %s", error or "the database does not answer")
        self._alone_until = monotonic() + ALONE_S

    def _sweep(self) -> None:
        """Remove what nobody has counted in for long. Not each time, and not by all at once."""
        with self._lock:
            if monotonic() < self._sweep_at:
                return
            self._sweep_at = monotonic() + SWEEP_S
        sql = f"DELETE FROM rates WHERE until < {self._database.clock} - 60"  # noqa: S608 - ours
        try:
            self._database.write(lambda work: work.execute(sql))
        except DatabaseError as error:
            log.debug("rates that nobody needs stay: %s", error)

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(THREADS, "onetool-rates")
            return self._threads


def _forget(work: "asyncio.Future[WindowCount]") -> None:
    if not work.cancelled():
        work.exception()  # marks it as retrieved
