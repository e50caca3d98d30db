"""SessionStore: starts turns in sessions; lists, reads, renames and deletes sessions.

One turn at a time uses a session: others of this process wait, or are refused. A turn of another process is only
noticed when both write: the second one is refused.
"""

import builtins
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from threading import Lock
from typing import Any, TypeVar

from onetool.ask.errors import SessionError
from onetool.ask.sessions.records import (
    LAST,
    SESSION_ID,
    SessionContent,
    SessionHeader,
    SessionInfo,
    Titled,
    Transcript,
    TurnEnded,
    check_id,
    is_generated,
    new_id,
    read_record,
    read_session,
    short_title,
    transcript,
)
from onetool.ask.sessions.turn import NEW_SESSION_HINT, WHERE, ChatSession, SessionKey, session_error
from onetool.core import flock
from onetool.core.text import nearest, or_rather
from onetool.core.work import run_in_thread, run_or_undo
from onetool.database import Database, DatabaseError, Transaction

T = TypeVar("T")
MAX_BYTES = 32 * 1024 * 1024  # of a session
UNDER_WAY_S = 60.0  # how long the last calls of a session are shown as running, if another process runs them
PAUSE_S = 0.1  # between two checks of a session that another turn uses
GENERATED_HINT = "names of this form are generated, so this one is probably mistyped"
LIST_HINT = "`onetool sessions list` shows all sessions"
NO_RECORDS = read_session(())
LISTED = """
SELECT id, modified, title,
  (SELECT body FROM ask_messages m WHERE m.owner = s.owner AND m.id = s.id ORDER BY number LIMIT 1),
  (SELECT body FROM ask_messages m WHERE m.owner = s.owner AND m.id = s.id AND kind = 'ended'
   ORDER BY number DESC LIMIT 1),
  (SELECT body FROM ask_messages m WHERE m.owner = s.owner AND m.id = s.id AND kind = 'titled'
   ORDER BY number DESC LIMIT 1),
  (SELECT count(*) FROM ask_messages m WHERE m.owner = s.owner AND m.id = s.id AND kind = 'user'),
  coalesce((SELECT max(number) FROM ask_messages m WHERE m.owner = s.owner AND m.id = s.id AND kind = 'user'), -1)
  < (SELECT max(number) FROM ask_messages m WHERE m.owner = s.owner AND m.id = s.id AND kind = 'ended'),
  (SELECT sum(length(body)) FROM ask_messages m WHERE m.owner = s.owner AND m.id = s.id)
FROM ask_sessions s"""

ListPlace = tuple[float, str]  # a session's place in the list: the time of its last use, and its id

_under_way = set[tuple[str, SessionKey]]()  # the turns of this process, by database
_lock = Lock()


