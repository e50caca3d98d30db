"""`ChatSession`: a session during one turn, with its messages, which are written while the turn goes on.

Each record has a number. If another process has written a record with the same number meanwhile, the turn ends with an
error, before its next tool runs.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from onetool.ask.errors import Reason, SessionError
from onetool.ask.messages import Assistant, Call, Result, SessionMessage, Usage
from onetool.ask.sessions.records import (
    Allowed,
    Row,
    SessionContent,
    SessionHeader,
    TurnEnd,
    TurnEnded,
    message_row,
    title_of,
)
from onetool.core.work import run_in_thread
from onetool.database import ChangeUnknownError, Database, DatabaseAwayError, DatabaseError, Transaction

RETRY_S = 0.2
MAX_AWAY_S = 10.0  # how long records wait while the database can't be reached
NEW_SESSION_HINT = "start another with --new-session"
MADE_HINT = "calls of this turn may have changed something: check that before you repeat them"
ENDED = "ended"
WHERE = "owner = %s AND id = %s"


class SessionKey(NamedTuple):
    owner: str  # a hash; empty for the local user
    id: str


class ChatSession:
    """A session during one turn, created by `SessionStore.turn`."""

    def __init__(
        self,
        database: Database,
        key: SessionKey,
        content: SessionContent,
        next_number: int,
        now: Callable[[], float],
        release: Callable[[], None],
    ) -> None:
        self.id = key.id
        self.is_new = next_number == 0
        self.messages: list[SessionMessage] = []
        self.usage = content.usage  # of ended turns
        self.damaged = content.damaged
        self.allowed = content.allowed  # the last allowed tools; None: never set
        self._database = database
        self._key = key
        self._now = now
        self._release = release
        self._next_number = next_number
        self._has_header = content.header is not None
        self._later: list[Row] = []  # written with the next message: a session without messages is not stored
        self._unwritten: list[Row] = []
        self._failure: SessionError | None = None
        self._is_closed = False
        self._calls: dict[str, Call] = {}
        self._values: dict[str, Any] = {}
        for message, _ in content.messages:
            self._take(message)

    def append(self, message: SessionMessage) -> None:
        """Add a message, which is written by `settle` or at the end of the turn. Raises SessionError if an earlier
        write failed.
        """
        at = round(self._now(), 3)
        row, message = message_row(message, at)
        header = [] if self._has_header else [Row.of(SessionHeader(id=self.id, created=at, title=title_of(message)))]
        self._add(*header, row, *self._later)
        self._has_header, self._later = True, []
        self._take(message)

    def allow(self, tools: Iterable[str]) -> None:
        """Allow only these tools, in this turn and later ones."""
        names = tuple(sorted(tools))
        if names != self.allowed:
            self.allowed = names
            self._later = [Row.of(Allowed(tools=names, at=round(self._now(), 3)))]

    def end(
        self, provider: str, model: str, usage: Usage, steps: int, how: TurnEnd | UnsetType = UNSET, why: str = ""
    ) -> None:
        """Record the end of the turn. Once written, the turn survives a power failure. Raises SessionError."""
        total, at = self.usage + usage, round(self._now(), 3)
        ended = TurnEnded(
            at=at, provider=provider, model=model, usage=usage, steps=steps, total=total, how=how, why=why
        )
        self._add(Row.of(ended))
        self.usage = total

    def cached(self, name: str, args: Mapping[str, Any]) -> Any | UnsetType:
        """Return the reusable result of an equal call; else UNSET.

        Arguments are equal if their JSON is, ignoring the order of keys: 1, 1.0 and true differ.
        """
        key = call_key(name, args)
        return UNSET if key is None else self._values.get(key, UNSET)

    async def settle(self) -> None:
        """Write all messages so far. Raises SessionError."""
        if self._unwritten:
            await run_in_thread(self._write)

    def finish(self) -> None:
        """Write everything, and release the session. Blocks. Raises SessionError."""
        try:
            self._write()
        finally:
            self.close()

    def close(self) -> None:
        """Release the session, without blocking. Messages can't be added afterwards."""
        if not self._is_closed:
            self._is_closed = True
            self._release()

    def _take(self, message: SessionMessage) -> None:
        self.messages.append(message)
        if isinstance(message, Assistant):
            self._calls = {call.id: call for call in message.calls}
        elif isinstance(message, Result) and message.ok and message.value is not UNSET:
            call = self._calls.get(message.call)
            key = call_key(call.name, call.args) if call and call.malformed is None else None
            if key is not None:
                self._values[key] = message.value

    # Writing

    def _add(self, *rows: Row) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_closed:
            raise SessionError(f"{self._cannot_write}: its turn has ended", "session")
        self._unwritten += rows

    @property
    def _cannot_write(self) -> str:
        return f"the session {self.id} can't be written"

    def _write(self) -> None:
        """Write the rows so far; wait for a while if the database is away. Later calls repeat an error."""
        if self._failure is None and (rows := list(self._unwritten)):
            try:
                self._write_rows(rows)
            except SessionError as error:
                self._failure = error
            except DatabaseError as error:
                self._failure = session_error(self._cannot_write, error)
            else:
                self._next_number += len(rows)
                del self._unwritten[: len(rows)]
        if self._failure is not None:
            raise self._failure

    def _write_rows(self, rows: list[Row]) -> None:
        is_end = any(row.kind == ENDED for row in rows)
        deadline = time.monotonic() + MAX_AWAY_S
        while True:
            try:
                return self._database.write(lambda work: self._insert(work, rows), durable=is_end)
            except (DatabaseAwayError, ChangeUnknownError) as error:  # repeating it is safe: rows have numbers
                if time.monotonic() > deadline:
                    raise SessionError(f"{self._cannot_write}: {error.what}", "not_stored", [MADE_HINT]) from error
            time.sleep(RETRY_S)

    def _insert(self, work: Transaction, rows: list[Row]) -> None:
        if self._next_number == 0:
            sql = f"INSERT INTO ask_sessions (owner, id, modified) VALUES (%s, %s, {self._database.clock})"  # noqa: S608
            work.execute(f"{sql} ON CONFLICT DO NOTHING", self._key)
        work.execute(f"UPDATE ask_sessions SET modified = {self._database.clock} WHERE {WHERE}", self._key)  # noqa: S608
        if work.row_count != 1:
            raise SessionError(f"{self._cannot_write}: it was deleted", "session")
        insert = "INSERT INTO ask_messages (owner, id, number, kind, body) VALUES (%s, %s, %s, %s, %s)"
        written = f"SELECT body FROM ask_messages WHERE {WHERE} AND number = %s"  # noqa: S608 - ours
        for number, row in enumerate(rows, self._next_number):
            work.execute(f"{insert} ON CONFLICT DO NOTHING", (*self._key, number, *row))
            if work.row_count != 1:  # written by us, if the end of the last attempt is unknown
                [(body,)] = work.execute(written, (*self._key, number))
                if bytes(body) != row.body:
                    hints = ["ask again", f"or {NEW_SESSION_HINT}"]
                    raise SessionError(
                        f"the session {self.id} is in use: another turn has gone on with it", "busy", hints
                    )


def session_error(what: str, error: DatabaseError) -> SessionError:
    reason: Reason = "session"
    if isinstance(error, DatabaseAwayError | ChangeUnknownError):
        reason = "database_away" if isinstance(error, DatabaseAwayError) else "change_unknown"
    return SessionError(f"{what}: {error}", reason)


def call_key(name: str, args: Mapping[str, Any]) -> str | None:
    """Return a key that is equal for equal calls; None if the arguments are not JSON."""
    try:
        return json.dumps([name, dict(args)], sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return None
