"""Sessions over HTTP for clients before 2026-07-28: a conversation, and event streams that outlive a connection.

Every event has an id. A client that lost a stream reconnects with the last received id and gets the rest.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from itertools import count
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from onetool.config.model import Menu
from onetool.core.mcp_protocol import AWAY, Message, notification
from onetool.core.principal import Principal
from onetool.http.asgi import Head, HttpError, Receive, Send, encode, header, respond
from onetool.http.response_stream import KEEP_ALIVE_S, ResponseStream, send_json, wait_for_disconnect
from onetool.interfaces.mcp.client import RemoteClient
from onetool.interfaces.mcp.conversation import Conversation
from onetool.interfaces.mcp.http_headers import LAST_EVENT
from onetool.interfaces.mcp.service import KINDS, Service

if TYPE_CHECKING:
    from onetool.cluster.mcp_rows import SessionState

MAX_SESSIONS = 10_000
IDLE_SECONDS = 3600.0
MAX_BYTES = 256 * 1024  # of a stream, kept so that it can be resumed
MAX_STREAMS = 32  # of a session, kept so that they can be resumed
RETRY, RETRY_MS = [(b"retry-after", b"1")], 1000
CLIENT_STATE = ("revision", "capabilities", "log_level", "name", "menu", "wants_whole")  # stored for other processes
SWEEP_BATCH = 16
END_TIMEOUT_S = 1.0  # seconds for a stream that ends
OPENING_EVENT_SINCE = "2025-11-25"  # streams begin with an empty event, whose id allows resuming


class EventStream:
    """A stream of events, which are sent to the current response and kept so that the client can resume."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.response: ResponseStream | None = None
        self.is_over = False
        self._events: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._numbers = count(1)
        self._sent = 0  # the last event sent to a response

    def push(self, message: Message) -> None:
        number = next(self._numbers)
        event = f"id: {self.id}-{number}\ndata: ".encode() + encode(message) + b"\n\n"
        self._events.append((number, event))
        self._size += len(event)
        while self._size > MAX_BYTES and len(self._events) > 1:
            self._size -= len(self._events.popleft()[1])
        if self.response is not None:
            self._sent = number
            self.response.push_event(event, droppable="id" not in message)

    def opening(self) -> bytes:
        """Return an empty first event, so that the client has an id to resume from."""
        return f"id: {self.id}-0\nretry: {RETRY_MS}\ndata: \n\n".encode()

    def attach(self, response: ResponseStream, after: int | None = None) -> None:
        """Continue on this response: with the events after `after`, or with the unsent events."""
        self.response = response
        response.begin()
        for number, event in self._events:
            if number > (self._sent if after is None else after):
                response.push_event(event)
        if self._events:
            self._sent = self._events[-1][0]


class RequestStream(msgspec.Struct, eq=False):
    """The stream for one request. It begins with the first message, or when a proxy might time out; most requests
    need none.

    The session's stream of notifications can't be used instead, because another replica may serve it.
    """

    session: "HttpSession"
    send: Send
    stream: EventStream | None = None
    response: ResponseStream | None = None
    is_over: bool = False  # the request is answered

    def begin(self) -> EventStream:
        if self.stream is None:
            self.stream = self.session.stream()
            is_primed = self.session.client.revision >= OPENING_EVENT_SINCE
            self.response = ResponseStream(self.send, self.stream.opening() if is_primed else b"")
            self.stream.response = self.response
            self.response.begin()
        return self.stream

    def push(self, message: Message) -> None:
        """Send a message on the request's stream; after its end, on the stream of notifications."""
        (self.session.news if self.is_over else self.begin()).push(message)

    async def end(self, reply: Message | None) -> None:
        """Send the reply as the last event."""
        stream, response = self.begin(), self.response
        stream.is_over = True
        if reply is not None:
            stream.push(reply)
        if response is not None:
            await response.end()
        if stream.response is not None and stream.response is not response:  # resumed on another response
            await stream.response.end()

    def drop(self) -> None:
        if self.stream is not None and self.response is not None:
            self.stream.is_over = True
            self.response.drop()


