"""Sessions that several replicas serve: rows in the database, cached here.

A change to a session is written to its row, and the other replicas are notified before the client gets its response. A
replica that was not reached sees the change within a minute, when it renews the rows of the sessions it serves. Rows of
sessions that were idle for longer are read when the session is used again.

IDs of questions to the client, and of events, begin with the ID of their replica.
"""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import msgspec

from onetool.cluster.cluster import Cluster
from onetool.cluster.mcp_rows import McpSessionRows, SessionState, UnreadableRowError
from onetool.core.mcp_protocol import Message, is_id
from onetool.core.principal import Principal, current_principal
from onetool.database import DatabaseError
from onetool.http.asgi import HttpError

log = logging.getLogger("onetool.cluster")
KIND = "session"
LAST_EVENT = b"last-event-id"
RENEW_S = 60.0
MAX_ID = 100  # characters
_REPLICA = re.compile(r"[0-9a-f]{8}")


class SessionNews(msgspec.Struct, frozen=True, kw_only=True):
    """A message to another replica: a session has changed or ended, or its client has sent a message."""

    session: str
    is_over: bool = False
    message: Message | None = None  # an answer or a cancellation


class MemorySession(Protocol):
    """A session in memory, implemented in `interfaces`, which this package doesn't import."""

    id: str

    @property
    def principal(self) -> Principal: ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: SessionState) -> None: ...

    def is_running(self, id: Any) -> bool: ...

    async def take(self, message: Message) -> None: ...

    def announce_changes(self) -> None: ...


class MemorySessions(Protocol):
    """The sessions in memory. `on_change` is called with a session and the request that changes it."""

    idle_s: float
    max_count: int
    on_change: Any

    def __contains__(self, id: str) -> bool: ...

    def get(self, id: str, principal: Principal) -> MemorySession | None: ...

    def adopt(self, id: str, principal: Principal, state: SessionState) -> MemorySession: ...

    def unused(self, id: str, seconds: float) -> MemorySession | None: ...

    def used_since(self, seconds: float) -> Sequence[MemorySession]: ...

    async def close(self, session: Any) -> None: ...


