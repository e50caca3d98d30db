"""The ASGI apps of /events and /status: changes and calls as a stream, and the state of the server.

/events sends server-sent events:

    hello    {version, instance}      the first event; a new instance means that the server was restarted
    changed  {tools}                  the catalogue, a switch or a server has changed; read it again
    call     {bundleID, toolSlug, version, name, ok, durationMs, source, at}     a call has ended
             {dropped}                number of calls left out because this reader was too slow

Readers get their own calls, admins all calls; and only calls of tools that lists show to them.

While there are readers, a task looks for changes and turns calls into events. A thread looks up the bundle of a call.
/status also reports the client's permissions.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from secrets import token_hex
from time import monotonic, time
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from onetool._version import __version__
from onetool.app import App
from onetool.app.allow_lists import Offered
from onetool.core.context import CallEvent
from onetool.core.fair_shares import FairShares
from onetool.core.principal import Principal, is_admitted
from onetool.core.spec import ToolSpec
from onetool.core.text import utc_text_ms
from onetool.http.asgi import HEAD, Receive, Scope, Send, encode
from onetool.http.response_stream import EVENT_HEADERS, KEEP_ALIVE_S, STILL_HERE, DisconnectWatch
from onetool.interfaces.rest import EVENTS_PATH, STATUS_PATH
from onetool.interfaces.rest.app import RestApp
from onetool.interfaces.rest.invoke import sse_event, wants_events
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.query import read_query
from onetool.interfaces.rest.request import RestResponse, refuse_tools
from onetool.interfaces.rest.route import EVENT_STREAM, RestRoute

log = logging.getLogger("onetool.serve")
MAX_READERS = 64
MAX_UNREAD = 1000  # events that wait for a reader
MAX_CALLS = 10_000  # calls that wait to be turned into events
CHECK_SECONDS = 0.25  # between two checks for changes, and between two events `changed`
GATHER_SECONDS = 0.05  # for which calls are gathered
RETRY_SECONDS = 5

_CHANGED = sse_event("changed", encode({"tools": True}))


class EndedCall(NamedTuple):
    """A finished call, without its arguments and its value."""

    spec: ToolSpec
    ok: bool
    duration_ms: float
    source: str
    at: str
    owner: str


class Reader:
    """The events that one client has not read yet. `principal` is the client."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self._unread: deque[bytes] = deque()
        self._dropped = 0
        self._more = asyncio.Event()

    def push(self, event: bytes) -> None:
        if len(self._unread) >= MAX_UNREAD:
            self._dropped += 1
        else:
            self._unread.append(event)
        self._more.set()

    def wake(self) -> None:
        self._more.set()

    async def next(self) -> bytes:
        """Wait for events and return all of them; after a while without events, return a comment."""
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await self._more.wait()
        except TimeoutError:
            return STILL_HERE
        self._more.clear()
        events = list(self._unread)
        self._unread.clear()
        if self._dropped:
            events += [sse_event("call", encode({"dropped": self._dropped})), _CHANGED]  # may be among them
            self._dropped = 0
        return b"".join(events)


EVENTS = RestRoute(
    "GET",
    EVENTS_PATH,
    "Server",
    sends=(EVENT_STREAM,),
    errors=(406,),
    id="readEvents",
    doc="""Read events as they happen.

Needs `Accept: text/event-stream`. The first event is `hello` {version, instance}. `changed` {tools} is sent when tools,
switches, servers or files to reload have changed, at most four times a second. `call` {bundleID, toolSlug, version,
name, ok, durationMs, source, at} is sent when a call has ended, or with {dropped} if the client was too slow. Only
admins get calls of other callers. A comment is sent every 15 seconds. At most 64 clients can read at once; more get
503.""",
)


