"""`Journal`: one table of events, which rows are only added to. The audit log and the stats are views of it.

    journal = Journal(database, recorder, settings)
    journal.record(event)                     # queued, and written by a thread within 0.2 s
    journal.record(journal.entry("admin", "tokens add"))
    journal.require(entry)                    # returns after the row is written, or raises AuditUnavailableError

While the database can't be written, rows wait in memory, up to a limit. Newer ones are lost and counted, and a gap line
of the audit log later gives their number. With `is_required`, a call only runs after a row about its start is written.
A written row survives the end of the process, but not always a power failure.
"""

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from threading import Lock, get_ident
from time import monotonic
from typing import Any
from weakref import finalize

import msgspec

from onetool.core.call import ToolCall, client_name
from onetool.core.context import CallEvent, RunEvent, current_call
from onetool.core.errors import ToolFailure
from onetool.core.principal import LOCAL, Principal, current_address, current_principal
from onetool.core.trace import current_trace
from onetool.database import Database, DatabaseError
from onetool.services.journal.recorder import Recorder
from onetool.services.journal.row import BEGUN, ArgumentHasher, AuditKind, Entry, JournalRow, Redact, RowMaker
from onetool.services.journal.table import MAX_WAIT_S, EventTable

log = logging.getLogger("onetool.journal")

GATHER_S = 0.15  # how long a row waits for more rows, to be written together
RETRY_S = 1.0  # after a failure
LAST_WAIT_S = 3.0  # at the end, for a thread that is writing
SWEEP_S = 3600.0  # between two sweeps
MAX_APPENDED = 256  # rows per transaction
MAX_WAITING = 10_000  # rows in memory while nothing can be written
MAX_IDLE_S = 300.0  # a client that takes longer for its next call is not waiting


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded, and for how long."""

    counts: bool = True  # sizes, for the stats
    audits: bool = False  # who called, for the audit log
    is_required: bool = False  # no call without a row about its start
    retention_days: int = 90
    max_rows: int = 5_000_000
    max_mb: int = 1024
    redact: Redact = lambda texts: texts


class AuditUnavailableError(ToolFailure):
    """A call that was refused because the audit log is required but can't be written."""

    def __init__(self, error: DatabaseError) -> None:
        super().__init__(
            f"the audit log can't be written ({error.what}), and the config of this server says audit: required",
            reason="audit_unavailable",
            hints=["see the server's log for the path of the audit log"],
        )


