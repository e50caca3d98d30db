"""Rows that wait to be written, and the thread that writes them. Whoever adds one waits for nothing."""

import logging
import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock, Thread, get_ident
from typing import Any

from onetool.services.stats.tables import BUSY_SECONDS, COLUMNS, NewerFile, insert, is_busy, opened, sweep, transaction

log = logging.getLogger("onetool.stats")

GATHER_SECONDS = 2.0  # that a row waits at most, where the file can be written
LAST_WAIT = 3.0  # seconds, for who is writing when everything ends
_FULL = 2_000  # rows of a table that are not kept waiting for others
_MOST = 10_000  # rows of a table that wait, however long the file can't be written
_SWEEP_SECONDS = 3600.0  # between two looks for what is too old: each walks over the whole file

Row = tuple[Any, ...]


class Writer:
    """Adding only appends to a list. A file that can't be written is told once, and never fails a call."""

    def __init__(
        self, file: Path, retention_seconds: float, now: Callable[[], float], redact: Callable[[Any], Any]
    ) -> None:
        """`redact` masks secrets in rows: names of tools, clients and reasons come from anywhere."""
        self._file = file
        self._redact = redact
        self._retention = retention_seconds
        self._now = now
        self._waiting: dict[str, deque[Row]] = {table: deque() for table in COLUMNS}
        self._writing = Lock()
        self._writer: int | None = None  # the thread that is at it
        self._starting = Lock()
        self._thread: Thread | None = None
        self._full = Event()
        self._next_sweep = 0.0
        self.is_off = False

    def add(self, table: str, row: Row) -> None:
        waiting = self._waiting[table]
        waiting.append(row)
        if self._thread is None:
            self._start()
        elif len(waiting) % _FULL == 0:
            self._full.set()

    def flush(self, patience: float = BUSY_SECONDS) -> None:
        """Write what waits. A file that another process holds is tried again later, for a bounded number of rows."""
        with self._writing:
            self._writer = get_ident()
            try:
                self._flush(patience)
            finally:
                self._writer = None

    def flush_at_the_end(self) -> None:
        """The same for the collector of garbage, which may come in the middle of writing, and in that very thread."""
        if self._writer != get_ident() and self._writing.acquire(timeout=LAST_WAIT):
            try:
                self._flush(BUSY_SECONDS)
            finally:
                self._writing.release()

    def _flush(self, patience: float) -> None:
        taken = {table: _all_of(waiting) for table, waiting in self._waiting.items() if waiting}
        if not taken or self.is_off:
            return
        try:
            self._write(taken, patience)
        except (OSError, sqlite3.Error, NewerFile) as error:
            if is_busy(error):
                for table, rows in taken.items():
                    self._waiting[table].extendleft(reversed(rows[-_MOST:]))
                return
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """Nothing more is written. Said once."""
        if not self.is_off:
            self.is_off = True
            advice = "" if isinstance(error, NewerFile) else "; if the file is broken, delete it"
            log.warning("stats are not kept: %s: %s%s", self._file, error, advice)

    def _write(self, rows: dict[str, list[Row]], patience: float) -> None:
        with opened(self._file, patience) as database, transaction(database):
            for table, some in rows.items():
                insert(database, table, self._redact(some))
            if self._now() >= self._next_sweep:
                self._next_sweep = self._now() + _SWEEP_SECONDS
                sweep(database, self._now() - self._retention)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self.is_off:
                self._thread = Thread(target=self._gather, name="onetool-stats", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # the process is about to end: it is written with the rest
                    self._thread = None

    def _gather(self) -> None:
        """One batch. Whatever has come meanwhile, or could not be written, is the next one's."""
        self._full.wait(GATHER_SECONDS)
        self._full.clear()
        self.flush()
        self._thread = None
        if any(self._waiting.values()):
            self._start()


def _all_of(waiting: deque[Row]) -> list[Row]:
    return [waiting.popleft() for _ in range(len(waiting))]  # others append meanwhile
