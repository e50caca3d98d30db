"""`Takeover`: moves the audit log and the stats of earlier versions into the journal, newest first.

Earlier versions had a table of lines as JSON, and five tables of figures. A server moves their rows in the background,
in small batches; a reader moves the rest before it reads, for a few seconds at most. Each batch is one transaction, so
that no row is lost or counted twice.
"""

import logging
from contextlib import suppress
from time import monotonic
from typing import Any

import msgspec

from onetool.database import Database, DatabaseError, LockNumber, Transaction
from onetool.services.journal.row import COLUMNS, JournalRow

log = logging.getLogger("onetool.journal")

BATCH, LARGE_BATCH = 50, 2_000  # rows of each table, in the background and before a read
BETWEEN_S = 0.02  # two batches in the background
MAX_READ_S = 10.0  # before a read; the rest follows
_CODE = "CASE WHEN ok = 1 THEN 'ok' ELSE coalesce(code, 'execution_error') END"
_MOVED = {  # the columns of a row of the journal, and where they come from
    "stats_calls": (
        "at, kind, tool, source, via, client, owner, outcome, reason, ms, bytes_in, bytes_out, run",
        f"at, 'call', tool, source, door, client, caller, {_CODE}, reason, duration_ms, bytes_in, bytes_out, run",
    ),
    "stats_runs": (
        "at, kind, id, via, client, owner, outcome, ms, bytes_in",
        f"at, 'run', id, door, client, caller, {_CODE}, duration_ms, bytes_in",
    ),
    "stats_replies": ("at, kind, run, bytes_out", "at, 'reply', run, bytes_out"),
    "stats_menus": (
        "at, kind, client, via, bytes_in, bytes_out, owner",
        "at, 'menu', client, door, full_bytes, sent_bytes, caller",
    ),
    "stats_gaps": ("at, kind, client, ms, owner", "at, 'wait', client, duration_ms, caller"),
}
_TABLES = ("audit", *_MOVED)


class Takeover:
    """The move of the old rows of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._left: list[str] | None = None  # tables with rows; None before the first look

    def finish(self, max_seconds: float = MAX_READ_S) -> None:
        """Move all rows, or as many as fit into this time. A database that can't be changed stays as it is."""
        until = monotonic() + max_seconds
        with suppress(DatabaseError):
            while self.step(LARGE_BATCH) is not None and monotonic() < until:
                pass

    def step(self, limit: int = BATCH) -> float | None:
        """Move a batch, and return the seconds until the next one; None if nothing is left. Raises DatabaseError."""
        if self._left is None:
            has_rows = ", ".join(f"EXISTS (SELECT 1 FROM {table})" for table in _TABLES)  # noqa: S608 - ours
            [found] = self._database.read(lambda work: work.execute(f"SELECT {has_rows}"))
            self._left = [table for table, has in zip(_TABLES, found, strict=True) if has]
        for table in tuple(self._left):
            if not self._database.write(lambda work, table=table: _move(work, table, limit), max_wait=2.0):
                self._left.remove(table)
        return BETWEEN_S if self._left else None


def _move(work: Transaction, table: str, limit: int) -> bool:
    """Move the newest rows of a table. Return whether there may be more."""
    work.lock(LockNumber.JOURNAL_APPEND)
    if table == "audit":
        return _move_lines(work, limit)
    found = work.execute(f"SELECT at FROM {table} ORDER BY at DESC LIMIT %s", (limit,))  # noqa: S608 - names of ours
    if found:
        columns, values = _MOVED[table]
        oldest = found[-1]
        work.execute(f"INSERT INTO events ({columns}) SELECT {values} FROM {table} WHERE at >= %s", oldest)  # noqa: S608
        work.execute(f"DELETE FROM {table} WHERE at >= %s", oldest)  # noqa: S608 - names of ours
    return len(found) == limit


def _move_lines(work: Transaction, limit: int) -> bool:
    """Move lines of the audit log. They get lower numbers than all rows of the journal, in the same order."""
    found = work.execute("SELECT number, at, line FROM audit ORDER BY at DESC, number DESC LIMIT %s", (limit,))
    if not found:
        return False
    [(first,)] = work.execute("SELECT coalesce(min(number), 1) FROM events")
    rows: list[tuple[Any, ...]] = []
    for _, at, line in found:
        try:
            rows.append((first - 1 - len(rows), *_row(at, _decode(line))))
        except (msgspec.MsgspecError, RecursionError, TypeError):
            log.warning("a damaged line of the audit log was left out")
    work.insert("events", f"number, {COLUMNS}", rows)
    marks = ", ".join(["%s"] * len(found))
    work.execute(f"DELETE FROM audit WHERE number IN ({marks})", [number for number, _, _ in found])  # noqa: S608
    return len(found) == limit


class _Line(msgspec.Struct):
    """A line of the audit log of earlier versions."""

    kind: str
    what: str
    outcome: str
    reason: str = ""
    status: int | None = None
    who: str = ""
    owner: str | None = None
    role: str = ""
    address: str = msgspec.field(default="", name="from")
    via: str = ""
    client: str = ""
    ms: float | None = None
    hosts: tuple[str, ...] = ()
    args: str = ""
    id: str = ""
    run: str | None = None
    made: str = ""
    request: str = ""
    own: str = ""
    trace: str = ""


_decode = msgspec.json.Decoder(_Line).decode


def _row(at: float, line: _Line) -> JournalRow:
    kept = msgspec.structs.asdict(line)
    kept |= {"at": at, "owner": line.owner or "", "reason": line.reason or None, "hosts": " ".join(line.hosts) or None}
    return JournalRow(**kept)
