"""`AuditLog`: an append-only log of who called what, from where, with which outcome. Lines have no values.

    log = AuditLog(database, config.audit)
    log.record("admin", "tokens add")          # queued, and written by a thread within 0.2 s
    log.write("admin", "tokens add")           # returns after the line is written, or raises AuditUnavailableError

While the log can't be written, lines wait in memory, up to a limit. Lines beyond it are lost and counted, starting
with the caller that has the most lines; a gap line later gives their number and caller. With `required`, a call only
runs after a line about its start is written. A written line survives the end of the process, but not always a power
failure.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from threading import Lock
from typing import Any, cast
from weakref import finalize

import msgspec

from onetool.core.call import ToolCall, client_name
from onetool.core.context import CallEvent, RunEvent, current_call
from onetool.core.errors import ToolFailure
from onetool.core.principal import LOCAL, Principal, current_address, current_principal
from onetool.core.trace import current_trace
from onetool.database import Database, DatabaseError
from onetool.services.audit.record import (
    BEGUN,
    KINDS,
    AuditEntry,
    AuditHasher,
    AuditKind,
    AuditRecord,
    AuditSettings,
    call_entry,
    run_entry,
)
from onetool.services.audit.table import MAX_APPENDED, AuditTable
from onetool.services.event_queue import MAX_WAITING, EventQueue

log = logging.getLogger("onetool.audit")
GATHER_S = 0.1  # how long a line waits for more lines, to be written together
SWEEP_S = 3600.0  # between two sweeps
MAX_HELD = 16_384  # bytes; larger arguments are hashed at once, not later in the thread

QueuedItem = AuditEntry | tuple[Callable[[Any, float, AuditHasher], AuditEntry], CallEvent | RunEvent, float]
"""A queued item: an entry, or a function that makes an entry from an event and its time."""


class AuditUnavailableError(ToolFailure):
    """A call that was refused because the audit log is required but can't be written."""

    def __init__(self, error: DatabaseError) -> None:
        super().__init__(
            f"the audit log can't be written ({error.what}), and the config of this server says audit: required",
            reason="audit_unavailable",
            hints=["see the server's log for the path of the audit log"],
        )


class AuditLog:
    """The audit log in a database. All methods are thread-safe; only `write` and `flush` wait for the database."""

    def __init__(self, database: Database, settings: AuditSettings, clock: Callable[[], float] | None = None) -> None:
        """Open the log. `clock` is the database's by default, so that replicas agree on the time."""
        self.table = AuditTable(database)
        self._clock = clock or database.now
        self._writer = _Writer(self.table, settings, self._clock)
        self.queue = self._writer.queue
        self._finalizer = finalize(self, self._writer.close)
        self.is_required = settings.mode == "required"

    @property
    def problem(self) -> str | None:
        """The reason why lines can't be written at the moment."""
        return self._writer.problem

    @property
    def lost(self) -> int:
        """The number of lines that this process has lost."""
        return self.queue.lost.total()

    def set_config(self, settings: AuditSettings) -> None:
        self._writer.settings = settings
        self.is_required = settings.mode == "required"

    # Events

    def record(self, kind: AuditKind, what: str, **more: Any) -> None:
        """Queue a line about an action of the current principal. `more` are fields of AuditEntry."""
        entry = self.entry(kind, what, **more)
        self.queue.put(entry, entry.principal.caller)

    def record_event(self, event: CallEvent | RunEvent) -> None:
        """Queue a line about a call or run that has ended."""
        at = self._clock()
        if isinstance(event, CallEvent):
            if event.value is not None:  # it may be large, and no line needs it
                event = msgspec.structs.replace(event, value=None)
            queued, is_small = (call_entry, event, at), len(event.args) <= MAX_HELD
        else:
            queued, is_small = (run_entry, event, at), len(event.code) <= MAX_HELD
        self.queue.put(queued if is_small else self._writer.entry(queued), event.principal.caller)

    def write(self, kind: AuditKind, what: str, **more: Any) -> None:
        """Write a line as `record` does, but wait until it is written. Raises AuditUnavailableError."""
        self.write_entry(self.entry(kind, what, **more))

    def write_entry(self, entry: AuditEntry) -> None:
        entry.line()  # raises if there can't be one: the queue would write a gap instead
        try:
            self.queue.flush(entry)
        except DatabaseError as error:
            raise AuditUnavailableError(error) from None

    def begun(self, event: ToolCall | RunEvent) -> AuditEntry:
        """Return the line to write before a call or a run, if the log is required."""
        if isinstance(event, RunEvent):
            entry = run_entry(event, self._clock(), self._writer.hasher)
            return msgspec.structs.replace(entry, outcome=BEGUN, ms=None)
        outer = current_call.get()
        return self.entry(
            "call",
            event.name,
            outcome=BEGUN,
            via=event.source,
            client=client_name(),
            args=self._writer.hasher.of(event.args),
            id=event.id,
            run=outer.run if outer else None,
        )

    def entry(
        self,
        kind: AuditKind,
        what: str,
        principal: Principal | None = None,
        address: str | None = None,
        id: str = "",
        **more: Any,
    ) -> AuditEntry:
        who = current_principal.get() if principal is None else principal
        place = current_address.get() if address is None else address
        own = self._writer.hasher.id(id) if id else ""
        more.setdefault("trace", current_trace.get())
        return AuditEntry(at=self._clock(), kind=kind, what=what, principal=who, address=place, id=own, **more)

    def flush(self) -> None:
        """Write queued lines, if possible."""
        with suppress(DatabaseError):
            self.queue.flush()

    def close(self) -> None:
        self._finalizer()


