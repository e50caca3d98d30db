"""One client's connection: uvicorn's protocol with limits, so that slow, silent or endless clients don't harm others.

uvicorn reads a head of any size without a timeout, keeps silent connections forever, and waits forever for clients that
don't read. Here all of this is limited. Every refusal is JSON and has its line in the access log. If there are too many
connections, the one idle longest is closed.

    connected -> head -> body -> answered -> idle -> head …
    `_timer` is set while the head or the rest of the body is missing.
"""

import asyncio
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import HEADER_VALUE_RE, STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from onetool.core.system import has_unread
from onetool.http.asgi import CLOSE, HEAD, MAX_HEAD, SEND_WHOLE, HttpError, read_head
from onetool.interfaces.http.exchange import MAX_PER_ADDRESS, BodiesFullError, BodyMemory, address_key
from onetool.interfaces.http.request_log import LoggedRequest, write_entry

CHUNK_OVERHEAD = 8  # received bytes per byte of a chunked body, at most: a chunk of one byte has five more
MAX_JOINED = 64 * 1024  # bytes of a body that is written together with its head; copying larger bodies costs more
MAX_PIPELINED = 100  # requests on one connection that wait for the response to an earlier one


class ConnectionLimits(NamedTuple):
    head_s: float = 15.0  # to send the head of a request, also the first on a new connection
    body_s: float = 60.0  # to send the body
    idle_s: int = 75  # between two requests; longer than clients keep connections, so that they close first
    stuck_s: float = 60.0  # to begin to read the response
    head_bytes: int = MAX_HEAD
    connections: int = 10_000


class IdleConnections(dict["HttpConnection", None]):
    """Connections without a request in progress, longest idle first."""


RECENT_S = 2.0  # a client answered or connected in that time may be about to send a request
NOTHING, IN_HEAD, IN_BODY, ALL = range(4)  # the received part of the request
_value = itemgetter(1)  # of a header