class SessionStore:
    """The sessions of some owners; new ones belong to the first. Sessions of others are not found, and their ids are
    free.
    """

    def __init__(
        self, database: Database, now: Callable[[], float] = time.time, owners: tuple[str, ...] = ("",)
    ) -> None:
        self._database = database
        self._now = now
        self._owner_keys = [*map(_owner_key, owners)]

    @asynccontextmanager
    async def turn(self, id: str | None, *, new: bool = False, wait: float = 0.0) -> AsyncIterator[ChatSession]:
        """Use a session for one turn. Create a missing session; wait up to `wait` seconds for another turn to end.

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
        sql = f"SELECT modified, {self._database.clock} FROM ask_sessions WHERE {WHERE}"  # noqa: S608 - ours
        is_ours = self._turn_id(key) in _under_way  # first: a turn that ends now has all its results

        def job(work: Transaction) -> tuple[SessionContent, float] | None:
            for modified, now in work.execute(sql, key):
                return self._content(work, key, is_ours or now < modified + UNDER_WAY_S), modified
            return None

        found = self._read(job)
        if found is None:
            raise self._not_found(id)
        return transcript(id, *found)

    def delete(self, id: str) -> None:
        """Delete a session. Raises SessionError: "not_found", or "busy" while a turn is under way."""
        self._change(id, "then delete it", f"DELETE FROM ask_sessions WHERE {WHERE}")  # noqa: S608 - ours

    def rename(self, id: str, title: str) -> None:
        """Give a session a title, without moving it in the list. Raises SessionError like `delete`."""
        self._change(id, "then rename it", f"UPDATE ask_sessions SET title = %s WHERE {WHERE}", short_title(title))  # noqa: S608

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
                raise _busy_error(named, f"or {NEW_SESSION_HINT}")
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
        """Open the session. Return None while another turn of this process uses it."""
        key = self._key(id)
        turn_id = self._turn_id(key)
        with _lock:
            if turn_id in _under_way:
                return None
            _under_way.add(turn_id)

        def job(work: Transaction) -> tuple[SessionContent, int]:
            last = f"SELECT max(number) FROM ask_messages WHERE {WHERE}"  # noqa: S608 - ours
            [(number,)] = work.execute(last, key)
            return (NO_RECORDS, 0) if number is None else (self._content(work, key), number + 1)

        try:
            content, next_number = self._read(job)
            if new and next_number:
                raise _exists_error(id)
            if not new and not next_number and is_generated(id):
                raise self._not_found(id, f"or create it with --new-session: {GENERATED_HINT}")
            release = lambda: _under_way.discard(turn_id)  # noqa: E731
            return ChatSession(self._database, key, content, next_number, self._now, release)
        except BaseException:
            _under_way.discard(turn_id)
            raise

    def _resolve(self, id: str) -> str:
        if id != LAST:
            return check_id(id)
        for found in self._infos(limit=1):
            return found.id
        raise SessionError("there is no session yet", "not_found", ["ask something first"])

    def _turn_id(self, key: SessionKey) -> tuple[str, SessionKey]:
        return self._database.describe(), key

    # Rows

    def _content(self, work: Transaction, key: SessionKey, goes_on: bool = False) -> SessionContent:
        """Return the content of a stored session. Raises SessionError if it is too large."""
        [(size,)] = work.execute(f"SELECT sum(length(body)) FROM ask_messages WHERE {WHERE}", key)  # noqa: S608 - ours
        if (size or 0) > MAX_BYTES:
            why = f"it has {size:,} bytes, more than {MAX_BYTES:,}; {NEW_SESSION_HINT}"
            raise SessionError(f"the session {key.id} can't be used: {why}", "session")
        [(title,)] = work.execute(f"SELECT title FROM ask_sessions WHERE {WHERE}", key)  # noqa: S608 - ours
        rows = work.execute(f"SELECT body FROM ask_messages WHERE {WHERE} ORDER BY number", key)  # noqa: S608 - ours
        return read_session((bytes(body) for (body,) in rows), goes_on, title)

    def _change(self, id: str, then: str, sql: str, *params: str) -> None:
        """Change a session that no turn of this process uses. Else raise an error whose hint is `then`."""
        id = self._resolve(id)
        key = self._key(id)
        if self._turn_id(key) in _under_way:
            raise _busy_error(id, then)

        def job(work: Transaction) -> int:
            work.execute(sql, (*params, *key))
            return work.row_count

        if not self._stored_keys(id) or not self._write(job):  # first: reading makes no file
            raise self._not_found(id)

    def _key(self, id: str) -> SessionKey:
        """Return the key of a stored session, or that of a new one."""
        if len(self._owner_keys) > 1 and (stored := self._stored_keys(id)):
            return stored[0]
        return SessionKey(self._owner_keys[0], id)

    def _stored_keys(self, id: str) -> builtins.list[SessionKey]:
        sql = f"SELECT 1 FROM ask_sessions WHERE {WHERE}"  # noqa: S608 - ours
        keys = [SessionKey(owner, id) for owner in self._owner_keys]
        return self._read(lambda work: [key for key in keys if work.execute(sql, key)])

    def _infos(
        self, where: str = "", params: tuple[Any, ...] = (), limit: int | None = None
    ) -> builtins.list[SessionInfo]:
        limited = "" if limit is None else f" LIMIT {limit}"
        sql = f"{LISTED} WHERE {self._are_own} {where} ORDER BY modified DESC, id DESC{limited}"
        return [_info(*row) for row in self._read(lambda work: work.execute(sql, (*self._owner_keys, *params)))]

    def _ids(self) -> builtins.list[str]:
        sql = f"SELECT id FROM ask_sessions WHERE {self._are_own} ORDER BY modified DESC, id DESC"  # noqa: S608 - ours
        return [id for (id,) in self._read(lambda work: work.execute(sql, self._owner_keys))]

    @property
    def _are_own(self) -> str:
        return f"owner IN ({', '.join(['%s'] * len(self._owner_keys))})"

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

    def _not_found(self, id: str, *hints: str) -> SessionError:
        rather = or_rather(id, self._ids())
        return SessionError(f"there is no session {id!r}{rather}", "not_found", [LIST_HINT, *hints])


def _info(
    id: str,
    modified: float,
    title: str | None,
    first: bytes,
    ended: bytes | None,
    titled: bytes | None,
    questions: int,
    is_ended: bool | None,
    size: int,
) -> SessionInfo:
    header, end, named = map(read_record, (first, ended, titled))
    header = header if isinstance(header, SessionHeader) else SessionHeader()
    end = end if isinstance(end, TurnEnded) else TurnEnded()
    first_title = named.title if isinstance(named, Titled) else header.title
    return SessionInfo(
        id=id,
        created=header.created or modified,
        modified=modified,
        turns=questions,
        title=first_title if title is None else title,
        provider=end.provider,
        model=end.model,
        usage=end.total,
        size=int(size or 0),
        answered=bool(is_ended) and end.steps > 0,
    )


def _owner_key(owner: str) -> str:
    if not owner:
        return ""
    return blake2b(owner.encode("utf-8", "surrogatepass"), digest_size=16, person=b"ask sessions").hexdigest()


def _busy_error(id: str, otherwise: str) -> SessionError:
    return SessionError(
        f"the session {id} is in use by this process", "busy", ["wait until that turn has ended", otherwise]
    )


def _exists_error(id: str) -> SessionError:
    hints = ["choose another name", "or omit --new-session"]
    return SessionError(f"a session {id!r} already exists", "exists", hints)


def _close(session: ChatSession | None) -> None:
    if session is not None:
        session.close()
