"""What the stats need of a place that keeps them: a SQLite file (`file`), or tables that replicas share (`tables`).

Both answer the same queries. A query names its parameters `:name`, and has `{…}` where SQLite and PostgreSQL differ:

    {calls} {runs} {replies} {menus} {gaps}   the tables
    {spread}          percentiles of duration_ms, as JSON for `read_spread`
    {bucket}          the number of the stretch of `:bucket` seconds that `at` lies in
    {latest_source}   the source of the latest call of a group
    {unordered}       after a table of which all rows are read
    {tool}            the column, where an index on it must not be used
    {names}           the names of the JSON list `:names`, as a subquery

A thread writes the rows, in batches (`Writer`).
"""

import logging
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, repeat
from threading import Event, Lock, Thread, get_ident
from typing import Any, Protocol, TypeVar

import msgspec

from onetool.core.errors import ToolFailure

T = TypeVar("T")
Row = tuple[Any, ...]
Batch = Mapping[str, Sequence[Row]]  # rows by their table

CALLS, RUNS, REPLIES, MENUS, GAPS = "calls", "runs", "replies", "menus", "gaps"
COLUMNS = {  # as rows have them; tokens are computed by the storage
    CALLS: "at, tool, source, door, client, run, ok, code, reason, duration_ms, bytes_in, bytes_out, caller",
    RUNS: "at, id, door, client, ok, code, duration_ms, calls, bytes_in, caller",
    REPLIES: "at, run, bytes_out",
    MENUS: "at, client, door, full_bytes, sent_bytes, caller",
    GAPS: "at, client, duration_ms, caller",
}


class StatsReader(Protocol):
    """Answers queries, all of one moment."""

    def rows(self, query: str, asked: Mapping[str, Any]) -> list[Row]: ...


class StatsStorage(Protocol):
    def write(self, number: int, rows: Batch, timeout: float, sweep_before: float | None) -> None:
        """Write all rows or none, and forget those of before then.

        A batch of the same number is written once, however often this is called. Raises StorageBusyError and
        StorageRefusedError.
        """
        ...

    def read(self, ask: Callable[[StatsReader], T], is_patient: bool) -> T:
        """Raises UnreadableError. `is_patient`: somebody waits for exactly this."""
        ...


class StorageBusyError(Exception):
    """It can't be written now; later it can. `is_unknown`: the rows may have been written."""

    def __init__(self, why: str, is_unknown: bool = False) -> None:
        super().__init__(why)
        self.is_unknown = is_unknown


class StorageRefusedError(Exception):
    """These rows can't be written. `is_final`: no others, either."""

    def __init__(self, why: str, is_final: bool) -> None:
        super().__init__(why)
        self.is_final = is_final


class UnreadableError(ToolFailure):
    """The stats are there, and can't be read. `never`: why nothing can be written, either."""

    def __init__(self, why: str, never: str | None = None, reason: str = "source_unavailable") -> None:
        super().__init__(f"stats can't be read: {why}", reason=reason)
        self.never = never


# Writing in a thread


log = logging.getLogger("onetool.stats")

BUSY_SECONDS = 1.0
GATHER_SECONDS = 2.0  # that a row waits at most, where it can be written
LAST_WAIT = 3.0  # seconds, for who is writing when everything ends
_FULL = 2_000  # rows of a table that are not kept waiting for others
_MOST = 10_000  # rows of a table that wait, however long nothing can be written
_SWEEP_SECONDS = 3600.0  # between two looks for what is too old: each walks over all rows