class Journal:
    """The journal in a database. All methods are thread-safe; only `require`, `flush` and `close` wait."""

    def __init__(
        self,
        database: Database,
        recorder: Recorder | None = None,
        settings: JournalSettings | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Open the journal. Rows are made and written by the thread of the `recorder`.

        `clock` is the database's by default, so that replicas agree on the time.
        """
        self.table = EventTable(database)
        self.recorder = recorder or Recorder()
        self._clock = clock
        self._writer = _Writer(self.table, self.recorder, clock or database.now)
        self.recorder.writers.append(self._writer.write)
        self.set_config(settings or JournalSettings())
        self._finalizer = finalize(self, _close, self._writer, self.recorder, owns=recorder is None)

    def set_config(self, settings: JournalSettings) -> None:
        self.settings = self._writer.settings = settings
        if settings.audits and not self._writer.has_key:
            with suppress(DatabaseError):
                self._writer.load_key()
        self._writer.make_rows()

    @property
    def problem(self) -> str | None:
        """The reason why rows can't be written at the moment."""
        return self._writer.problem

    @property
    def waiting(self) -> int:
        return len(self._writer.rows)

    @property
    def lost(self) -> int:
        """The number of events that this process has lost, in the queue of the recorder or later."""
        return self._writer.lost + self.recorder.lost

    @property
    def lost_rows(self) -> int:
        return self._writer.lost

    def health(self) -> dict[str, Any] | None:
        """Return the problem, and the number of waiting and lost rows; None if all is well."""
        if self.problem is None and not self.lost_rows:
            return None
        why = {"problem": self.problem} if self.problem else {}
        return {"status": "degraded", **why, "waiting": self.waiting, "lost": self.lost_rows}

    # Recording

    def record(self, event: CallEvent | RunEvent | Entry) -> None:
        self.recorder.put(self.add, event)

    def add(self, event: CallEvent | RunEvent | Entry) -> None:
        """Add a row now. Called in the thread of the recorder."""
        writer = self._writer
        if isinstance(event, Entry):
            writer.add(writer.maker.of_entry, event)
            return
        at = event.ended_at + self.table.database.ahead if self._clock is None else self._clock()
        writer.add(writer.maker.of_call if isinstance(event, CallEvent) else writer.maker.of_run, event, at)

    def entry(
        self,
        kind: AuditKind,
        what: str,
        principal: Principal | None = None,
        address: str | None = None,
        id: str = "",
        **more: Any,
    ) -> Entry:
        """Return an entry about an action of the current principal. `more` are fields of Entry."""
        who = current_principal.get() if principal is None else principal
        place = current_address.get() if address is None else address
        own = self._writer.hasher.id(id) if id else ""
        more.setdefault("trace", current_trace.get())
        return Entry(at=self._writer.clock(), kind=kind, what=what, principal=who, address=place, id=own, **more)

    def begun(self, event: ToolCall | RunEvent) -> Entry:
        """Return the entry to write before a call or a run, if the log is required."""
        hasher = self._writer.hasher
        if isinstance(event, RunEvent):
            return self.entry(
                "call",
                "run",
                event.principal,
                event.address,
                event.id,
                outcome=BEGUN,
                via=event.source,
                client=event.client,
                args=hasher.of({"code": event.code}),
                trace=event.trace,
            )
        outer = current_call.get()
        return self.entry(
            "call",
            event.name,
            outcome=BEGUN,
            via=event.source,
            client=client_name(),
            args=hasher.of(event.args),
            id=event.id,
            run=outer.run if outer else None,
        )

    def require(self, entry: Entry) -> None:
        """Write a row after those of earlier events, and wait until it is written. Raises AuditUnavailableError."""
        self.recorder.flush(timeout=MAX_WAIT_S)
        try:
            self._writer.flush(self._writer.maker.of_entry(entry))
        except DatabaseError as error:
            raise AuditUnavailableError(error) from None

    def record_reply(self, run: str, size: int) -> None:
        """Record the size of the reply to a run, in bytes."""
        self._figures("reply", run=run, bytes_out=size)

    def record_menu(self, client: str, source: str, full_bytes: int, sent_bytes: int, owner: str = "") -> None:
        """Record that a client was sent a menu; `full_bytes` is the size of a list of all tools."""
        self._figures("menu", client=client, via=source, owner=owner, bytes_in=full_bytes, bytes_out=sent_bytes)

    def record_wait(self, client: str, seconds: float, owner: str = "") -> None:
        """Record the seconds from our answer to the client's next call. Long waits are ignored: it was idle."""
        if 0 <= seconds <= MAX_IDLE_S:
            self._figures("wait", client=client, ms=seconds * 1000, owner=owner)

    def _figures(self, kind: str, **figures: Any) -> None:
        if self.settings.counts:
            self._writer.add(self._writer.maker.of_figures, kind, self._writer.clock(), **figures)

    # Writing

    def flush(self) -> None:
        """Write all events, if possible."""
        self.recorder.flush()
        with suppress(DatabaseError):
            self._writer.flush()

    def close(self) -> None:
        self._finalizer()


def _close(writer: "_Writer", recorder: Recorder, *, owns: bool) -> None:
    """Write queued events. The garbage collector may call this."""
    if owns:
        recorder.close()
    else:
        recorder.flush(timeout=LAST_WAIT_S)
        writer.write(is_last=True)
    recorder.writers.remove(writer.write)


class _Writer:
    """The writer of rows."""

    def __init__(self, table: EventTable, recorder: Recorder, clock: Callable[[], float]) -> None:
        self.settings = JournalSettings()
        self.clock = clock
        self.rows: deque[JournalRow] = deque()
        self.problem: str | None = None
        self.lost = 0
        self.has_key = False
        self.hasher = ArgumentHasher(None)
        self.maker = RowMaker()
        self._table = table
        self._recorder = recorder
        self._reported_lost = recorder.lost  # lost events that a gap line has counted
        self._writing = Lock()
        self._thread: int | None = None  # which is writing
        self._due: float | None = None  # when to write the waiting rows, by time.monotonic
        self._next_sweep = 0.0

    def make_rows(self) -> None:
        """Make the next rows according to the settings."""
        hasher = self.hasher if self.settings.audits else None
        self.maker = RowMaker(counts=self.settings.counts, hasher=hasher, redact=self.settings.redact)

    def load_key(self) -> None:
        try:
            self.hasher, self.has_key = ArgumentHasher(self._table.key(creates=True)), True
        except DatabaseError as error:
            self._set_problem(str(error))
            raise
        self.make_rows()

    def add(self, make: Callable[..., JournalRow], *event: Any, **more: Any) -> None:
        """Add a row. A full queue loses it, and so does an event that has no row."""
        try:
            row = make(*event, **more)
        except Exception:
            log.exception("an event can't be written to the journal")
            self.lost += 1
            return
        if len(self.rows) < MAX_WAITING:
            self.rows.append(row)
        else:
            self.lost += 1

    def write(self, is_last: bool = False) -> float | None:
        """Write rows that are due. Return the seconds until the next are due; None if no rows wait."""
        if is_last:
            self._write_last()
            return None
        if self.rows or self._unreported:
            now = monotonic()
            self._due = self._due or now + GATHER_S
            if now < self._due and len(self.rows) < MAX_APPENDED:
                return self._due - now
            try:
                self.flush()
            except DatabaseError:
                self._due = now + RETRY_S
                return RETRY_S
        self._due = None
        with suppress(DatabaseError):
            if self.problem is None and not self._table.database.is_away:
                return self._table.takeover.step()
        return None

    @property
    def _unreported(self) -> int:
        return self.lost + self._recorder.lost - self._reported_lost

    def flush(self, last: JournalRow | None = None) -> None:
        """Write the waiting rows, then `last`. Raises DatabaseError, and then drops `last`."""
        with self._writing:
            self._thread = get_ident()
            try:
                self._flush(last)
            finally:
                self._thread = None

    def _write_last(self) -> None:
        """Write or lose the waiting rows. The garbage collector may call this while this thread is writing."""
        if self._thread != get_ident() and self._writing.acquire(timeout=LAST_WAIT_S):
            try:
                with suppress(DatabaseError):
                    self._flush(None)
            finally:
                self._writing.release()
        if waiting := len(self.rows):
            self.rows.clear()
            log.error("lost %d events of the journal (%s)", waiting, self.problem)

    def _flush(self, last: JournalRow | None) -> None:
        if self.settings.audits and not self.has_key:
            self.load_key()
        if not self.rows and last is None and not self._unreported:
            return
        while self.rows or last is not None:
            some = [*islice(self.rows, MAX_APPENDED)]
            batch, is_all = (some, False) if last is None else ([*some, last], len(some) == len(self.rows))
            self._append(batch if is_all else some)
            for _ in some:
                self.rows.popleft()
            last = None if is_all else last
        if (count := self._unreported) and self.settings.audits:
            with suppress(DatabaseError):
                self._append([self._gap(count, "lost")])
                self._reported_lost += count
        self._sweep()

    def _append(self, rows: list[JournalRow]) -> None:
        try:
            self._table.append(rows)
        except DatabaseError as error:
            self._set_problem(str(error))
            raise
        if self.problem is not None:
            self._set_problem(None)
            if self.settings.audits:
                with suppress(DatabaseError):
                    self.load_key()  # a new database that replaces a damaged one has a new key

    def _set_problem(self, problem: str | None) -> None:
        before, self.problem = self.problem, problem
        if problem is not None and before is None:
            then = (
                "calls are refused until it can be written"
                if self.settings.is_required
                else f"up to {MAX_WAITING:,} events wait to be written, further ones are lost"
            )
            level = logging.ERROR if self.settings.audits else logging.WARNING
            log.log(level, "the journal can't be written: %s; %s", problem, then)
        elif problem is None and before is not None:
            log.warning("the journal can be written again; events lost: %d", self.lost)

    def _gap(self, count: int, outcome: str, why: str = "") -> JournalRow:
        what = f"{count} {'line' if count == 1 else 'lines'} {outcome}{why}"
        return self.maker.of_entry(Entry(at=self.clock(), kind="gap", what=what, principal=LOCAL, outcome=outcome))

    def _sweep(self) -> None:
        """Remove rows beyond the limits, if the last sweep was long enough ago."""
        if self.clock() < self._next_sweep:
            return
        self._next_sweep = self.clock() + SWEEP_S
        limits = self.settings
        try:
            removed = self._table.sweep(self.clock(), limits.retention_days, limits.max_rows, limits.max_mb)
            if removed and limits.audits:
                self._append([self._gap(removed, "removed", f": the log is limited to {limits.max_mb} MB")])
        except DatabaseError as error:
            log.warning("old events of the journal can't be removed: %s", error)


__all__ = ["MAX_WAIT_S", "AuditUnavailableError", "Entry", "Journal", "JournalSettings", "Recorder"]