class SharedSessions:
    """The database rows of the sessions in memory. Belongs to one event loop."""

    _sessions: MemorySessions

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rows = McpSessionRows(cluster.settings.database)
        self._versions: dict[str, int] = {}
        self._renewing: asyncio.Task[None] | None = None
        cluster.mailbox.handlers[KIND] = self._receive_news

    def attach(self, sessions: MemorySessions) -> Self:
        """Share these sessions from now on."""
        self._sessions = sessions
        sessions.on_change = self._changed
        return self

    def start(self) -> None:
        self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def stop(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        await self._cluster.mailbox.close()

    async def load(self, id: str, principal: Principal) -> None:
        """Load the current row of this principal's session into memory."""
        if id in self._sessions or len(id) > MAX_ID:
            if (idle := self._sessions.unused(id, RENEW_S)) is not None:
                await self._refresh(idle)
            return
        try:
            row = await asyncio.to_thread(self._rows.get, id)
        except UnreadableRowError:
            return
        except DatabaseError as error:
            raise _unavailable(error) from None
        if row is not None and row.owner == principal.owner and id not in self._sessions:
            self._sessions.adopt(id, principal, row.state)
            self._versions[id] = row.version

    async def close(self, session: MemorySession) -> None:
        """End the session for the client. Raises HttpError (503)."""
        try:
            await asyncio.to_thread(self._rows.delete, session.id)
        except DatabaseError as error:
            raise _unavailable(error) from None
        await self._forget(session)
        await self._tell(SessionNews(session=session.id, is_over=True), session)

    # Messages for other processes

    async def relay(self, session: MemorySession, message: Message) -> bool:
        """Send an answer or a cancellation to the processes that wait for it. Return False if it is for this one."""
        if message.get("method") == "notifications/cancelled":
            id = message.get("params", {}).get("requestId")
            if is_id(id) and session.is_running(id):
                return False
            news = SessionNews(session=session.id, message=message)
            await self._cluster.mailbox.tell(None, KIND, msgspec.structs.asdict(news), session.principal)
            return True
        return await self.relay_unknown(session.id, session.principal, message)

    async def relay_unknown(self, id: str, principal: Principal, message: Message) -> bool:
        """Send an answer to the process that waits for it, although the session can't be read here: clients don't
        repeat answers, so the call would wait in vain. Return False for other messages.
        """
        if (owner := self._asked_by(message)) is None:
            return False
        news = SessionNews(session=id, message=message)
        await self._cluster.mailbox.tell(owner, KIND, msgspec.structs.asdict(news), principal)
        return True

    def _asked_by(self, message: Message) -> str | None:
        """Return the other process whose question the message answers."""
        if "method" in message:
            return None
        owner, _, number = str(message["id"]).partition("-")
        return owner if number and _REPLICA.fullmatch(owner) and owner != self._cluster.id else None

    async def _tell(self, news: SessionNews, session: MemorySession) -> None:
        await self._cluster.mailbox.ask_all(KIND, msgspec.structs.asdict(news), session.principal)

    async def _receive_news(self, body: Any) -> None:
        """Take news of another process. Those of sessions that are not in memory are ignored."""
        news = msgspec.convert(body, SessionNews)
        session = self._sessions.get(news.session, current_principal.get())
        if session is None:
            pass
        elif news.is_over:
            await self._forget(session)
        elif news.message is not None:
            await session.take(news.message)
        else:
            await self._refresh(session)

    def resumed(self, session: MemorySession, head: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
        """Return the headers of a GET to be answered here. The notifications of another process continue here: it is
        unknown which ones the client has missed, so all lists are announced as changed. Raises HttpError for the stream
        of a request, which only its own process has.
        """
        owner, dot, event = head.get(LAST_EVENT, b"").decode("latin-1").partition(".")
        if not dot or owner == self._cluster.id:
            return head
        if not event.startswith("0-"):
            text = "The stream of this request is at another process, and can't be resumed here: send the request again"
            raise HttpError(404, "no_such_event", text)
        session.announce_changes()
        return {name: value for name, value in head.items() if name != LAST_EVENT}

    # Rows

    async def _changed(self, session: MemorySession, method: str, params: Mapping[str, Any]) -> None:
        """Write the changes made by a request. Raise HttpError (503) if they can't be stored."""

        def change(state: SessionState) -> SessionState:  # which others may have changed
            if method == "logging/setLevel":
                return msgspec.structs.replace(state, log_level=params["level"])
            uris = {*state.watched, params["uri"]}
            if method == "resources/unsubscribe":
                uris.discard(params["uri"])
            return msgspec.structs.replace(state, watched=tuple(sorted(uris)))

        try:
            if method == "initialize":
                state = SessionState(**session.state())
                await asyncio.to_thread(self._rows.add, session.id, session.principal.owner, state)
                self._versions[session.id] = 1
                return
            row = await asyncio.to_thread(self._rows.change, session.id, change)
        except DatabaseError as error:
            raise _unavailable(error) from None
        if row is not None:
            session.restore(row.state)
            self._versions[session.id] = row.version
            await self._tell(SessionNews(session=session.id), session)

    async def _refresh(self, session: MemorySession) -> None:
        try:
            row = await asyncio.to_thread(self._rows.get, session.id)
        except DatabaseError:
            return  # the next renewal will see the change
        if row is None:
            await self._forget(session)
        elif row.version >= self._versions.get(session.id, 0):  # else it was read before a later change
            session.restore(row.state)
            self._versions[session.id] = row.version

    async def _forget(self, session: MemorySession) -> None:
        self._versions.pop(session.id, None)
        await self._sessions.close(session)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                await self.renew()
            except DatabaseError as error:
                log.warning("sessions were not renewed: %s", error)
            except Exception as error:  # noqa: BLE001 - the next attempt may succeed
                log.error("sessions were not renewed: %s: %s", type(error).__name__, error)

    async def renew(self) -> None:
        """Mark the used sessions, and refresh those that others have changed. One replica deletes idle sessions."""
        used = self._sessions.used_since(RENEW_S)
        versions = await asyncio.to_thread(self._rows.touch, [session.id for session in used])
        for session in used:
            if versions.get(session.id) != self._versions.get(session.id):
                await self._refresh(session)
        if self._cluster.members.is_oldest():
            await asyncio.to_thread(self._rows.sweep, self._sessions.idle_s, self._sessions.max_count)
        self._versions = {id: version for id, version in self._versions.items() if id in self._sessions}


def _unavailable(error: DatabaseError) -> HttpError:
    if isinstance(error, UnreadableRowError):
        return HttpError(
            404, "no_such_session", f"This session can't continue here: {error}. Start a new one with initialize."
        )
    message = f"A session needs the database of the replicas: {error}. Clients of revision 2026-07-28 need no session."
    return HttpError(503, "database_away", message, [(b"retry-after", b"1")])
