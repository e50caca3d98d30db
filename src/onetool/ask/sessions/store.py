"""SessionStore: starts turns in sessions; lists, reads, renames and deletes sessions.

A turn holds its session exclusively, among all processes and replicas, by a lease in the row of the session. If its
process ends, the session is free at once where the database can tell (SQLite), else when the lease expires. Reading
needs no lease, so lists and transcripts also show a turn that is under way.
"""

import builtins
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from os import urandom
from typing import Any, TypeVar

from onetool.ask.errors import SessionError
from onetool.ask.sessions.records import (
    LAST,
    SESSION_ID,
    SessionInfo,
    Titled,
    Transcript,
    check_id,
    is_generated,
    new_id,
    read_session,
    record_line,
    short_title,
    transcript,
)
from onetool.ask.sessions.rows import (
    LEASE_S,
    SUMMARY,
    WHERE,
    SessionKey,
    SessionSummary,
    SessionWriter,
    add_records,
    ended_holders,
    read_records,
    session_error,
)
from onetool.ask.sessions.turn import ChatSession
from onetool.core import flock
from onetool.core.text import nearest, or_rather
from onetool.core.work import run_in_thread, run_or_undo
from onetool.database import Database, DatabaseError, Transaction

T = TypeVar("T")
EMPTY_S = 3600.0  # after which a session without messages is removed
PAUSE_S = 0.1  # between two checks of a session that another turn holds
NEW_SESSION_HINT = "start another with --new-session"
GENERATED_HINT = "names of this form are generated, so this one is probably mistyped"
LIST_HINT = "`onetool sessions list` shows all sessions"

ListPlace = tuple[float, str]  # a session's place in the list: the time of its last use, and its id