def send_whole(cycle: RequestResponseCycle, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
    """Send a response to the transport in one piece: uvicorn would write head and body one after the other.

    Return False for large responses and for those that end the connection, which are left to uvicorn.
    """
    is_open = cycle.keep_alive and not cycle.disconnected and not cycle.flow.write_paused
    if not is_open or len(body) > MAX_JOINED or CLOSE in headers or cycle.scope["method"] == "HEAD":
        return False
    if HEADER_VALUE_RE.search(b"".join(map(_value, headers))):
        raise RuntimeError("a header of the response has a control character")
    fields = map(b": ".join, (*cycle.default_headers, *headers))
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(STATUS_LINE[status] + b"\r\n".join((*fields, b"", body)))
    cycle.message_event.set()
    cycle.on_response()
    return True


class HttpConnection(HttpToolsProtocol):
    """A client's connection. Connections share the limits, the list of idle ones and the memory for bodies."""

    def __init__(
        self, *args: Any, limits: ConnectionLimits, waiting: IdleConnections, bodies: BodyMemory, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._limits = limits
        self._bodies = bodies
        self._idle = waiting
        self._requests = NOTHING
        self._size = self._body = 0  # received since the last complete request
        self._pipelined = 0  # bytes of bodies whose requests wait for an earlier response
        self._timer: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self._error: HttpError | None = None  # the error of this head
        self._is_closing = False  # further data is ignored
        self._pending_cycles: list[RequestResponseCycle] = []  # earlier requests, perhaps not answered yet

    # Callbacks of the transport

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._idle[self] = None
        self._timer = self.loop.call_later(self._limits.head_s, self._too_slow)
        if len(self.connections) > self._limits.connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle.pop(self, None)
        self._cancel_timer()
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
        self._is_closing = True
        self._give_back(self._pipelined)
        self.pipeline.clear()
        for cycle in self._pending_cycles:  # uvicorn notifies only the last one
            cycle.disconnected = not cycle.response_complete
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        self._size += len(data)
        super().data_received(data)
        if self._requests == ALL:
            if self._timer is not None:
                self._cancel_timer()
        elif not self._is_closing:
            if self._requests != IN_BODY and self._size > self._limits.head_bytes:
                self._end(self._head_too_large())
            elif self._requests == IN_BODY and self._size > self._body * CHUNK_OVERHEAD + 2 * self._limits.head_bytes:
                self._end(self._head_too_large())  # trailers: headers after the body
            elif self._timer is None:
                timeout = self._limits.body_s if self._requests == IN_BODY else self._limits.head_s
                self._timer = self.loop.call_later(timeout, self._too_slow)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stuck is None:
            self._stuck = self.loop.call_later(self._limits.stuck_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self._requests = IN_HEAD
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._requests == IN_BODY:
            return  # a trailer is not a header, because nothing has checked it
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        if self.pipeline:  # the request is not authenticated yet, so its caller is unknown
            if not self._bodies.take(self._address(), len(body), MAX_PER_ADDRESS):
                self._error = BodiesFullError()
                raise self._error
            self._pipelined += len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            self._error = HttpError(400, "too_many", "Too many pipelined requests on one connection.")
            raise self._error
        if self._size > self._limits.head_bytes:  # may include a part of the body
            head = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if head > self._limits.head_bytes:
                self._error = self._head_too_large()
                raise self._error
        if self.url[:1] != b"/":
            # uvicorn would drop the host of `GET http://elsewhere/ HTTP/1.1`, and the rules would never see it.
            self._error = HttpError(400, "bad_request", "The target of a request must be a path, such as /mcp.")
            raise self._error
        head = read_head(self.headers)
        encoding = head.get(b"transfer-encoding")
        version = self.parser.get_http_version()  # pyright: ignore[reportOptionalMemberAccess] - it calls this
        if encoding is not None and (encoding.lower() != b"chunked" or version != "1.1"):
            # A proxy in front of us may see the end of this body elsewhere, and take the rest for the next request.
            message = "Transfer-Encoding must be given once, as chunked, and in HTTP/1.1 only."
            self._error = HttpError(400, "bad_request", message)
            raise self._error
        self._requests = IN_BODY
        self._idle.pop(self, None)
        if self._timer is not None:
            self._cancel_timer()
        if self.cycle is not None and not self.cycle.response_complete:
            self._pending_cycles.append(self.cycle)
        elif self._pending_cycles:
            self._pending_cycles.clear()
        self.expect_100_continue = head.get(b"expect", b"").lower() == b"100-continue"
        scope: Any = self.scope
        scope[HEAD] = head
        super().on_headers_complete()
        scope[SEND_WHOLE] = partial(send_whole, self.cycle)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        task = asyncio.Task(cycle.run_asgi(app), loop=self.loop)  # not by the task factory, which is for handlers
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._requests = NOTHING if self.cycle.response_complete else ALL
        self._size = self._body = 0

    def on_response_complete(self) -> None:
        if self.pipeline:  # from now on the body counts for its caller
            self._give_back(len(self.pipeline[-1][0].body))
        super().on_response_complete()
        if self.cycle.response_complete:  # otherwise the cycle is that of the next request
            self._idle[self] = None
            if self._requests == ALL:
                self._requests = NOTHING

    def _unsupported_upgrade_warning(self) -> None:
        """Answer the request as plain HTTP and close the connection: WebSockets are not supported."""
        self._is_closing = True
        self.cycle.keep_alive = False

    # The end of a connection

    def send_400_response(self, msg: str) -> None:
        """Refuse malformed HTTP. uvicorn also calls this for exceptions of our own callbacks."""
        message = "Invalid HTTP/1.1 request: its head or its body is malformed."
        self._end(self._error or HttpError(400, "bad_request", message))

    def _too_slow(self) -> None:
        self._timer = None
        if self._requests == IN_HEAD or self._is_busy():
            self._end(HttpError(408, "too_slow", "The request did not arrive in time."))
        else:  # no request, or one answered before it was complete: close without a response
            self.transport.close()

    def _end(self, refused: HttpError) -> None:
        """Stop reading. Earlier pipelined requests get their responses first."""
        self._is_closing = True
        self._cancel_timer()
        if self._is_busy():
            if self._requests != IN_BODY:
                self.cycle.keep_alive = False  # of the last request: its response ends the connection
                return
            self.cycle.disconnected = True  # the error is in its body: the route need not wait for the rest
            self.cycle.message_event.set()
            if self.cycle.response_started or self.pipeline:
                self.transport.close()
                return
        self._refuse(refused)

    def part(self) -> None:
        """Make the current response the last one of this connection; if it has begun, the next response."""
        if self._is_busy() and not self.cycle.response_started:
            self.cycle.keep_alive = False

    def may_ask(self) -> bool:
        """Return whether a client, not a replica, may be about to send another request."""
        if self.client is None or self._is_closing or self.transport.is_closing() or self._is_busy():
            return False
        if self._requests == IN_HEAD or self.has_unread():
            return True
        now, kept = self.loop.time(), self.timeout_keep_alive_task
        if kept is not None:
            return now - (kept.when() - self._limits.idle_s) < RECENT_S
        return self._timer is not None and now - (self._timer.when() - self._limits.head_s) < RECENT_S

    def has_unread(self) -> bool:
        """Return whether received data waits for the loop. Closing the connection would lose it."""
        found = None if self._is_closing else self.transport.get_extra_info("socket")
        return found is not None and has_unread(found.fileno())

    def shutdown(self) -> None:
        """Close the connection. A request that was received is answered first (see `HttpApp.drain`)."""
        if self._is_busy() or not self.has_unread():
            super().shutdown()

    def _make_room(self) -> None:
        oldest = next(iter(self._idle))  # at least this connection
        del self._idle[oldest]
        if oldest is self:
            self._end(HttpError(503, "too_many", "Too many connections are in use; try again later."))
        else:
            oldest.transport.close()

    def _refuse(self, refused: HttpError) -> None:
        """Write an error response directly: there is no complete request for the ASGI app."""
        body = refused.body()
        dated = b"".join(name + b": " + value + b"\r\n" for name, value in self.server_state.default_headers)
        own = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[refused.status] + dated + own + body)
        self.transport.close()
        client = self.client[0] if self.client else None
        more = {"error": refused.code}
        write_entry(
            LoggedRequest(
                method="-", path="-", status=refused.status, seconds=0.0, size=len(body), client=client, more=more
            )
        )

    def _address(self) -> str:
        return address_key({"client": self.client})

    def _give_back(self, size: int) -> None:
        if size:
            self._bodies.give_back(self._address(), size)
            self._pipelined -= size

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _head_too_large(self) -> HttpError:
        most = f"{self._limits.head_bytes // 1024} KiB"
        return HttpError(431, "head_too_large", f"The head of a request may have at most {most}.")

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
