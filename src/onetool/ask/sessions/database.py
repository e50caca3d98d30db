"""DatabaseSessions: sessions in PostgreSQL. One that was begun at one replica goes on at another.

A session is a row, and each record of it another one. When a session was used last is told by the database's clock.

A turn has a lease on its session. A thread of the turn writes what was said, so that the event loop never waits for the
database, and renews the lease by the database's clock. Whoever ends without a word, or is cut off for long, loses the
session that way; and each write checks that it still has the lease. Records have numbers, so that a write whose end is
unknown is repeated safely.
"""

import builtins
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from os import urandom
from threading import Condition, Thread
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import msgspec

from onetool.ask.errors import Reason, SessionError
from onetool.ask.sessions import store
from onetool.ask.sessions.base import AskSessions, ListPlace, owner_folder, run_in_thread
from onetool.ask.sessions.records import (
    ENDED_PREFIX,
    SESSION_ID,
    TITLED_PREFIX,
    USER_PREFIX,
    SessionEnding,
    SessionInfo,
    Transcript,
    read_ending,
    session_info,
    transcript,
)
from onetool.database import ChangeUnknownError, Database, DatabaseAwayError, DatabaseError, Transaction

LEASE_S = 15.0
RENEW_S = 4.0
RETRY_S = 0.2
PATIENCE_S = 10.0  # that what was said waits for a database that is away
PROCESS = urandom(8).hex()  # tells turns of this process from others

SUMMARY = "size, lines, first, ended, titled, questions"
WHERE = "owner = %s AND id = %s"

T = TypeVar("T")

ALL = 1_000_000  # more than anybody has


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


def read_summary(row: tuple[int, int, bytes, bytes, bytes, int]) -> SessionSummary:
    size, lines, first, ended, titled, questions = row
    return SessionSummary(size, lines, bytes(first), bytes(ended), bytes(titled), questions)


def read_records(work: Transaction, key: SessionKey, size: int) -> bytes:
    """All lines of a session. Raises SessionError if they are too much."""
    if size > store.LARGEST:
        why = f"it has {size:,} bytes, and {store.LARGEST:,} is the most; begin another, --new-session"
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