class SessionStore:
    """The sessions of some owners; new ones belong to the first. Sessions of others are not found, and their ids are
    free.
    """

    def __init__(
        self, database: Database, now: Callable[[], float] = time.time, owners: tuple[str, ...] = ("",)
    ) -> None:
        self._database = database
        self._now = now
        self._owner = owners[0]
        self._owner_keys = [*map(_owner_key, owners)]
        self._are_own = f"owner IN ({', '.join(['%s'] * len(owners))})"
        self._is_leased = f"(holder IS NOT NULL AND until >= {database.clock})"

    @asynccontextmanager
    async def turn(self, id: str | None, *, new: bool = False, wait: float = 0.0) -> AsyncIterator[ChatSession]:
        """Hold a session for one turn. Create a missing session; wait up to `wait` seconds for another turn to end.

        Without an id, the session is new. With `new`, an existing session is refused; without, an id that looks
        generated must exist. A session without messages is not stored.
        """
        session = await self._open_turn(id, new, wait)
        try:
            yield session
        except BaseException:
            with suppress(SessionError):  # the first error is raised
                await run_in_thread(session.finish)
            raise
        else:
            await run_in_thread(session.finish)
        finally:
            session.close()

    def read(self, id: str) -> Transcript:
        """Return the transcript, even while a turn is under way. Raises SessionError."""
        id = self._resolve(id)
        key = self._key(id)
        sql = f"SELECT modified, size FROM ask_sessions WHERE {WHERE} AND size > 0"  # noqa: S608 - ours

        def job(work: Transaction) -> tuple[bytes, float, bool] | None:
            goes_on = self._find_holder(work, key) is not None  # first: a turn that ends now has all its results
            for modified, size in work.execute(sql, key):
                return read_records(work, key, size), modified, goes_on
            return None

        found = self._read(job)
        if found is None:
            raise self._not_found(id)
        return transcript(id, *found)

    def delete(self, id: str) -> None:
        """Delete a session. Raises SessionError: "not_found", or "busy" while a turn is under way."""

        def job(work: Transaction, key: SessionKey, _before: SessionSummary) -> None:
            work.execute(f"DELETE FROM ask_sessions WHERE {WHERE}", key)  # noqa: S608 - ours

        self._change(id, "then delete it", job)

    def rename(self, id: str, title: str) -> None:
        """Give a session a title, without moving it in the list. Raises SessionError like `delete`."""
        line = record_line(Titled(title=short_title(title), at=round(self._now(), 3)))

        def job(work: Transaction, key: SessionKey, before: SessionSummary) -> None:
            add_records(work, key, before, [line])

        self._change(id, "then rename it", job)

    def shrink(self) -> None:
        """Release the disk space of deleted sessions, if possible."""
        with suppress(DatabaseError):
            self._database.shrink()

    def has(self, id: str) -> bool:
        """Return whether a session with this id exists and has messages."""
        if not SESSION_ID.fullmatch(id):
            return False
        return bool(self._stored_keys(id))

    def info(self, id: str) -> SessionInfo:
        """Return the entry of a session in the list. Raises SessionError."""
        id = self._resolve(id)
        for found in self._infos("AND id = %s", (id,)):
            return found
        raise self._not_found(id)

    def list(self) -> builtins.list[SessionInfo]:
        """Return all sessions, newest first."""
        return self._infos()

    def page(self, before: ListPlace | None, limit: int) -> tuple[builtins.list[SessionInfo], ListPlace | None]:
        """Return the sessions after a place in the list, and the place of the last one; None at the list's end."""
        where, params = ("", ()) if before is None else ("AND (modified, id) < (%s, %s)", before)
        found = self._infos(where, params, limit + 1)
        last = found[limit - 1] if len(found) > limit else None
        return found[:limit], None if last is None else (last.modified, last.id)

    def similar_ids(self, id: str) -> builtins.list[str]:
        """Return the ids of sessions with similar names, most similar first."""
        return nearest(id, (one for one in self._ids() if one != id))

    # Opening a session, in a thread: a session may be large, and a disk slow

    async def _open_turn(self, id: str | None, new: bool, wait: float) -> ChatSession:
        from asyncio import sleep

        if id is None:
            return await run_or_undo(self._open_generated, ChatSession.close)
        # Resolved once: `last` may be another session after the wait.
        named = await run_in_thread(lambda: check_id(id) if new else self._resolve(id))
        pauses = flock.pauses(wait, PAUSE_S, PAUSE_S)
        while (session := await run_or_undo(lambda: self._try_open(named, new), _close)) is None:
            if new:
                raise _exists_error(named)
            if (pause := next(pauses, None)) is None:
                raise await run_in_thread(lambda: self._busy_error(named, f"or {NEW_SESSION_HINT}"))
            await sleep(pause)
        return session

    def _open_generated(self) -> ChatSession:
        while True:
            try:
                if session := self._try_open(new_id(self._now()), new=True):
                    return session
            except SessionError as error:
                if error.reason != "exists":
                    raise

    def _try_open(self, id: str, new: bool) -> ChatSession | None:
        """Open the session. Return None while another turn holds it."""
        key = self._key(id)
        if self._read(lambda work: self._find_holder(work, key)):  # waiting turns write nothing
            return None

        def job(work: Transaction) -> tuple[str, SessionSummary, bytes] | None:
            holder = f"{self._database.process_name()}.{urandom(8).hex()}"
            summary = self._take(work, key, holder)
            return summary and (holder, summary, read_records(work, key, summary.size))

        found = self._write(job)
        if found is None:
            return None
        holder, summary, data = found
        writer = SessionWriter(self._database, key, holder, summary)
        try:
            if new and data:
                raise _exists_error(id)
            if not new and not data and is_generated(id):
                raise self._not_found(id, f"or create it with --new-session: {GENERATED_HINT}")
            return ChatSession(id, writer, read_session(id, data), is_new=not data, now=self._now, owner=self._owner)
        except BaseException:
            writer.finish()
            raise

    def _resolve(self, id: str) -> str:
        if id != LAST:
            return check_id(id)
        for found in self._infos(limit=1):
            return found.id
        raise SessionError("there is no session yet", "not_found", ["ask something first"])

    # Leases

    def _take(self, work: Transaction, key: SessionKey, holder: str | None) -> SessionSummary | None:
        """Lease a session to a turn, or release it; create it if missing. Return None if another turn holds it."""
        clock, before = self._database.clock, self._lease(work, key)
        if before is not None and self._describe(before) is not None:
            return None
        insert = (
            f"INSERT INTO ask_sessions (owner, id, modified, {SUMMARY}) "  # noqa: S608 - ours
            f"VALUES (%s, %s, {clock}, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
        )
        work.execute(insert, (*key, 0, 0, b"", b"", b"", 0))
        if work.row_count == 1:  # newly created; killed turns leave sessions without messages
            empty = f"DELETE FROM ask_sessions WHERE size = 0 AND NOT {self._is_leased} AND modified < {clock} - %s"  # noqa: S608
            work.execute(empty, (EMPTY_S,))
        take = (
            f"UPDATE ask_sessions SET holder = %s, until = {clock} + %s "  # noqa: S608 - ours
            f"WHERE {WHERE} AND (holder = %s OR NOT {self._is_leased}) RETURNING {SUMMARY}"
        )
        for row in work.execute(take, (holder, LEASE_S, *key, before)):
            return SessionSummary.of(row)
        return None

    def _find_holder(self, work: Transaction, key: SessionKey) -> str | None:
        """Describe the process of the turn that holds the session; None if no turn is under way."""
        holder = self._lease(work, key)
        return None if holder is None else self._describe(holder)

    def _lease(self, work: Transaction, key: SessionKey) -> str | None:
        sql = f"SELECT holder FROM ask_sessions WHERE {WHERE} AND {self._is_leased}"  # noqa: S608 - ours
        for (holder,) in work.execute(sql, key):
            return holder
        return None

    def _describe(self, holder: str) -> str | None:
        return None if holder in ended_holders else self._database.find_process(holder.partition(".")[0])

    def _change(self, id: str, then: str, change: Callable[[Transaction, SessionKey, SessionSummary], None]) -> None:
        """Change a session that no turn holds. If a turn holds it, raise an error whose hint is `then`."""
        id = self._resolve(id)
        key = self._key(id)
        if not self._read(lambda work: work.execute(f"SELECT 1 FROM ask_sessions WHERE {WHERE}", key)):  # noqa: S608
            raise self._not_found(id)

        def job(work: Transaction) -> SessionSummary | None:
            summary = self._take(work, key, None)
            if summary is not None and summary.size:
                change(work, key, summary)
            elif summary is not None:  # left by a turn without messages
                work.execute(f"DELETE FROM ask_sessions WHERE {WHERE}", key)  # noqa: S608 - ours
            return summary

        summary = self._write(job)
        if summary is None:
            raise self._busy_error(id, then)
        if not summary.size:
            raise self._not_found(id)

    # Rows

    def _key(self, id: str) -> SessionKey:
        """Return the key of a stored session, or that of a new one."""
        if len(self._owner_keys) > 1 and (stored := self._stored_keys(id)):
            return stored[0]
        return SessionKey(self._owner_keys[0], id)

    def _stored_keys(self, id: str) -> builtins.list[SessionKey]:
        sql = f"SELECT 1 FROM ask_sessions WHERE {WHERE} AND size > 0"  # noqa: S608 - ours
        keys = [SessionKey(owner, id) for owner in self._owner_keys]
        return self._read(lambda work: [key for key in keys if work.execute(sql, key)])

    def _infos(
        self, where: str = "", params: tuple[Any, ...] = (), limit: int | None = None
    ) -> builtins.list[SessionInfo]:
        sql = (
            f"SELECT id, modified, {SUMMARY} FROM ask_sessions WHERE {self._are_own} AND size > 0 {where} "  # noqa: S608
            f"ORDER BY modified DESC, id DESC{'' if limit is None else f' LIMIT {limit}'}"
        )
        rows = self._read(lambda work: work.execute(sql, (*self._owner_keys, *params)))
        return [SessionSummary.of((*summary,)).info(id, modified) for id, modified, *summary in rows]

    def _ids(self) -> builtins.list[str]:
        sql = f"SELECT id FROM ask_sessions WHERE {self._are_own} AND size > 0 ORDER BY modified DESC, id DESC"  # noqa: S608 - ours
        return [id for (id,) in self._read(lambda work: work.execute(sql, self._owner_keys))]

    def _read(self, job: Callable[[Transaction], T]) -> T:
        try:
            return self._database.read(job)
        except DatabaseError as error:
            raise session_error("sessions can't be used", error) from error

    def _write(self, job: Callable[[Transaction], T]) -> T:
        try:
            return self._database.write(job)
        except DatabaseError as error:
            raise session_error("sessions can't be used", error) from error

    # Errors

    def _not_found(self, id: str, *hints: str) -> SessionError:
        rather = or_rather(id, self._ids())
        return SessionError(f"there is no session {id!r}{rather}", "not_found", [LIST_HINT, *hints])

    def _busy_error(self, id: str, otherwise: str) -> SessionError:
        key = self._key(id)
        who = self._read(lambda work: self._find_holder(work, key)) or flock.UNKNOWN
        hints = ["wait until that turn has ended", otherwise]
        return SessionError(f"the session {id} is in use by {who}", "busy", hints)


def _owner_key(owner: str) -> str:
    if not owner:
        return ""
    from hashlib import blake2b

    return blake2b(owner.encode("utf-8", "surrogatepass"), digest_size=16, person=b"ask sessions").hexdigest()


def _exists_error(id: str) -> SessionError:
    hints = ["choose another name", "or omit --new-session"]
    return SessionError(f"a session {id!r} already exists", "exists", hints)


def _close(session: ChatSession | None) -> None:
    if session is not None:
        session.close()