class Writer:
    """Writes rows in a thread; adding only appends to a list. What can't be written is logged once, and never fails a
    call. Rows that have to wait do so in memory, up to a number; the oldest are dropped first, and counted.
    """

    def __init__(
        self,
        storage: StatsStorage,
        retention_seconds: float,
        now: Callable[[], float],
        redact: Callable[[Any], Any],
    ) -> None:
        """`redact` masks secrets in rows: names of tools, clients and reasons come from anywhere."""
        self._storage = storage
        self._redact = redact
        self._retention = retention_seconds
        self._now = now
        self._waiting: dict[str, deque[Row]] = {table: deque() for table in COLUMNS}
        self._number = 0  # of the last batch
        self._unknown: tuple[int, Batch] | None = None  # a batch that may have been written
        self._writing = Lock()
        self._writer: int | None = None  # the thread that is at it
        self._starting = Lock()
        self._thread: Thread | None = None
        self._full = Event()
        self._next_sweep = 0.0
        self._tells_drops = True
        self.is_off = False
        self.dropped = 0  # rows
        self.problem: str | None = None  # why the last batch was not written

    def add(self, table: str, row: Row) -> None:
        waiting = self._waiting[table]
        waiting.append(row)
        if self._thread is None:
            self._start()
        elif len(waiting) % _FULL == 0:
            self._full.set()

    @property
    def waiting(self) -> int:
        """How many rows wait."""
        held = 0 if self._unknown is None else sum(map(len, self._unknown[1].values()))
        return held + sum(map(len, self._waiting.values()))

    def flush(self, timeout: float = BUSY_SECONDS) -> None:
        """Write what waits. What can't be written now is tried again later, for a bounded number of rows."""
        with self._writing:
            self._writer = get_ident()
            try:
                self._flush(timeout)
            finally:
                self._writer = None

    def flush_in_finalizer(self) -> None:
        """The same, for a finalizer: the garbage collector may run it while the writer thread is writing."""
        if self._writer != get_ident() and self._writing.acquire(timeout=LAST_WAIT):
            try:
                self._flush(BUSY_SECONDS)
            finally:
                self._writing.release()

    def give_up(self, why: str) -> None:
        """Nothing more is written. Said once."""
        if not self.is_off:
            self.is_off, self.problem, self._unknown = True, why, None
            for waiting in self._waiting.values():
                waiting.clear()
            log.warning("stats are not kept: %s", why)

    def _flush(self, timeout: float) -> None:
        if not self.is_off and (self._unknown is None or self._try(*self._unknown, timeout)):
            taken = {table: _all_of(waiting) for table, waiting in self._waiting.items() if waiting}
            if taken:
                self._number += 1
                self._try(self._number, taken, timeout)
        self._trim()

    def _try(self, number: int, rows: Batch, timeout: float) -> bool:
        """Whether the next batch can be tried."""
        sweeps = self._now() >= self._next_sweep
        try:
            masked = {table: self._redact(some) for table, some in rows.items()}
            self._storage.write(number, masked, timeout, self._now() - self._retention if sweeps else None)
        except StorageBusyError as error:
            self._keep(number, rows, error)
            return False
        except StorageRefusedError as error:
            self._refused(rows, error)
        else:
            self.problem, self._tells_drops = None, True
            if sweeps:
                self._next_sweep = self._now() + _SWEEP_SECONDS
        self._unknown = None
        return not self.is_off

    def _keep(self, number: int, rows: Batch, error: StorageBusyError) -> None:
        """What may have been written is tried again as it was, under its number."""
        self.problem = str(error)
        if error.is_unknown or self._unknown is not None:
            self._unknown = (number, rows)
            return
        for table, some in rows.items():
            self._waiting[table].extendleft(reversed(some))

    def _refused(self, rows: Batch, error: StorageRefusedError) -> None:
        if error.is_final:
            self.give_up(str(error))
        else:
            self.problem = str(error)
            self._drop(sum(map(len, rows.values())))

    def _trim(self) -> None:
        """Drop what is too much, the oldest first."""
        dropped = 0
        for waiting in self._waiting.values():
            for _ in range(len(waiting) - _MOST):
                waiting.popleft()
                dropped += 1
        if dropped:
            self._drop(dropped)

    def _drop(self, number: int) -> None:
        self.dropped += number
        if self._tells_drops:
            self._tells_drops = False
            log.warning("stats: %d rows are dropped: %s; health() counts further ones", number, self.problem)

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
        if self.waiting:
            self._start()


def _all_of(waiting: deque[Row]) -> list[Row]:
    return [waiting.popleft() for _ in range(len(waiting))]  # others append meanwhile


# {spread}: percentiles of durations


MOST_EXACT_VALUES = 500_000  # values that are sorted as they are; sorting takes forty bytes for each


class Spread(msgspec.Struct, frozen=True):
    """In milliseconds; all None where there is nothing."""

    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


def read_spread(text: str | None) -> Spread:
    """What `{spread}` of a query gives."""
    found = {} if text is None else msgspec.json.decode(text, type=dict[str, float | None])
    return Spread(**{name: None if value is None else round(value, 3) for name, value in found.items()})


class SpreadOfSqlite:
    """The aggregate function `spread` of SQLite. PostgreSQL has percentiles of its own."""

    def __init__(self) -> None:
        self._values = array("d")
        self.step = self._values.append  # called for every row: nothing of ours in between

    def finalize(self) -> str | None:
        number = len(self._values)
        if not number:
            return None
        ranks = {"p50": (number + 1) // 2, **{f"p{p}": -(-number * p // 100) for p in (90, 95, 99)}, "max": number}
        wanted = {*ranks.values(), number // 2 + 1}
        found: dict[int, float] = {}
        for value, upto in self._ordered():
            reached = {rank for rank in wanted if rank <= upto}
            found |= dict.fromkeys(reached, value)
            wanted -= reached
            if not wanted:
                break
        named = {name: found[rank] for name, rank in ranks.items()}
        median = (found[ranks["p50"]] + found[number // 2 + 1]) / 2
        return msgspec.json.encode({**named, "p50": median}).decode()

    def _ordered(self) -> Iterator[tuple[float, int]]:
        """Values, smallest first, each with how many there are up to it."""
        if len(self._values) <= MOST_EXACT_VALUES:
            return ((value, rank) for rank, value in enumerate(sorted(self._values), 1))
        counts = Counter(map(float, map(format, self._values, repeat(".3g"))))
        return zip(sorted(counts), accumulate(counts[value] for value in sorted(counts)), strict=True)