class _Writer:
    """The writer of queued lines."""

    def __init__(self, table: AuditTable, settings: AuditSettings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.hasher = AuditHasher(None)
        self.problem: str | None = None
        self.queue = EventQueue[QueuedItem]("onetool-audit", self._write, self._sweep, GATHER_S)
        self._reported_lost = Counter[str]()  # lost lines that a gap line has counted
        self._reporting = Lock()  # `entry` also runs in the threads of callers
        self._table = table
        self._clock = clock
        self._next_sweep = 0.0
        with suppress(DatabaseError):
            self._load_key()

    def close(self) -> None:
        """Write queued lines. The garbage collector may call this."""
        self.queue.close()
        if waiting := len(self.queue.waiting):
            log.error("lost %d lines of the audit log (%s)", waiting, self.problem)

    def _write(self, queued: deque[QueuedItem]) -> None:
        """Write lines, and remove written lines from the queue."""
        if not self.hasher.has_key:
            self._load_key()
        for index, item in enumerate(queued):
            queued[index] = self.entry(item)  # an entry is small, should it have to wait again
        while queued:
            entries = cast(list[AuditEntry], [*islice(queued, MAX_APPENDED)])
            self._append(entries)
            for _ in entries:
                queued.popleft()
        with self._reporting:
            lost = [*(self.queue.lost.copy() - self._reported_lost).items()]  # a copy: other threads lose more
        with suppress(DatabaseError):
            for start in range(0, len(lost), MAX_APPENDED):
                some = lost[start : start + MAX_APPENDED]
                self._append([self._gap(count, "lost", caller) for caller, count in some])
                with self._reporting:
                    self._reported_lost.update(dict(some))

    def entry(self, item: QueuedItem) -> AuditEntry:
        """Return the entry of an item, with its line; a gap if that fails, because one event must not stop the log."""
        try:
            entry = item if isinstance(item, AuditEntry) else item[0](item[1], item[2], self.hasher)
            entry.line()
        except Exception:
            log.exception("an event can't be written to the audit log")
            name = (item.principal if isinstance(item, AuditEntry) else item[1].principal).name
            with self._reporting:
                self._reported_lost[name] += 1
                self.queue.count_lost(name)
            return self._gap(1, "lost", name)
        return entry

    def _append(self, entries: list[AuditEntry]) -> None:
        try:
            self._table.append(entries)
        except DatabaseError as error:
            self._set_problem(str(error))
            raise
        if self.problem is not None:
            self._set_problem(None)
            with suppress(DatabaseError):
                self._load_key()  # a new database that replaces a damaged one has a new key

    def _set_problem(self, problem: str | None) -> None:
        before, self.problem = self.problem, problem
        if problem is not None and before is None:
            required = self.settings.mode == "required"
            then = (
                "calls are refused until it can be written"
                if required
                else f"up to {MAX_WAITING:,} lines wait to be written, further lines are lost"
            )
            log.error("the audit log can't be written: %s; %s", problem, then)
        elif problem is None and before is not None:
            log.warning("the audit log can be written again; lines lost: %d", self.queue.lost.total())

    def _gap(self, count: int, outcome: str, caller: str = "", why: str = "") -> AuditEntry:
        whose = f" of {caller}" if caller else ""
        what = f"{count} {'line' if count == 1 else 'lines'}{whose} {outcome}{why}"
        principal = Principal(name=caller, owner=caller) if caller else LOCAL
        return AuditEntry(at=self._clock(), kind="gap", what=what, principal=principal, outcome=outcome)

    def _sweep(self) -> None:
        """Remove lines beyond the limits, if the last sweep was long enough ago."""
        if self._clock() < self._next_sweep:
            return
        self._next_sweep = self._clock() + SWEEP_S
        try:
            if removed := self._table.sweep(self.settings.retention_days, self.settings.max_mb):
                why = f": the log is limited to {self.settings.max_mb} MB"
                self.queue.put(self._gap(removed, "removed", why=why))
        except DatabaseError as error:
            log.warning("old lines of the audit log can't be removed: %s", error)

    def _load_key(self) -> None:
        try:
            self.hasher = AuditHasher(self._table.made_key())
        except DatabaseError as error:
            self._set_problem(str(error))
            raise


__all__ = [
    "BEGUN",
    "KINDS",
    "AuditEntry",
    "AuditKind",
    "AuditLog",
    "AuditRecord",
    "AuditTable",
    "AuditUnavailableError",
]
