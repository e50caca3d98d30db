"""`AuditLog`: who called what, from where, with which outcome. Lines are only appended, and have no values.

    log = AuditLog(database, config.audit)
    log.record("admin", "tokens add")          # noted, and written by a thread within 0.2 s
    log.write("admin", "tokens add")           # written when it returns; AuditUnavailableError if that fails

While the log can't be written, lines wait in memory, up to a limit. Lines beyond it are lost and counted; a gap line
has their number later. With `required`, a call only runs after a line about its beginning is written. A written line
survives the end of the process, but not always a power failure.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread, get_ident
from time import time
from typing import Any
from weakref import finalize

import msgspec

from onetool.core.call import ToolCall, client_name
from onetool.core.context import CallEvent, RunEvent, current_call
from onetool.core.errors import ToolFailure
from onetool.core.principal import LOCAL, Principal, current_address, current_principal
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

log = logging.getLogger("onetool.audit")

GATHER_S = 0.1  # for which a line waits for others
RETRY_S = 1.0  # after a failure
LAST_WAIT_S = 3.0  # for the thread, when everything ends
SWEEP_S = 3600.0  # between two sweeps
MAX_WAITING = 10_000  # lines
MAX_BEGUN = 1_000  # hashes that are kept until their calls end


class AuditUnavailableError(ToolFailure):
    """A call that is refused because the audit log is required, and can't be written."""

    def __init__(self, error: DatabaseError) -> None:
        super().__init__(
            f"the audit log can't be written ({error}), and the config of this server says audit: required",
            reason="audit_unavailable",
            hints=["the server's log says where it is"],
        )


