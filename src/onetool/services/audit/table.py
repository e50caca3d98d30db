"""AuditTable: the audit log in PostgreSQL, where all replicas append to one table, and each of them reads it.

Who appends holds a lock until the end of the transaction, as with files. So numbers become visible in their order, and
whoever follows the log misses none. Pages are in the order of times. A position between two pages is a time and a
number; one of who follows is a number alone. What goes wrong is an OSError, as it is with files.
"""

import errno
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

import msgspec

from onetool.core.text import read_time
from onetool.database import ChangeUnknownError, Database, DatabaseAwayError, DatabaseError, LockNumber, Transaction
from onetool.services.audit.record import (
    MOST_SCANNED,
    AuditFilter,
    AuditHasher,
    AuditPage,
    AuditPosition,
    AuditRecord,
    AuditSettings,
    read_line,
)

PLACE = "the table audit of the database"
PATIENCE_S = 2.0  # for another replica that appends; it may have been stopped
APPENDED_AT_ONCE = 1_000  # lines of one transaction
READ_AT_ONCE, FEWEST_AT_ONCE = 1_000, 100
SWEPT_AT_ONCE = 10_000
LAST = 2**63 - 1  # number
DAY = 86_400.0


class AuditTable:
    """An AuditReader."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def describe(self) -> str:
        return PLACE

    def hash_of(self, args: Any) -> str | None:
        return AuditHasher(database_key(self._database)).of(args)

    def page(
        self, wanted: AuditFilter, most: int, before: AuditPosition | None = None, most_scanned: int = MOST_SCANNED
    ) -> AuditPage:
        found, skipped, scanned, fits = list[AuditRecord](), 0, 0, wanted.test()
        for at, number, line in self._backwards(wanted, before, min(max(most, FEWEST_AT_ONCE), READ_AT_ONCE)):
            record = read_line(line)
            scanned += len(line) + 1
            if record is None:
                skipped += 1
            elif fits(record):
                found.append(record)
            if len(found) >= most or scanned >= most_scanned:
                return AuditPage(found, AuditPosition(repr(at), number), skipped)
        return AuditPage(found, None, skipped)

    def end(self) -> AuditPosition | None:
        [(last,)] = self._read("SELECT max(number) FROM audit")
        return None if last is None else AuditPosition("", last + 1)

    def start(self, since: float | None) -> AuditPosition | None:
        if since is None:
            return None
        # Without the offset PostgreSQL would look for the first number first, and go through all that is older.
        sql = "SELECT min(number) FROM (SELECT number FROM audit WHERE at >= %s OFFSET 0) AS wanted"
        [(first,)] = self._read(sql, (since - 1,))
        return self.end() if first is None else AuditPosition("", first)

    def read_on(self, after: AuditPosition | None) -> Iterator[tuple[AuditRecord | None, AuditPosition]]:
        for line, behind in self.lines(after):
            yield read_line(line), behind

    def lines(self, after: AuditPosition | None = None) -> Iterator[tuple[str, AuditPosition]]:
        """The same, as they are in the table."""
        if after is None:
            [(first,)] = self._read("SELECT min(number) FROM audit")
            after = AuditPosition("", 0 if first is None else first)
        sql = f"SELECT number, line FROM audit WHERE number >= %s ORDER BY number LIMIT {READ_AT_ONCE}"  # noqa: S608
        while rows := self._read(sql, (after.offset,)):
            for number, line in rows:
                after = AuditPosition("", number + 1)
                yield line, after

    def _backwards(
        self, wanted: AuditFilter, before: AuditPosition | None, at_once: int
    ) -> Iterator[tuple[float, int, str]]:
        """By what lines say of their time, the newest first: some replica may have written its lines late.

        Times are those wanted and a second more: the filter is exact.
        """
        since = -math.inf if wanted.since is None else wanted.since - 1
        until = math.inf if wanted.until is None else wanted.until + 1
        end = LAST if before is None or before.name else before.offset  # where the log ended, for who goes on there
        last = (until, LAST) if before is None or not before.name else (float(before.name), before.offset)
        last = min(last, (until, LAST))
        sql = (
            "SELECT at, number, line FROM audit WHERE (at, number) < (%s, %s) AND at >= %s AND number < %s "  # noqa: S608
            f"ORDER BY at DESC, number DESC LIMIT {at_once}"
        )
        while rows := self._read(sql, (*last, since, end)):
            yield from rows
            last = rows[-1][:2]

    def _read(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with told():
            return self._database.read(lambda work: work.execute(sql, params))


class AuditTableWriter:
    """An AuditStorage."""

    def __init__(self, database: Database, settings: AuditSettings) -> None:
        self.settings = settings
        self._database = database
        self._unconfirmed: tuple[int, Sequence[bytes]] | None = None  # the number of its first line, and all of them

    def describe(self) -> str:
        return PLACE

    def append(self, lines: Sequence[bytes]) -> tuple[int, OSError | None]:
        written = 0
        try:
            with told():
                written = self._confirmed(lines)
                while written < len(lines):
                    some = lines[written : written + APPENDED_AT_ONCE]
                    self._append(some)
                    written += len(some)
        except OSError as error:
            return written, error
        return written, None

    def key(self) -> bytes:
        return database_key(self._database)

    def sweep(self) -> None:
        """Remove the lines that are too old, as one replica at a time."""
        old = f"SELECT number FROM audit WHERE written_at < {self._database.clock} - %s ORDER BY written_at LIMIT %s"  # noqa: S608
        params = (self.settings.retention_days * DAY, SWEPT_AT_ONCE)

        def job(work: Transaction) -> bool:
            if not work.execute("SELECT pg_try_advisory_xact_lock(%s)", (LockNumber.AUDIT_SWEEP,))[0][0]:
                return False
            work.execute(f"DELETE FROM audit WHERE number IN ({old})", params)  # noqa: S608 - ours
            return work.row_count == SWEPT_AT_ONCE

        with told():
            while self._database.write(job):
                pass

    def _append(self, lines: Sequence[bytes]) -> None:
        """All of them or none. Of those that nobody confirms, the first one's number is kept."""
        first = list[int]()

        def job(work: Transaction) -> None:
            take_lock(work)
            first[:] = [insert(work, lines, self._database.clock)]

        try:
            self._database.write(job)
        except ChangeUnknownError:
            self._unconfirmed = first[0], lines
            raise

    def _confirmed(self, lines: Sequence[bytes]) -> int:
        """How many of these are there, because they were appended when the connection was lost."""
        if self._unconfirmed is None or not lines:
            return 0
        number, sent = self._unconfirmed
        sql = "SELECT line FROM audit WHERE number = %s"
        found = self._database.read(lambda work: work.execute(sql, (number,)))
        self._unconfirmed = None
        if found != [(_text(sent[0]),)]:
            return 0
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(lines, sent, strict=False)))