class HttpSession:
    """The session of one client. `news` is the stream of notifications that belong to no request."""

    def __init__(
        self, service: Service, client: RemoteClient, id: str | None = None, on_change: "OnSessionChange | None" = None
    ) -> None:
        """Begin a session; with `id`, continue one from another replica."""
        self.id = id or token_hex(16)
        self.client = client
        self.used = monotonic()
        self._prefix = f"{service.replica}." if service.replica else ""  # event ids name the replica
        self.news = EventStream(f"{self._prefix}0")
        self.conversation = Conversation(
            service, client, self.news.push, None if on_change is None else partial(on_change, self)
        )
        self._streams: OrderedDict[str, EventStream] = OrderedDict({self.news.id: self.news})
        self._numbers = count(1)

    @property
    def principal(self) -> Principal:
        return self.client.principal

    async def answer(self, message: Message, send: Send) -> None:
        """Answer a request. Continues if the connection breaks, because the client may resume the stream."""
        replying = RequestStream(self, send)
        idle = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, replying.begin)
        try:
            reply = await self.conversation.respond(message, replying.push)
        except BaseException:
            replying.drop()
            raise
        finally:
            idle.cancel()
            replying.is_over = True
        if replying.response is not None:
            await replying.end(reply)
        elif reply is None:
            await send_json(send, 202, None)  # cancelled by the client, who expects no response
        elif reply.get("error", {}).get("data") is AWAY:
            await send_json(send, 503, reply, RETRY)
        else:
            await respond(send, 200, encode(reply))

    def stream(self) -> EventStream:
        """Make a stream for the response to a request."""
        made = EventStream(f"{self._prefix}{next(self._numbers)}")
        self._streams[made.id] = made
        for id, old in list(self._streams.items()):
            if len(self._streams) <= MAX_STREAMS:
                break
            if old.is_over:
                del self._streams[id]
        return made

    def find_stream(self, event_id: str) -> tuple[EventStream, int] | None:
        """Return the stream that an event belongs to, and the event's number."""
        id, _, number = event_id.partition("-")
        stream = self._streams.get(id)
        return (stream, int(number)) if stream and number.isdecimal() and len(number) < 10 else None

    def is_running(self, id: Any) -> bool:
        return self.conversation.is_running(id)

    async def take(self, message: Message) -> None:
        """Take a message that needs no response."""
        await self.conversation.respond(message, self.news.push)

    def announce_changes(self) -> None:
        for kind in KINDS:
            self.news.push(notification(f"notifications/{kind}/list_changed"))

    def state(self) -> dict[str, Any]:
        """Return the fields of `SessionState`, with which another replica can continue the session."""
        known = {name: getattr(self.client, name) for name in CLIENT_STATE}
        return {**known, "watched": tuple(sorted(self.conversation.watched))}

    def restore(self, state: "SessionState") -> None:
        for name in CLIENT_STATE:
            setattr(self.client, name, getattr(state, name))
        if state.menu not in get_args(Menu):  # a newer version may have other menus
            self.client.menu = None
        self.conversation.watched.clear()
        self.conversation.watched.update(state.watched)

    async def close(self) -> None:
        """Cancel the session's requests, and end its streams."""
        self.conversation.close()
        await end_all(stream.response for stream in self._streams.values())


OnSessionChange = Callable[[HttpSession, str, Mapping[str, Any]], Awaitable[None]]