class AuditLog:
    """The log in a database. Any thread may call all methods. Only `write` and `flush` wait until lines are written."""

    def __init__(self, database: Database, settings: AuditSettings, clock: Callable[[], float] = time) -> None:
        self.table = AuditTable(database)
        self._clock = clock
        self._writer = _Writer(self.table, settings, clock)
        self._finalizer = finalize(self, self._writer.close)
        # Arguments and their hash by the id of the call, so that they are only hashed once.
        self._begun: dict[str, tuple[Any, str]] = {}

    @property
    def is_required(self) -> bool:
        return self._writer.settings.mode == "required"

    @property
    def problem(self) -> str | None:
        """Why lines can't be written at the moment."""
        return self._writer.problem

    @property
    def lost(self) -> int:
        """The number of lines that this process has lost."""
        return self._writer.lost

    def set_config(self, settings: AuditSettings) -> None:
        self._writer.settings = settings

    # Events

    def record(self, kind: AuditKind, what: str, **more: Any) -> None:
        """Note an action of the current principal. `more` are fields of AuditEntry."""
        self._writer.add(self.entry(kind, what, **more))

    def record_call(self, event: CallEvent) -> None:
        """Note a call that has ended."""
        begun = self._begun.pop(event.call.id, None)
        known = begun[1] if begun is not None and begun[0] is event.call.args else None
        self._writer.add(call_entry(event, self._clock(), self._writer.hasher, known))

    def record_run(self, event: RunEvent) -> None:
        """Note code that was run."""
        self._writer.add(self._run_entry(event))

    def run_begun(self, event: RunEvent) -> AuditEntry:
        """Return the line to write before a run, if the log is required."""
        return msgspec.structs.replace(self._run_entry(event), outcome=BEGUN, ms=None)

    def _run_entry(self, event: RunEvent) -> AuditEntry:
        who, address = current_principal.get(), current_address.get()
        return run_entry(event, self._clock(), who, address, self._writer.hasher)

    def write(self, kind: AuditKind, what: str, **more: Any) -> None:
        """Do the same as `record`, but wait until the line is written. Raises AuditUnavailableError."""
        self.write_entry(self.entry(kind, what, **more))

    def write_entry(self, entry: AuditEntry) -> None:
        try:
            self._writer.write(entry)
        except DatabaseError as error:
            raise AuditUnavailableError(error) from None

    def call_begun(self, call: ToolCall) -> AuditEntry:
        """Return the line to write before a call, if the log is required."""
        outer, hasher = current_call.get(), self._writer.hasher
        args = hasher.of(call.args)
        if len(self._begun) < MAX_BEGUN:
            self._begun[call.id] = call.args, args
        return self.entry(
            "call",
            call.name,
            outcome=BEGUN,
            via=call.source,
            client=client_name(),
            args=args,
            id=call.id,
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
        return AuditEntry(at=self._clock(), kind=kind, what=what, principal=who, address=place, id=own, **more)

    def flush(self) -> None:
        """Write waiting lines, if possible."""
        self._writer.flush()

    def close(self) -> None:
        self._finalizer()


class _Writer:
    """A thread that writes entries. Adding one only appends to a list."""

    def __init__(self, table: AuditTable, settings: AuditSettings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.hasher = AuditHasher(None)
        self.problem: str | None = None
        self.lost = 0
        self._noted_lost = 0  # lost lines that a gap line has counted
        self._table = table
        self._clock = clock
        self._waiting: deque[AuditEntry] = deque()
        self._writing, self._counting = Lock(), Lock()
        self._writing_thread: int | None = None
        self._thread: Thread | None = None
        self._wake, self._closed = Event(), Event()
        self._next_sweep = 0.0
        with suppress(DatabaseError):
            self._load_key()

    def add(self, entry: AuditEntry) -> None:
        if len(self._waiting) >= MAX_WAITING:
            with self._counting:
                self.lost += 1
            return
        self._waiting.append(entry)
        if not self._wake.is_set():
            self._wake.set()
            if self._thread is None:
                self._start()

    def write(self, entry: AuditEntry) -> None:
        """Write an entry at once, after those that wait. It is dropped if that fails. Raises DatabaseError."""
        with self._alone():
            self._flush(entry)

    def flush(self) -> None:
        with self._alone(), suppress(DatabaseError):
            self._flush()

    def close(self) -> None:
        """Write waiting entries, and end the thread. The garbage collector may call this, even in that thread."""
        self._closed.set()
        self._wake.set()
        if self._writing_thread != get_ident() and self._writing.acquire(timeout=LAST_WAIT_S):
            try:
                with suppress(DatabaseError):
                    self._flush()
            finally:
                self._writing.release()
        if self._waiting:
            log.error("lines of the audit log that are lost: %d (%s)", len(self._waiting), self.problem)

    @contextmanager
    def _alone(self) -> Generator[None]:
        with self._writing:
            self._writing_thread = get_ident()
            try:
                yield
            finally:
                self._writing_thread = None

    def _flush(self, last: AuditEntry | None = None) -> None:
        """Write waiting entries, then the last one. Raises DatabaseError, and keeps the waiting ones then."""
        if not self.hasher.has_key:
            self._load_key()
        entries = [self._waiting.popleft() for _ in range(len(self._waiting))]  # others append meanwhile
        waited, written = len(entries), 0
        if last is not None:
            entries.append(last)
        try:
            while written < len(entries):
                self._append(entries[written : written + MAX_APPENDED])
                written += MAX_APPENDED
        except DatabaseError:
            self._waiting.extendleft(reversed(entries[written:waited]))
            raise
        if (count := self.lost - self._noted_lost) > 0:
            with suppress(DatabaseError):
                self._append([self._gap(count, "lost")])
                self._noted_lost += count

    def _append(self, entries: list[AuditEntry]) -> None:
        try:
            self._table.append(entries)
        except DatabaseError as error:
            self._set_problem(str(error))
            raise
        if self.problem is not None:
            self._set_problem(None)
            with suppress(DatabaseError):
                self._load_key()  # a new database, in place of a damaged one, has another key

    def _set_problem(self, problem: str | None) -> None:
        before, self.problem = self.problem, problem
        if problem is not None and before is None:
            required = self.settings.mode == "required"
            then = "nothing is called until it can" if required else f"up to {MAX_WAITING:,} lines wait, more are lost"
            log.error("the audit log can't be written: %s; %s", problem, then)
        elif problem is None and before is not None:
            log.warning("the audit log is written again; lines lost: %d", self.lost)

    def _gap(self, count: int, outcome: str, why: str = "") -> AuditEntry:
        what = f"{count} {'line' if count == 1 else 'lines'} {outcome}{why}"
        return AuditEntry(at=self._clock(), kind="gap", what=what, principal=LOCAL, outcome=outcome)

    def _sweep(self) -> None:
        """Remove lines beyond the limits, now and then."""
        if self._clock() < self._next_sweep:
            return
        self._next_sweep = self._clock() + SWEEP_S
        try:
            if removed := self._table.sweep(self.settings.retention_days, self.settings.max_mb):
                self.add(self._gap(removed, "removed", f": the log is limited to {self.settings.max_mb} MB"))
        except DatabaseError as error:
            log.warning("old lines of the audit log can't be removed: %s", error)

    def _load_key(self) -> None:
        try:
            self.hasher = AuditHasher(self._table.made_key())
        except DatabaseError as error:
            self._set_problem(str(error))
            raise

    def _start(self) -> None:
        with self._counting:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="onetool-audit", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # the process is about to end: `close` writes it
                    self._thread = None

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.wait()
            self._closed.wait(RETRY_S if self.problem else GATHER_S)
            self._wake.clear()
            self.flush()
            if self._waiting:
                self._wake.set()
            elif not self._closed.is_set():
                self._sweep()


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
