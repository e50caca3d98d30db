"""`Writer`: collects rows of the stats, and writes them in batches."""

import logging
from collections import deque
from collections.abc import Callable
from threading import Lock, get_ident
from time import monotonic
from typing import Any

from onetool.database import ChangeUnknownError, DatabaseAwayError, DatabaseError
from onetool.database.connection import CALL_WAIT_S, DamagedDatabaseError, NewerDatabaseError, StorageError
from onetool.services.stats.store import COLUMNS, Batch, Row, StatsStore

log = logging.getLogger("onetool.stats")
GATHER_SECONDS = 2.0  # maximum wait of a row while the database can be written
LAST_WAIT = 3.0  # seconds to wait at exit for a thread that is writing
MAX_GATHERED = 2_000  # rows of a table that cause a write before GATHER_SECONDS
MAX_WAITING = 10_000  # rows of a table in memory while nothing can be written
SWEEP_SECONDS = 3600.0  # between two deletions of old rows


class Writer:
    """A writer of the rows that are appended to `rows`.

    Failures are logged once. Meanwhile rows wait in memory, up to a limit; the oldest are dropped first, and counted.
    """

    def __init__(
        self,
        store: StatsStore,
        retention_seconds: float,
        now: Callable[[], float],
        redact: Callable[[Any], Any],
    ) -> None:
        """Write to `store`. `redact` masks secrets in rows: names of tools and clients, and reasons are untrusted."""
        self._store = store
        self._redact = redact
        self._retention = retention_seconds
        self._now = now
        self.rows: dict[str, deque[Row]] = {table: deque() for table in COLUMNS}  # waiting rows by table
        self._number = 0  # of the last batch
        self._unknown: tuple[int, Batch] | None = None  # a batch that may have been written
        self._writing = Lock()
        self._writer: int | None = None  # the writing thread
        self._due: float | None = None  # when to write the waiting rows, by time.monotonic
        self._next_sweep = 0.0
        self._has_warned = False  # since rows were last written
        self.is_off = False
        self.dropped = 0  # rows
        self.problem: str | None = None  # why the last batch was not written

    def write(self, is_last: bool = False) -> float | None:
        """Write rows that are due. Return the seconds until the next are due; None if no rows wait."""
        if is_last:
            self._write_last()
        if self.is_off:
            self._forget()
        if not any(self.rows.values()) and self._unknown is None:
            self._due = None
            return None
        now = monotonic()
        self._due = self._due or now + GATHER_SECONDS
        if now < self._due and max(map(len, self.rows.values())) < MAX_GATHERED:
            return self._due - now
        self.flush()
        self._due = None
        return GATHER_SECONDS if self.waiting else None

    @property
    def waiting(self) -> int:
        """The number of waiting rows."""
        held = 0 if self._unknown is None else sum(map(len, self._unknown[1].values()))
        return held + sum(map(len, self.rows.values()))

    def flush(self, timeout: float = CALL_WAIT_S) -> None:
        """Write waiting rows. After a failure, a bounded number of rows is kept for the next attempt."""
        with self._writing:
            self._writer = get_ident()
            try:
                self._flush(timeout)
            finally:
                self._writer = None

    def _write_last(self) -> None:
        """Write or drop waiting rows. The garbage collector may call this while this thread is writing."""
        if self._writer != get_ident() and self._writing.acquire(timeout=LAST_WAIT):
            try:
                self._flush(CALL_WAIT_S)
                if waiting := self.waiting:
                    self._drop(waiting)
                    self._forget()
            finally:
                self._writing.release()

    def give_up(self, why: str) -> None:
        """Stop writing for the rest of the process, and log this once."""
        if not self.is_off:
            self.is_off, self.problem = True, why
            self._forget()
            log.warning("stats can't be stored: %s", why)

    def _forget(self) -> None:
        self._unknown = None
        for waiting in self.rows.values():
            waiting.clear()

    def _flush(self, timeout: float) -> None:
        if not self.is_off and (self._unknown is None or self._try(*self._unknown, timeout)):
            taken = {  # other threads append to the deques
                table: [waiting.popleft() for _ in range(len(waiting))]
                for table, waiting in self.rows.items()
                if waiting
            }
            if taken:
                self._number += 1
                self._try(self._number, taken, timeout)
        dropped = 0
        for waiting in self.rows.values():  # the oldest are dropped first
            for _ in range(len(waiting) - MAX_WAITING):
                waiting.popleft()
                dropped += 1
        if dropped:
            self._drop(dropped)

    def _try(self, number: int, rows: Batch, timeout: float) -> bool:
        """Write a batch. Return whether the next one can be tried."""
        sweeps = self._now() >= self._next_sweep
        try:
            masked = {table: self._redact(some) for table, some in rows.items()}
            self._store.write(number, masked, timeout, self._now() - self._retention if sweeps else None)
        except (DatabaseAwayError, ChangeUnknownError, StorageError, DamagedDatabaseError) as error:
            if isinstance(error, StorageError) and not self._has_warned:
                self._has_warned = True
                log.warning("stats can't be stored: %s; rows wait in memory", error)
            self.problem = str(error)
            if isinstance(error, ChangeUnknownError) or self._unknown is not None:
                self._unknown = (number, rows)  # it may have been written, so it keeps its number
            else:
                for table, some in rows.items():
                    self.rows[table].extendleft(reversed(some))
            return False
        except NewerDatabaseError as error:
            self.give_up(str(error))
        except DatabaseError as error:
            self.problem = str(error)
            self._drop(sum(map(len, rows.values())))
        else:
            self.problem, self._has_warned = None, False
            if sweeps:
                self._next_sweep = self._now() + SWEEP_SECONDS
        self._unknown = None
        return not self.is_off

    def _drop(self, number: int) -> None:
        self.dropped += number
        if not self._has_warned:
            self._has_warned = True
            log.warning("stats: %d rows were dropped: %s; see health() for further ones", number, self.problem)
