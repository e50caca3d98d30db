"""Sessions over HTTP, for clients before 2026-07-28: a conversation, and streams of events that outlive a connection.

Every event has an id; a client that lost a stream comes back with the last one it saw, and gets the rest.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from itertools import count
from secrets import token_hex
from time import monotonic

from onetool.interfaces.encoding import encode
from onetool.interfaces.mcp.client import Client
from onetool.interfaces.mcp.conversation import Conversation
from onetool.interfaces.mcp.service import Service
from onetool.interfaces.mcp.wire import Message
from onetool.interfaces.outlet import Outlet

MOST_SESSIONS = 10_000
IDLE_SECONDS = 3600.0
MOST_BYTES = 256 * 1024  # of a stream, that can be had again
MOST_STREAMS = 32  # of a session, that can be taken up again
RETRY_MS = 1000
AT_ONCE = 16
LAST_WORDS = 1.0  # seconds for a stream that ends
PRIMED_SINCE = "2025-11-25"  # whose streams begin with an empty event, so that there is an id to come back with


class Stream:
    """Events in order. They go to the outlet that is there now, and are kept in case it breaks."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.outlet: Outlet | None = None
        self.is_over = False
        self._events: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._numbers = count(1)
        self._sent = 0  # the last that went to an outlet

    def push(self, message: Message) -> None:
        number = next(self._numbers)
        event = f"id: {self.id}-{number}\ndata: ".encode() + encode(message) + b"\n\n"
        self._events.append((number, event))
        self._size += len(event)
        while self._size > MOST_BYTES and len(self._events) > 1:
            self._size -= len(self._events.popleft()[1])
        if self.outlet is not None:
            self._sent = number
            self.outlet.push_event(event, by_the_way="id" not in message)

    def opening(self) -> bytes:
        """An event that says nothing but where the stream begins."""
        return f"id: {self.id}-0\nretry: {RETRY_MS}\ndata: \n\n".encode()

    def attach(self, outlet: Outlet, after: int | None = None) -> None:
        """Go on there, with what came after that event; or with what was not sent to anybody."""
        self.outlet = outlet
        outlet.begin()
        for number, event in self._events:
            if number > (self._sent if after is None else after):
                outlet.push_event(event)
        if self._events:
            self._sent = self._events[-1][0]

    def detach(self, outlet: Outlet) -> None:
        if self.outlet is outlet:
            self.outlet = None


class Session:
    """One client. `news` is the stream of what belongs to no request."""

    def __init__(self, service: Service, client: Client) -> None:
        self.id = token_hex(16)
        self.client = client
        self.used = monotonic()
        self.news = Stream("0")
        self.conversation = Conversation(service, client, self.news.push)
        self._streams: OrderedDict[str, Stream] = OrderedDict({"0": self.news})
        self._numbers = count(1)

    @property
    def primes(self) -> bool:
        return self.client.revision >= PRIMED_SINCE

    def stream(self) -> Stream:
        """A new one, for the answer to a request."""
        made = Stream(str(next(self._numbers)))
        self._streams[made.id] = made
        for id, old in list(self._streams.items()):
            if len(self._streams) <= MOST_STREAMS:
                break
            if old.is_over:
                del self._streams[id]
        return made

    def found(self, event_id: str) -> tuple[Stream, int] | None:
        """The stream that an event belongs to, and the event's number."""
        id, _, number = event_id.partition("-")
        stream = self._streams.get(id)
        return (stream, int(number)) if stream and number.isdecimal() and len(number) < 10 else None

    def forget(self, stream: Stream) -> None:
        """Nothing was said on it that a client could come back for."""
        self._streams.pop(stream.id, None)

    async def close(self) -> None:
        """What it wanted is wanted no more, and its streams end."""
        self.conversation.close()
        await ended(stream.outlet for stream in self._streams.values())


class Sessions:
    """By their ids, which nobody can guess. Those that are not used any more go."""

    def __init__(self, service: Service, now: Callable[[], float] = monotonic) -> None:
        self._service = service
        self._now = now
        self._known: OrderedDict[str, Session] = OrderedDict()  # the longest unused first

    def open(self, client: Client) -> Session:
        self._sweep()
        session = Session(self._service, client)
        self._known[session.id] = session
        return session

    def get(self, id: str, owner: str) -> Session | None:
        """The session, if it is this owner's."""
        session = self._known.get(id)
        if session is None or session.client.owner != owner:
            return None
        session.used = self._now()
        self._known.move_to_end(id)
        return session

    async def close(self, session: Session) -> None:
        self._known.pop(session.id, None)
        await session.close()

    async def stop_news(self) -> None:
        """The server stops: streams that would go on for ever end; requests are still answered."""
        await ended(session.news.outlet for session in self._known.values())

    def _sweep(self) -> None:
        for _ in range(AT_ONCE):  # a few with every new one: a sweep of thousands would hold up everybody
            oldest = next(iter(self._known.values()), None)
            too_many = len(self._known) >= MOST_SESSIONS
            if oldest is None or not (too_many or self._now() - oldest.used >= IDLE_SECONDS):
                return
            if oldest.news.outlet is not None and not too_many:  # it listens
                self.get(oldest.id, oldest.client.owner)
                continue
            del self._known[oldest.id]
            oldest.conversation.close()
            if oldest.news.outlet is not None:
                oldest.news.outlet.drop()


async def ended(outlets: Iterable[Outlet | None]) -> None:
    """End them side by side; one whose client does not read is not waited for."""
    ending = [asyncio.ensure_future(outlet.end()) for outlet in outlets if outlet is not None]
    if ending:
        await asyncio.wait(ending, timeout=LAST_WORDS)
