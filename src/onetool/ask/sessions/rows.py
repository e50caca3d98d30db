"""Rows of sessions: one for each session, and one for each record. `SessionWriter` adds the records of a turn.

The row of a session has a summary for lists, the time of the last use by the database's clock, and the lease: the turn
that holds the session, and its end.
"""

from collections.abc import Callable
from io import BytesIO
from threading import Condition, Thread
from time import monotonic
from typing import NamedTuple

import msgspec

from onetool.ask.errors import Reason, SessionError
from onetool.ask.sessions.records import (
    ENDED_PREFIX,
    TITLED_PREFIX,
    USER_PREFIX,
    SessionHeader,
    SessionInfo,
    Titled,
    TurnEnded,
    read_record,
)
from onetool.database import ChangeUnknownError, Database, DatabaseAwayError, DatabaseError, Row, Transaction

LEASE_S = 15.0
RENEW_S = 4.0
RETRY_S = 0.2
MADE_HINT = "calls of this turn may have changed something: check that before you repeat them"
MAX_AWAY_S = 10.0  # how long records wait while the database can't be reached
MAX_BYTES = 32 * 1024 * 1024  # of a session

ended_holders = set[str]()  # ended turns of this process whose leases could not be released

SUMMARY = "size, lines, first, ended, titled, questions"
WHERE = "owner = %s AND id = %s"


class SessionKey(NamedTuple):
    owner: str  # a hash; empty for callers without a name
    id: str


class SessionSummary(msgspec.Struct, frozen=True):
    size: int = 0
    lines: int = 0
    first: bytes = b""
    ended: bytes = b""
    titled: bytes = b""
    questions: int = 0

    @classmethod
    def of(cls, row: Row) -> "SessionSummary":
        size, lines, first, ended, titled, questions = row
        return cls(size, lines, bytes(first), bytes(ended), bytes(titled), questions)

    def after(self, lines: list[bytes]) -> "SessionSummary":
        """Return the summary after these lines are added."""
        ended, titled, questions = self.ended, self.titled, self.questions
        for line in lines:
            if line.startswith(ENDED_PREFIX) and isinstance(read_record(line), TurnEnded):
                ended, titled, questions = line, b"", 0
            elif line.startswith(TITLED_PREFIX) and isinstance(read_record(line), Titled):
                titled = line
            elif line.startswith(USER_PREFIX):
                questions += 1
        size, count = self.size + sum(map(len, lines)), self.lines + len(lines)
        return SessionSummary(size, count, self.first or b"".join(lines[:1]), ended, titled, questions)

    def info(self, id: str, modified: float) -> SessionInfo:
        header, ended, titled = map(read_record, (self.first, self.ended, self.titled))
        header = header if isinstance(header, SessionHeader) else SessionHeader()
        ended = ended if isinstance(ended, TurnEnded) else TurnEnded()
        return SessionInfo(
            id=id,
            created=header.created or modified,
            modified=modified,
            turns=ended.turns + self.questions,
            title=titled.title if isinstance(titled, Titled) else ended.title or header.title,
            provider=ended.provider,
            model=ended.model,
            usage=ended.total,
            size=self.size,
            answered=ended.steps > 0 and self.questions == 0,
        )


def read_records(work: Transaction, key: SessionKey, size: int) -> bytes:
    """Return all lines of a session. Raises SessionError if it is too large."""
    if size > MAX_BYTES:
        why = f"it has {size:,} bytes, more than {MAX_BYTES:,}; start another with --new-session"
        raise SessionError(f"the session {key.id} can't be used: {why}", "session")
    rows = work.execute(f"SELECT body FROM ask_records WHERE {WHERE} ORDER BY number", key)  # noqa: S608 - ours
    return b"".join(bytes(body) for (body,) in rows)


def add_records(work: Transaction, key: SessionKey, before: SessionSummary, lines: list[bytes]) -> SessionSummary:
    """Add lines at the end. Lines whose numbers exist already are skipped."""
    after = before.after(lines)
    sql = f"UPDATE ask_sessions SET ({SUMMARY}) = (%s, %s, %s, %s, %s, %s) WHERE {WHERE}"  # noqa: S608 - ours
    work.execute(sql, (*msgspec.structs.astuple(after), *key))
    insert = "INSERT INTO ask_records (owner, id, number, body) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
    work.execute_many(insert, [(*key, number, line) for number, line in enumerate(lines, before.lines)])
    return after