class HttpSessions:
    """All sessions by id. Unused sessions are dropped. `on_change` is called with the method and params of requests
    that change a session.
    """

    idle_s, max_count = IDLE_SECONDS, MAX_SESSIONS
    on_change: OnSessionChange | None = None

    def __init__(self, service: Service, now: Callable[[], float] = monotonic) -> None:
        self._service = service
        self._now = now
        self._sessions: OrderedDict[str, HttpSession] = OrderedDict()  # the session unused longest first

    def __contains__(self, id: str) -> bool:
        return id in self._sessions

    def used_since(self, seconds: float) -> list[HttpSession]:
        """Return the sessions that were used in the last `seconds`, or whose client listens."""
        since = self._now() - seconds
        return [one for one in self._sessions.values() if one.used >= since or one.news.response is not None]

    def unused(self, id: str, seconds: float) -> HttpSession | None:
        """Return the session if it was not used in the last `seconds`."""
        session = self._sessions.get(id)
        return session if session is not None and session.used <= self._now() - seconds else None

    def open(self, client: RemoteClient, id: str | None = None) -> HttpSession:
        self._sweep()
        session = HttpSession(self._service, client, id, self.on_change)
        self._sessions[session.id] = session
        return session

    def adopt(self, id: str, principal: Principal, state: "SessionState") -> HttpSession:
        """Continue a session that another replica has begun."""
        session = self.open(RemoteClient(principal=principal), id)
        session.restore(state)
        session.conversation.take_up()
        return session

    def get(self, id: str, principal: Principal) -> HttpSession | None:
        """Return the session if it belongs to the principal, and update the principal's rights in it."""
        session = self._sessions.get(id)
        if session is None or session.client.principal.owner != principal.owner:
            return None
        session.client.principal = principal
        session.used = self._now()
        self._sessions.move_to_end(id)
        return session

    async def close(self, session: HttpSession) -> None:
        self._sessions.pop(session.id, None)
        await session.close()

    async def end_notifications(self) -> None:
        """End the streams of notifications when the server stops; requests are still answered."""
        await end_all(session.news.response for session in self._sessions.values())

    def _sweep(self) -> None:
        for _ in range(SWEEP_BATCH):  # a few with every new session: sweeping thousands would delay all clients
            oldest = next(iter(self._sessions.values()), None)
            too_many = len(self._sessions) >= MAX_SESSIONS
            if oldest is None or not (too_many or self._now() - oldest.used >= IDLE_SECONDS):
                return
            if too_many:
                # The session unused longest of the caller with the most sessions: callers can't displace others.
                owners = Counter(session.client.owner for session in self._sessions.values())
                (owner, _), *_ = owners.most_common(1)
                oldest = next(session for session in self._sessions.values() if session.client.owner == owner)
            if oldest.news.response is not None and not too_many:  # its client listens
                self.get(oldest.id, oldest.client.principal)
                continue
            del self._sessions[oldest.id]
            oldest.conversation.close()
            if oldest.news.response is not None:
                oldest.news.response.drop()


async def end_all(responses: Iterable[ResponseStream | None]) -> None:
    """End all responses concurrently. Wait at most a second, because clients may not read."""
    ending = [asyncio.ensure_future(response.end()) for response in responses if response is not None]
    if ending:
        await asyncio.wait(ending, timeout=END_TIMEOUT_S)


# Requests and streams of a session


async def serve_stream(session: HttpSession, head: Head, receive: Receive, send: Send) -> None:
    """Serve the session's stream of notifications, or the rest of a broken stream (Last-Event-ID)."""
    accepted = head.get(b"accept", b"*/*")
    if b"text/event-stream" not in accepted and b"*/*" not in accepted:
        raise HttpError(406, "not_acceptable", "the Accept header must allow text/event-stream")
    found, after = session.news, None
    if LAST_EVENT in head:
        last = header(head, LAST_EVENT)
        known = session.find_stream(last)
        if known is None:
            raise HttpError(404, "no_such_event", f"last-event-id: there is no event {last:.40} in this session")
        found, after = known
    response, before = ResponseStream(send), found.response
    found.attach(response, after)
    try:
        if before is not None and before.is_stream:  # the old response gets no further events
            await end_all([before])
        if found.is_over:
            await response.end()
        else:
            await wait_for_disconnect(receive)
    finally:
        if found.response is response:
            found.response = None
        response.drop()