class DatabaseSessions(AskSessions):
    """The sessions of one owner."""

    pause = 0.1  # each look at a session that somebody has asks the database

    def __init__(self, database: Database, now: Callable[[], float] = time.time, owner: str = "") -> None:
        super().__init__(now, owner)
        self._database = database
        self._row_owner = owner_folder(owner) if owner else ""
        clock = database.clock
        self._busy = f"(holder IS NOT NULL AND until >= {clock})"

    def read(self, id: str) -> Transcript:
        id = self._resolve(id)
        sql = f"SELECT modified, size, {self._busy} FROM ask_sessions WHERE {WHERE} AND size > 0"  # noqa: S608 - ours

        def job(work: Transaction) -> tuple[bytes, float, bool] | None:
            for modified, size, goes_on in work.execute(sql, self._key(id)):
                return read_records(work, self._key(id), size), modified, goes_on
            return None

        found = self._reading(job)
        if found is None:
            raise self._not_found(id)
        return transcript(id, *found)

    def delete(self, id: str) -> None:
        def job(work: Transaction, id: str) -> None:
            work.execute(f"DELETE FROM ask_sessions WHERE {WHERE}", self._key(id))  # noqa: S608 - ours

        self._change(id, "then delete it", job)

    def rename(self, id: str, title: str) -> None:
        line = self._title_line(title)

        def job(work: Transaction, id: str) -> None:
            add_records(work, self._key(id), self._summary(work, id), [line])

        self._change(id, "then rename it", job)

    def has(self, id: str) -> bool:
        if not SESSION_ID.fullmatch(id):
            return False
        sql = f"SELECT 1 FROM ask_sessions WHERE {WHERE} AND size > 0"  # noqa: S608 - ours
        return bool(self._reading(lambda work: work.execute(sql, self._key(id))))

    def list(self) -> builtins.list[SessionInfo]:
        return self.page(None, ALL)[0]

    def info(self, id: str) -> SessionInfo:
        id = self._resolve(id)
        for found in self._infos("id = %s", (id,), 1):
            return found
        raise self._not_found(id)

    def page(self, before: ListPlace | None, most: int) -> tuple[builtins.list[SessionInfo], ListPlace | None]:
        where, params = ("true", ()) if before is None else ("(modified, id) < (%s, %s)", before)
        found = self._infos(where, params, most + 1)
        last = found[most - 1] if len(found) > most else None
        return found[:most], None if last is None else (last.modified, last.id)

    # How it is done

    def _key(self, id: str) -> SessionKey:
        return SessionKey(self._row_owner, id)

    def _reading(self, job: Callable[[Transaction], T]) -> T:
        with _told():
            return self._database.read(job)

    def _infos(self, where: str, params: tuple[Any, ...], most: int) -> builtins.list[SessionInfo]:
        sql = (
            f"SELECT id, modified, {SUMMARY} FROM ask_sessions WHERE owner = %s AND size > 0 AND {where} "  # noqa: S608
            f"ORDER BY modified DESC, id DESC LIMIT {most}"
        )
        rows = self._reading(lambda work: work.execute(sql, (self._row_owner, *params)))
        return [_info(id, modified, read_summary((*facts,))) for id, modified, *facts in rows]

    def _ids(self) -> builtins.list[str]:
        sql = "SELECT id FROM ask_sessions WHERE owner = %s AND size > 0 ORDER BY modified DESC, id DESC"
        return [id for (id,) in self._reading(lambda work: work.execute(sql, (self._row_owner,)))]

    def _check_place(self) -> None:
        """There is nothing to check."""

    def _make_place(self) -> None:
        """The tables are made when the database is opened."""

    def _change(self, id: str, then: str, change: Callable[[Transaction, str], None]) -> None:
        """Change a session in which no turn is under way."""
        id = self._resolve(id)
        # A turn that has just begun is under way: its first words may be about to be written.
        there = f"{WHERE} AND (size > 0 OR {self._busy})"
        sql = f"SELECT {self._busy} FROM ask_sessions WHERE {there} FOR UPDATE"  # noqa: S608 - ours

        def job(work: Transaction) -> bool | None:
            for (is_busy,) in work.execute(sql, self._key(id)):
                if not is_busy:
                    change(work, id)
                return is_busy
            return None

        with _told():
            is_busy = self._database.write(job)
        if is_busy is None:
            raise self._not_found(id)
        if is_busy:
            raise self._busy_error(id, then)

    def _summary(self, work: Transaction, id: str) -> SessionSummary:
        [row] = work.execute(f"SELECT {SUMMARY} FROM ask_sessions WHERE {WHERE}", self._key(id))  # noqa: S608 - ours
        return read_summary((*row,))

    def _lock_for_turn(self, id: str) -> SessionRows | None:
        key, holder, clock = self._key(id), f"{PROCESS}.{urandom(8).hex()}", self._database.clock
        insert = (
            f"INSERT INTO ask_sessions (owner, id, modified, {SUMMARY}) "  # noqa: S608 - ours
            f"VALUES (%s, %s, {clock}, 0, 0, '', '', '', 0) ON CONFLICT DO NOTHING"
        )
        take = (
            f"UPDATE ask_sessions SET holder = %s, until = {clock} + %s "  # noqa: S608 - ours
            f"WHERE {WHERE} AND (holder = %s OR NOT {self._busy})"
        )

        def job(work: Transaction) -> tuple[SessionSummary, bytes] | None:
            work.execute(insert, key)
            work.execute(take, (holder, LEASE_S, *key, holder))
            if not work.row_count:
                return None
            summary = self._summary(work, id)
            return summary, read_records(work, key, summary.size)

        with _told():
            found = self._database.write(job)
        return None if found is None else SessionRows(self._database, key, holder, *found)

    def _holder(self, id: str) -> str:
        sql = f"SELECT holder FROM ask_sessions WHERE {WHERE}"  # noqa: S608 - ours
        for (holder,) in self._reading(lambda work: work.execute(sql, self._key(id))):
            if holder is not None and holder.startswith(f"{PROCESS}."):
                return "another turn of this process"
        return "another process"


def _info(id: str, modified: float, summary: SessionSummary) -> SessionInfo:
    return session_info(id, summary.first, summary.ending, modified, summary.size)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        raise database_error(error) from error
