"""SessionRows: what a turn writes into the database, and the lease that lets it alone do so.

A thread of the turn writes what was said, so that the event loop never waits for the database, and renews the lease by
the database's clock. Whoever ends without a word, or is cut off for long, loses the session that way; and each write
checks that it still has the lease. Records have numbers, so that a write whose end is unknown is repeated safely.
"""

from io import BytesIO
from os import urandom
from threading import Condition, Thread
from time import monotonic
from typing import NamedTuple

import msgspec

from onetool.ask.errors import Reason, SessionError
from onetool.ask.sessions import files
from onetool.ask.sessions.files import run_in_thread
from onetool.ask.sessions.infos import ENDED_PREFIX, TITLED_PREFIX, USER_PREFIX, SessionEnding, read_ending
from onetool.database import ChangeUnknownError, Database, DatabaseAwayError, DatabaseError, Transaction

LEASE_S = 15.0
RENEW_S = 4.0
RETRY_S = 0.2
PATIENCE_S = 10.0  # that what was said waits for a database that is away
PROCESS = urandom(8).hex()  # tells turns of this process from others


class SessionKey(NamedTuple):
    owner: str  # a hash; empty: who has no name
    id: str


class SessionSummary(msgspec.Struct, frozen=True):
    """What the row of a session says of its records."""

    size: int = 0
    lines: int = 0
    first: bytes = b""
    ended: bytes = b""
    titled: bytes = b""
    questions: int = 0

    def after(self, lines: list[bytes]) -> "SessionSummary":
        """With these lines at its end."""
        ended, titled, questions = self.ended, self.titled, self.questions
        for line in lines:
            if line.startswith(ENDED_PREFIX) and read_ending([line]).is_found:
                ended, titled, questions = line, b"", 0
            elif line.startswith(TITLED_PREFIX) and read_ending([line]).title is not None:
                titled = line
            elif line.startswith(USER_PREFIX):
                questions += 1
        size, count = self.size + sum(map(len, lines)), self.lines + len(lines)
        return SessionSummary(size, count, self.first or b"".join(lines[:1]), ended, titled, questions)

    @property
    def ending(self) -> SessionEnding:
        return read_ending([*[USER_PREFIX] * self.questions, *filter(None, [self.titled, self.ended])])


SUMMARY = "size, lines, first, ended, titled, questions"
WHERE = "owner = %s AND id = %s"


def read_summary(row: tuple[int, int, bytes, bytes, bytes, int]) -> SessionSummary:
    size, lines, first, ended, titled, questions = row
    return SessionSummary(size, lines, bytes(first), bytes(ended), bytes(titled), questions)


def read_records(work: Transaction, key: SessionKey, size: int) -> bytes:
    """All lines of a session. Raises SessionError if they are too much."""
    if size > files.LARGEST:
        why = f"it has {size:,} bytes, and {files.LARGEST:,} is the most; begin another, --new-session"
        raise SessionError(f"the session {key.id} can't be used: {why}", "session")
    rows = work.execute(f"SELECT body FROM ask_records WHERE {WHERE} ORDER BY number", key)  # noqa: S608 - ours
    return b"".join(bytes(body) for (body,) in rows)


def add_records(work: Transaction, key: SessionKey, before: SessionSummary, lines: list[bytes]) -> SessionSummary:
    """Add lines behind those that are there; the same ones twice are there once."""
    after = before.after(lines)
    sql = f"UPDATE ask_sessions SET ({SUMMARY}) = (%s, %s, %s, %s, %s, %s) WHERE {WHERE}"  # noqa: S608 - ours
    work.execute(sql, (*msgspec.structs.astuple(after), *key))
    insert = "INSERT INTO ask_records (owner, id, number, body) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
    work.execute_many(insert, [(*key, number, line) for number, line in enumerate(lines, before.lines)])
    return after