def session_error(what: str, error: DatabaseError) -> SessionError:
    reason: Reason = "session"
    if isinstance(error, DatabaseAwayError | ChangeUnknownError):
        reason = "database_away" if isinstance(error, DatabaseAwayError) else "change_unknown"
    return SessionError(f"{what}: {error}", reason)


class SessionWriter:
    """A thread that writes the records of one turn, so that the event loop never waits for the database.

    The thread also renews the lease. A turn whose lease expires loses the session, and each write checks that the turn
    still holds it. Records are numbered, so a write with an unknown outcome can be repeated safely. Ended turns survive
    a power failure.
    """

    def __init__(self, database: Database, key: SessionKey, holder: str, summary: SessionSummary) -> None:
        self._database = database
        self._key = key
        self._holder = holder
        self._summary = summary
        self._cannot_write = f"the session {key.id} can't be written"
        self._changed = Condition()
        self._waiting: list[bytes] = []
        self._failure: SessionError | None = None
        self._is_closed = False
        self._thread = Thread(target=self._run, name="onetool-session", daemon=True)
        self._thread.start()

    def append(self, lines: bytes) -> None:
        """Add whole lines without waiting for the database. Raises SessionError if earlier lines were not written."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if self._is_closed:
                raise SessionError(f"{self._cannot_write}: its turn has ended", "session")
            self._waiting += BytesIO(lines)
            self._changed.notify_all()

    @property
    def has_unwritten(self) -> bool:
        return bool(self._waiting)

    def flush(self) -> None:
        """Wait until all lines are written. Raises SessionError."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not self._waiting)
            if self._failure is not None:
                raise self._failure

    def close(self) -> None:
        """Release the session soon: the thread writes waiting lines, then ends the lease. Doesn't block."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def finish(self) -> None:
        """Release the session before this returns."""
        self.close()
        self._thread.join(2 * MAX_AWAY_S)

    # The thread

    def _run(self) -> None:
        away_since: float | None = None
        while self._failure is None:
            with self._changed:
                has_news = self._changed.wait_for(lambda: self._waiting or self._is_closed, RENEW_S)
                lines, is_over = list(self._waiting), self._is_closed and not self._waiting
            if is_over:
                break
            try:
                summary = self._database.write(
                    self._job(lines), durable=any(line.startswith(ENDED_PREFIX) for line in lines)
                )
            except (DatabaseAwayError, ChangeUnknownError) as error:
                away_since = monotonic() if away_since is None else away_since
                if has_news and monotonic() > away_since + MAX_AWAY_S:
                    self._fail(SessionError(f"{self._cannot_write}: {error.what}", "not_stored", [MADE_HINT]), error)
                with self._changed:
                    self._changed.wait(RETRY_S)
            except DatabaseError as error:
                self._fail(session_error(self._cannot_write, error), error)
            except SessionError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - else `flush` would wait forever
                self._fail(SessionError(f"{self._cannot_write}: {type(error).__name__}: {error}", "session"), error)
            else:
                away_since = None
                with self._changed:
                    self._summary = summary
                    del self._waiting[: len(lines)]
                    self._changed.notify_all()
        self._end_lease()

    def _job(self, lines: list[bytes]) -> Callable[[Transaction], SessionSummary]:
        """Return the transaction that renews the lease and adds these lines."""
        clock = self._database.clock
        modified = f", modified = {clock}" if lines else ""
        renew = f"UPDATE ask_sessions SET until = {clock} + %s{modified} WHERE {WHERE} AND holder = %s"  # noqa: S608

        def job(work: Transaction) -> SessionSummary:
            work.execute(renew, (LEASE_S, *self._key, self._holder))
            if not work.row_count:
                why = "another turn has taken it, or it was deleted"
                raise SessionError(f"{self._cannot_write}: {why}", "session")
            return add_records(work, self._key, self._summary, lines) if lines else self._summary

        return job

    def _fail(self, failure: SessionError, cause: Exception | None = None) -> None:
        failure.__cause__ = cause
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    def _end_lease(self) -> None:
        """Release the session. If that can't be written, other processes wait until the lease expires."""

        def job(work: Transaction) -> None:
            free = f"UPDATE ask_sessions SET holder = NULL, until = NULL WHERE {WHERE} AND holder = %s"  # noqa: S608
            work.execute(free, (*self._key, self._holder))
            work.execute(f"DELETE FROM ask_sessions WHERE {WHERE} AND size = 0 AND holder IS NULL", self._key)  # noqa: S608

        try:
            self._database.write(job)
        except Exception:  # noqa: BLE001 - the lease just expires
            ended_holders.add(self._holder)
