"""`AuditTable`: the audit log in the database, which all processes and replicas append to and read.

Transactions append one at a time, so numbers become visible in order and readers that follow the log miss no lines.
Pages are ordered by time, since a process may write its lines late. Reading doesn't create a missing database: the log
is then empty. All methods block, and raise DatabaseError.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any

from onetool.core.limits import DAY
from onetool.database import ChangeUnknownError, Database, DatabaseError, LockNumber, Transaction
from onetool.database.connection import Row
from onetool.services.audit.record import (
    AuditEntry,
    AuditFilter,
    AuditHasher,
    AuditPage,
    AuditPosition,
    AuditRecord,
    read_line,
)

MAX_WAIT_S = 2.0  # for another process that writes
MAX_APPENDED = 500  # lines per transaction
MAX_READ, MIN_READ = 1_000, 100  # lines per query
MAX_SWEPT = 1_000  # lines per transaction
MAX_SWEEP_S = 60  # for the query of a sweep
MAX_SCANNED = 32 * 1024**2  # characters read for one page, however few lines match
LAST = 2**63 - 1  # number


class AuditTable:
    """The table `audit` of a database. Only one thread at a time may append."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._unconfirmed: tuple[int, Sequence[AuditEntry]] | None = None  # number before the first; entries

    def describe(self) -> str:
        return f"the table audit of {self.database.describe()}"

    # Reading

    def page(
        self,
        wanted: AuditFilter,
        limit: int,
        before: AuditPosition | None = None,
        *,
        end: int = LAST,
        max_scanned: int = MAX_SCANNED,
    ) -> AuditPage:
        """Return at most `limit` lines with numbers below `end`, newest first.

        A page may be short or empty without being the last.
        """
        found, skipped, scanned, fits = list[AuditRecord](), 0, 0, wanted.test()
        for at, number, line in self._backwards(wanted, before, end, min(max(limit, MIN_READ), MAX_READ)):
            record = read_line(line)
            scanned += len(line) + 1
            if record is None:
                skipped += 1
            elif fits(record):
                found.append(record)
            if len(found) >= limit or scanned >= max_scanned:
                return AuditPage(found, AuditPosition(at, number), skipped)
        return AuditPage(found, None, skipped)

    def end(self) -> int:
        """Return the number after the last line."""
        [(last,)] = self._read("SELECT max(number) FROM audit")
        return (last or 0) + 1

    def start(self, since: float | None = None) -> int:
        """Return the lowest number of the lines since that time. Imported lines have negative numbers."""
        if since is None:
            [(first,)] = self._read("SELECT min(number) FROM audit")
        else:
            # With `+ 0`, both databases use the index of times, and don't scan all older numbers.
            [(first,)] = self._read("SELECT min(number + 0) FROM audit WHERE at >= %s", (since - 1,))
        return self.end() if first is None else first

    def read_on(self, start: int) -> Iterator[tuple[int, AuditRecord | None]]:
        """Yield the number and record of each line from `start` on, oldest first; None for an unreadable line."""
        sql = f"SELECT number, line FROM audit WHERE number >= %s ORDER BY number LIMIT {MAX_READ}"  # noqa: S608 - ours
        while rows := self._read(sql, (start,)):
            for number, line in rows:
                yield number, read_line(line)
            start = rows[-1][0] + 1

    def key(self) -> bytes:
        """Return the key of the hashes. Each log has its own."""
        return self.database.read(_read_key)

    def hash_of(self, args: Any) -> str:
        return AuditHasher(self.key()).of(args)

    def _backwards(
        self, wanted: AuditFilter, before: AuditPosition | None, end: int, at_once: int
    ) -> Iterator[tuple[float, int, str]]:
        """Yield the lines in the filter's time range, extended by a second on both sides."""
        since = -math.inf if wanted.since is None else wanted.since - 1
        last = (math.inf if wanted.until is None else wanted.until + 1, LAST)
        if before is not None:
            last = min(last, before)
        sql = (
            "SELECT at, number, line FROM audit WHERE (at, number) < (%s, %s) AND at >= %s AND number < %s "  # noqa: S608
            f"ORDER BY at DESC, number DESC LIMIT {at_once}"
        )
        while rows := self._read(sql, (*last, since, end)):
            for at, number, line in rows:
                yield at, number, line
                last = at, number

    def _read(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        return self.database.read(lambda work: work.execute(sql, params))

    # Writing

    def made_key(self) -> bytes:
        """Return the key. A missing database is created first."""
        return self.database.write(_read_key, max_wait=MAX_WAIT_S)

    def append(self, entries: Sequence[AuditEntry]) -> None:
        """Append all entries or none, in this order; at most MAX_APPENDED.

        After an error, callers may pass the same entries again at the start of the list: none is written twice.
        """
        if self._unconfirmed is not None:  # the connection was lost: were these entries appended?
            number, sent = self._unconfirmed
            rows = self._read("SELECT line FROM audit WHERE number > %s ORDER BY number LIMIT 1", (number,))
            self._unconfirmed = None
            if rows == [(sent[0].line(),)]:
                pairs = zip(entries, sent, strict=False)
                entries = entries[sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs)) :]
        lines = [(entry.at, entry.line()) for entry in entries]
        before = 0

        def job(work: Transaction) -> None:
            nonlocal before
            work.lock(LockNumber.AUDIT_APPEND, MAX_WAIT_S)
            [(before, now)] = work.execute(f"SELECT coalesce(max(number), 0), {self.database.clock} FROM audit")  # noqa: S608
            work.insert("audit", "at, written_at, line", [(at, now, line) for at, line in lines])

        if lines:
            try:
                self.database.write(job, max_wait=MAX_WAIT_S)
            except ChangeUnknownError:
                self._unconfirmed = before, entries
                raise

    def sweep(self, retention_days: int, max_mb: int) -> int:
        """Remove expired lines, then the oldest lines beyond `max_mb`. Return the number of the latter."""
        too_old = self._remove(f"written_at < {self.database.clock} - %s", retention_days * DAY)
        sizes = "SELECT number, sum(length(line)) OVER (ORDER BY number DESC) AS size FROM audit"
        sql = f"SELECT max(number) FROM ({sizes}) AS sizes WHERE size > %s"  # noqa: S608 - ours

        def find(work: Transaction) -> int | None:
            work.allow(MAX_SWEEP_S)
            return work.execute(sql, (max_mb * 1024**2,))[0][0]

        last = self.database.read(find)
        too_many = 0 if last is None else self._remove("number <= %s", last)
        if too_old or too_many:
            with suppress(DatabaseError):
                self.database.shrink()
        return too_many

    def _remove(self, condition: str, value: float) -> int:
        """Remove lines in small transactions, to let other processes write. Only one replica at a time does this."""
        some = f"SELECT number FROM audit WHERE {condition} LIMIT {MAX_SWEPT}"  # noqa: S608 - ours
        removed = 0

        def job(work: Transaction) -> int:
            if not work.try_lock(LockNumber.AUDIT_SWEEP):
                return 0
            work.execute(f"DELETE FROM audit WHERE number IN ({some})", (value,))  # noqa: S608 - ours
            return work.row_count

        try:
            while count := self.database.write(job, max_wait=MAX_WAIT_S):
                removed += count
        except DatabaseError:
            if not removed:
                raise
        return removed  # also after an error: the removal must be logged


def _read_key(work: Transaction) -> bytes:
    rows = work.execute("SELECT key FROM audit_key")
    if not rows:
        raise DatabaseError("the table audit_key is empty, but must hold the key of the audit log: restore it")
    return bytes(rows[0][0])