def take_lock(work: Transaction) -> None:
    """Of those who append, until the end of the transaction."""
    sql = "SELECT set_config('lock_timeout', %s, true), pg_advisory_xact_lock(%s)"
    work.execute(sql, (f"{PATIENCE_S}s", LockNumber.AUDIT_APPEND))


def insert(work: Transaction, lines: Sequence[bytes], clock: str) -> int:
    """Append lines, in this order; gives the number of the first."""
    sql = (
        f"INSERT INTO audit (at, written_at, line) SELECT sent.at, {clock}, sent.line "  # noqa: S608 - ours
        "FROM unnest(%s::float8[], %s::text[]) WITH ORDINALITY AS sent (at, line, place) "
        "ORDER BY sent.place RETURNING number"
    )
    rows = work.execute(sql, (list(map(time_of, lines)), list(map(_text, lines))))
    return min(number for (number,) in rows)


def time_of(line: bytes) -> float:
    """What the line says, in seconds since 1970."""
    return read_time(_decode_time(line).time) or 0.0


def database_key(database: Database) -> bytes:
    """The key of the hashes. The tables are made with it. Raises OSError."""
    with told():
        rows = database.read(lambda work: work.execute("SELECT key FROM audit_key"))
    if not rows:
        raise OSError(errno.ENOENT, "the table audit_key of the database has no key")
    return bytes(rows[0][0])


@contextmanager
def told() -> Iterator[None]:
    """As an OSError, in words that name no address: callers read them."""
    try:
        yield
    except DatabaseAwayError as error:
        raise OSError(errno.EIO, "the database can't be reached") from error
    except ChangeUnknownError as error:
        raise OSError(errno.EIO, "the connection to the database was lost while it was written") from error
    except DatabaseError as error:
        raise OSError(errno.EIO, str(error)) from error


class _Timed(msgspec.Struct):
    time: str


_decode_time = msgspec.json.Decoder(_Timed).decode


def _text(line: bytes) -> str:
    return line.decode().rstrip("\n")
