"""What was called, how often, and how it went. Kept in SQLite, so that several processes can share one file."""

import json
import logging
import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, Thread
from time import time
from typing import Any

from onetool.core.event import CallEvent

log = logging.getLogger("onetool.stats")

_TABLE = """
CREATE TABLE IF NOT EXISTS calls (
    at REAL NOT NULL, tool TEXT NOT NULL, source TEXT NOT NULL,
    ok INTEGER NOT NULL, code TEXT, duration_ms REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS calls_by_tool ON calls (tool, at);
"""
# All rows in one statement: a statement for each would take and give back the interpreter's lock as often.
_INSERT = """
INSERT INTO calls
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 FROM json_each(?)
"""
_FULL = 500  # calls that may wait in memory
_MOST = 10_000  # … and no more, however long the file can't be written
_BUSY_SECONDS = 1.0
_SWEEP_SECONDS = 3600.0  # between two looks for what is too old: each walks over the whole file
_LONGEST_NAME = 300

Row = tuple[float, str, str, bool, str | None, float]


class Stats:
    """Counts calls. Recording only appends to a list; the file is written in batches, on close and before a read.

    A file that can't be written is told once, and never fails a call.
    """

    def __init__(self, file: Path, retention_days: int = 90, now: Callable[[], float] = time) -> None:
        self._file = file
        self._retention = retention_days * 86_400
        self._now = now
        self._waiting: deque[Row] = deque()
        self._lock = Lock()
        self._next_sweep = 0.0
        self._broken = False

    def record(self, event: CallEvent) -> None:
        code = event.error.code if event.error else None
        tool = event.tool[:_LONGEST_NAME]
        if not tool.isascii():
            tool = tool.encode("utf-8", "replace").decode()
        self._waiting.append((self._now(), tool, event.call.source, event.ok, code, event.duration_ms))
        if len(self._waiting) % _FULL == 0:
            # Not here: somebody is waiting for his call, and others for the loop that it runs on.
            Thread(target=self.flush, name="onetool-stats", daemon=True).start()

    def flush(self, patience: float = _BUSY_SECONDS) -> None:
        """Write what waits. A file that another process holds is tried again later, for a bounded number of calls."""
        with self._lock:
            rows = [self._waiting.popleft() for _ in range(len(self._waiting))]  # others append meanwhile
            if not rows or self._broken:
                return
            try:
                with closing(self._open(patience)) as database, database:
                    database.execute(_INSERT, (json.dumps(rows),))
                    self._sweep(database)
            except (OSError, sqlite3.Error) as error:
                if _is_busy(error):
                    self._waiting.extendleft(reversed(rows[-_MOST:]))
                    return
                self._broken = True
                log.warning("stats are not kept: %s: %s; if the file is broken, delete it", self._file, error)

    def _sweep(self, database: sqlite3.Connection) -> None:
        if self._now() >= self._next_sweep:
            self._next_sweep = self._now() + _SWEEP_SECONDS
            database.execute("DELETE FROM calls WHERE at < ?", (self._now() - self._retention,))

    def facts(self, tool: str | None = None) -> dict[str, Any]:
        """Run-time facts of one tool, or of all: calls, success_rate (percent), median_ms, last_called."""
        self.flush()
        if not self._file.exists():
            return _facts(0, 0, None, None)
        try:
            with closing(self._open()) as database:
                return _facts(*_measure(database, tool))
        except (OSError, sqlite3.Error) as error:
            log.warning("stats can't be read: %s: %s; if the file is broken, delete it", self._file, error)
            return _facts(0, 0, None, None)

    def _open(self, patience: float = _BUSY_SECONDS) -> sqlite3.Connection:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        database = sqlite3.connect(self._file, timeout=patience)
        try:
            database.executescript(_TABLE)
        except sqlite3.Error:
            database.close()
            raise
        return database


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def _measure(database: sqlite3.Connection, tool: str | None) -> tuple[int, int, float | None, float | None]:
    those = "(:tool IS NULL OR tool = :tool)"
    calls, good, last = database.execute(
        f"SELECT count(*), coalesce(sum(ok), 0), max(at) FROM calls WHERE {those}",  # noqa: S608 - no input in it
        {"tool": tool},
    ).fetchone()
    middle = database.execute(
        f"SELECT duration_ms FROM calls WHERE {those} ORDER BY duration_ms LIMIT 1 OFFSET :half",  # noqa: S608
        {"tool": tool, "half": calls // 2},
    ).fetchone()
    return calls, good, middle and middle[0], last


def _facts(calls: int, good: int, median: float | None, last: float | None) -> dict[str, Any]:
    return {
        "calls": calls,
        "success_rate": round(100 * good / calls, 1) if calls else None,
        "median_ms": median,
        "last_called": datetime.fromtimestamp(last, UTC).isoformat(timespec="seconds") if last else None,
    }