def database_error(error: DatabaseError) -> SessionError:
    """In words for whoever asks."""
    reason: Reason = "session"
    if isinstance(error, DatabaseAwayError | ChangeUnknownError):
        reason = "database_away" if isinstance(error, DatabaseAwayError) else "change_unknown"
    return SessionError(f"sessions can't be used: {error}", reason)


class SessionRows:
    """A session that a turn has. `data` is what was said before."""

    def __init__(self, database: Database, key: SessionKey, holder: str, summary: SessionSummary, data: bytes) -> None:
        self._database = database
        self._key = key
        self._holder = holder
        self._summary = summary
        self._data = data
        self._changed = Condition()
        self._waiting: list[bytes] = []
        self._failure: SessionError | None = None
        self._is_closed = False
        self._thread = Thread(target=self._run, name="onetool-session", daemon=True)
        self._thread.start()

    def read(self) -> bytes:
        data, self._data = self._data, b""
        return data

    def append(self, lines: bytes) -> None:
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if self._is_closed:
                raise SessionError(f"the session {self._key.id} can't be written: its turn has ended", "session")
            self._waiting += BytesIO(lines)
            self._changed.notify_all()

    def flush(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not self._waiting)
            if self._failure is not None:
                raise self._failure

    async def settle(self) -> None:
        if self._waiting:
            await run_in_thread(self.flush)

    def make_safe(self, *, is_new: bool) -> None:
        """The database keeps what it has confirmed."""

    def give_back(self) -> None:
        self.close()
        self._thread.join(2 * PATIENCE_S)

    def close(self) -> None:
        """The thread writes what waits, and gives the lease back."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    # The thread

    def _run(self) -> None:
        since: float | None = None  # when the database could not be reached first
        while self._failure is None:
            with self._changed:
                has_news = self._changed.wait_for(lambda: self._waiting or self._is_closed, RENEW_S)
                lines, is_over = list(self._waiting), self._is_closed and not self._waiting
            if is_over:
                break
            try:
                summary = self._database.write(lambda work: self._write(work, lines))  # noqa: B023 - run at once
            except (DatabaseAwayError, ChangeUnknownError) as error:
                since = monotonic() if since is None else since
                if has_news and monotonic() > since + PATIENCE_S:
                    self._fail(database_error(error), error)
                self._pause()
            except DatabaseError as error:
                self._fail(database_error(error), error)
            except SessionError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - else `flush` would wait for ever
                why = f"the session {self._key.id} can't be written: {type(error).__name__}: {error}"
                self._fail(SessionError(why, "session"), error)
            else:
                since = None
                self._written(lines, summary)
        self._release()

    def _write(self, work: Transaction, lines: list[bytes]) -> SessionSummary:
        clock = self._database.clock
        modified = f", modified = {clock}" if lines else ""
        renew = f"UPDATE ask_sessions SET until = {clock} + %s{modified} WHERE {WHERE} AND holder = %s"  # noqa: S608
        work.execute(renew, (LEASE_S, *self._key, self._holder))
        if not work.row_count:
            message = f"the session {self._key.id} can't be written: another turn has taken it meanwhile, or deleted it"
            raise SessionError(message, "session")
        return add_records(work, self._key, self._summary, lines) if lines else self._summary

    def _written(self, lines: list[bytes], summary: SessionSummary) -> None:
        with self._changed:
            self._summary = summary
            del self._waiting[: len(lines)]
            self._changed.notify_all()

    def _fail(self, failure: SessionError, cause: Exception | None = None) -> None:
        failure.__cause__ = cause
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait(RETRY_S)

    def _release(self) -> None:
        """Where that can't be told, the lease ends by itself."""

        def job(work: Transaction) -> None:
            free = f"UPDATE ask_sessions SET holder = NULL, until = NULL WHERE {WHERE} AND holder = %s"  # noqa: S608
            work.execute(free, (*self._key, self._holder))
            work.execute(f"DELETE FROM ask_sessions WHERE {WHERE} AND size = 0 AND holder IS NULL", self._key)  # noqa: S608

        try:
            self._database.write(job)
        except Exception:  # noqa: BLE001 - whatever it is
            return