class EventsApp(RestApp):
    """The ASGI app of /events."""

    def __init__(self, app: App, allowed: Offered = None, instance: str = "") -> None:
        super().__init__(app, allowed)
        self._instance = instance or token_hex(8)
        self._readers: set[Reader] = set()
        self._is_stopping = False
        self._watch: ChangeWatch | None = None

    async def stop(self) -> None:
        self._is_stopping = True
        for reader in self._readers:
            reader.wake()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> RestResponse | None:
        refuse_tools(scope)
        read_query(scope["query_string"], None)
        if not wants_events(scope[HEAD].get(b"accept", b"")):
            message = f"{EVENTS_PATH} is a stream of events: send `Accept: {EVENT_STREAM}`."
            raise RestError(406, "not_acceptable", message, part="header", pointer="/Accept")
        principal = self._context.principal
        held = Counter(reader.principal.caller for reader in self._readers)
        if not FairShares(MAX_READERS, held).has_room(principal.caller):
            message = f"{MAX_READERS} clients are reading events already: close another page, or try again later."
            raise RestError(503, "too_many_readers", message, headers=[(b"retry-after", b"%d" % RETRY_SECONDS)])
        reader = Reader(principal)
        reader.push(sse_event("hello", encode({"version": __version__, "instance": self._instance})))
        self._readers.add(reader)
        if self._watch is None:
            self._watch = ChangeWatch(self._context.app, self._send, self._send_call)
        try:
            with DisconnectWatch(receive):
                headers = [*EVENT_HEADERS, (b"x-content-type-options", b"nosniff")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                while not self._is_stopping:
                    events = await reader.next()
                    if not is_admitted.get()():  # signed out, or the token was changed
                        break
                    await send({"type": "http.response.body", "body": events, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        finally:
            self._readers.discard(reader)
            if not self._readers and self._watch is not None:
                self._watch.close()
                self._watch = None
        return None

    def _send(self, event: bytes) -> None:
        for reader in self._readers:
            reader.push(event)

    def _send_call(self, call: EndedCall, event: bytes) -> None:
        for reader in self._readers:
            principal = reader.principal
            if call.owner != principal.lasting_owner and not principal.may("admin"):
                continue
            allowed = self._context.allow_lists.of(principal)
            if allowed is None or principal.may("edit") or call.spec.name in allowed:
                reader.push(event)


class ChangeWatch:
    """A watch for changes and calls that announces them until it is closed. Belongs to one event loop."""

    def __init__(self, app: App, send: Callable[[bytes], None], send_call: Callable[[EndedCall, bytes], None]) -> None:
        self._app, self._send, self._send_call = app, send, send_call
        self._calls: deque[EndedCall] = deque(maxlen=MAX_CALLS)
        self._loop = asyncio.get_running_loop()
        self._is_changed = False
        self._wake = asyncio.Event()
        self._state = app.catalog.server_health(), app.pending_count
        self._ends = (app.on_change(self._changed), app.on_call(self._called))
        self._task = self._loop.create_task(self._keep())

    def close(self) -> None:
        for end in self._ends:
            end()
        self._task.cancel()

    def _changed(self) -> None:
        """Announce a change, from any thread."""
        self._is_changed = True

    def _called(self, event: CallEvent) -> None:
        """Announce a call, from any thread."""
        if event.spec is None:
            return
        duration, at = round(event.duration_ms, 3), utc_text_ms(time())
        self._calls.append(EndedCall(event.spec, event.ok, duration, event.source, at, event.principal.lasting_owner))
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    async def _keep(self) -> None:
        next_check = 0.0
        while True:
            try:
                if self._calls:
                    calls = [self._calls.popleft() for _ in range(len(self._calls))]
                    for call, event in await asyncio.to_thread(self._events, calls):
                        self._send_call(call, event)
                if (now := monotonic()) >= next_check:
                    next_check = now + CHECK_SECONDS
                    await self._app.catalog.refresh(at_once=True)
                    state = self._app.catalog.server_health(), self._app.pending_count
                    if self._is_changed or state != self._state:
                        self._state, self._is_changed = state, False
                        self._send(_CHANGED)
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._wake.wait()
                self._wake.clear()
                await asyncio.sleep(GATHER_SECONDS)
            except TimeoutError:
                pass
            except Exception as error:  # noqa: BLE001 - the next attempt may succeed
                log.warning("events: %s: %s", type(error).__name__, error)
                await asyncio.sleep(CHECK_SECONDS)

    def _events(self, calls: Iterable[EndedCall]) -> list[tuple[EndedCall, bytes]]:
        service = self._app.bundles
        found: list[tuple[EndedCall, bytes]] = []
        for call in calls:
            if (place := service.place_of(call.spec)) is not None:
                row: dict[str, Any] = dict(zip(("bundleID", "toolSlug", "version"), place, strict=True))
                more = {"name": call.spec.name, "ok": call.ok, "durationMs": call.duration_ms}
                data = {**row, **more, "source": call.source, "at": call.at}
                found.append((call, sse_event("call", encode(data))))
        return found


# The server itself


class StatusReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of the server, and the permissions of this client."""

    version: str
    url: str
    needs_token: Annotated[bool, Meta(description="Whether requests need a credential: a token, a session or a JWT.")]
    can_change: Annotated[bool, Meta(description="Whether this client has the role edit or admin.")]
    is_admin: Annotated[bool, Meta(description="Whether this client has the role admin.")]
    is_capped: Annotated[bool, Meta(description="Whether the server allows calls only, and the token allows more.")]
    tools: Annotated[int, Meta(description="The number of tools.")]
    health: Annotated[dict[str, Any], Meta(description="The report of `onetool health`.")]
    config: Annotated[str | None, Meta(description="The config file in use; null: the defaults.")]
    follows_files: Annotated[bool, Meta(description="Whether changes to the config apply without a reload.")]
    pending: Annotated[
        int, Meta(description="The number of noticed changes that wait for a reload; 0 if `followsFiles` is false.")
    ]


STATUS = RestRoute(
    "GET", STATUS_PATH, "Server", gives=StatusReport, id="getStatus", doc="Get the state of this server."
)


class StatusApp(RestApp):
    """The ASGI app of /status."""

    def __init__(
        self, app: App, url: Callable[[Scope], str], needs_token: Callable[[Scope], bool], allowed: Offered = None
    ) -> None:
        """Report on the app. `url` returns the address at which a client reaches the server."""
        super().__init__(app, allowed)
        self._url = url
        self._needs_token = needs_token

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> RestResponse | None:
        refuse_tools(scope)
        read_query(scope["query_string"], None)
        return RestResponse(200, encode(await asyncio.to_thread(self._report, scope)))

    def _report(self, scope: Scope) -> StatusReport:
        app, allowed = self._context.app, self._context.allowed
        file = app.config.path
        return StatusReport(
            version=__version__,
            url=self._url(scope),
            needs_token=self._needs_token(scope),
            can_change=self._context.may_change,
            is_admin=self._context.principal.may("admin"),
            is_capped=self._context.principal.is_capped,
            tools=app.catalog.count(allowed),
            health=app.health(allowed, with_findings=False),
            config=None if file is None else str(file),
            follows_files=app.follows_files,
            pending=app.pending_count,
        )
