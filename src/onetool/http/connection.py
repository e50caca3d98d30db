"""An HTTP/1.1 connection for one request at a time: an asyncio Protocol with httptools as its parser.

Heads, bodies (as sent and decompressed) and times are limited while they are read. Unexpected bytes after a response
end the connection, so that a response is never matched with another request.
"""

import asyncio
from collections.abc import Callable

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from onetool.http.body import BodyStream, CompressedBody, decompressor, too_large
from onetool.http.errors import (
    InvalidResponseError,
    RequestTimeoutError,
    StaleConnectionError,
    UnreachableError,
    WireError,
)

MAX_HEAD = 64 * 1024
MAX_READ = 256 * 1024  # the largest read of a transport
MAX_HEADERS = 200
CHUNK_LINES = 24  # bytes around one chunk: its size and two line ends. More is an extension
MAX_INTERIM = 20  # responses like "103 Early Hints"
_LENGTH_HEADERS = ("content-length", "transfer-encoding")


class HttpResponse(msgspec.Struct, eq=False):
    """A server's response: status, reason, headers by their names in lower case, and the body.

    A streamed response has its body in `stream`.
    """

    status: int = 0
    reason: str = ""
    headers: dict[str, str] = {}
    body: bytes = b""
    stream: BodyStream | None = None


class Connection(asyncio.Protocol):
    """A connection to a server. `on_lost` is called if it closes while idle."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str, on_lost: Callable[["Connection"], None]) -> None:
        self._loop = loop
        self._address = address  # for messages: host and port
        self._on_lost = on_lost
        self._transport: asyncio.Transport = None  # pyright: ignore[reportAttributeAccessIssue]
        self._parser = HttpResponseParser(self)
        self._fresh = True  # whether the parser is at the beginning of a response
        self._waiter: asyncio.Future[HttpResponse] | None = None
        self._stream_body: BodyStream | None = None
        self._complete = True
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self.used = 0  # responses so far
        self.since = 0.0  # when it became idle
        self.keep = True  # whether it is reusable

    # One exchange

    def exchange(
        self, request: bytes, is_head: bool, max_bytes: int, deadline: float, stream: bool, seconds: float
    ) -> "asyncio.Future[HttpResponse]":
        """Send a request. The future resolves to the complete answer, or to the head of a streamed one.

        `seconds` is the whole time limit of the request, for messages.
        """
        self._answer = HttpResponse()
        self._parts: list[bytes] = []
        self._max_bytes, self._is_head, self._stream, self._seconds = max_bytes, is_head, stream, seconds
        self._left = max_bytes  # bytes of the body that may still arrive, as sent
        self._has_head = False
        self._compressed: CompressedBody | None = None
        self._error: WireError | None = None
        self._head_bytes = self._headers = self._interim = 0
        self._overhead = 0  # bytes of the response other than the body and the lines around its chunks
        self._complete = self._has_data = False
        if not self._fresh:
            self._parser, self._fresh = HttpResponseParser(self), True
        waiter = self._waiter = self._loop.create_future()
        if self._transport.is_closing():  # it closed between two iterations of the loop
            self.end(StaleConnectionError(f"{self._address} closed the connection", sent=False))
            return waiter
        self._deadline = deadline
        if self._timer is None or self._timer.when() > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._deadline_passed)
        self._transport.write(request)
        return waiter

    def end(self, error: WireError | None = None) -> None:
        """Close at once. A pending response fails with `error`."""
        self.keep = False
        waiter, pieces, timer = self._waiter, self._stream_body, self._timer
        self._waiter = self._stream_body = self._timer = None
        if timer is not None:
            timer.cancel()
        self._transport.abort()
        error = error or UnreachableError(f"the connection to {self._address} was closed", again=False)
        if pieces is not None:
            pieces.finish(error)
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)

    def is_free(self) -> bool:
        """Return whether the connection is open and can take another request."""
        return self._complete and self.keep and not self._transport.is_closing()

    def set_reading(self, is_wanted: bool) -> None:
        """Pause or resume reading, for backpressure."""
        if self._transport.is_closing():
            return
        if is_wanted:
            self._transport.resume_reading()  # even after a complete response: the next one uses the same transport
        elif not self._complete:
            self._transport.pause_reading()

    # One timer for many requests. If it fires before the current deadline, it is set again.

    def _deadline_passed(self) -> None:
        self._timer = None
        if self._waiter is None and self._stream_body is None:
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._deadline_passed)
        else:
            what = "did not complete its response" if self._has_data else "did not answer"
            self.end(RequestTimeoutError(f"{self._address} {what}", self._seconds))

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # pyright: ignore[reportAttributeAccessIssue]

    def data_received(self, data: bytes) -> None:
        if self._waiter is None and self._stream_body is None:
            self.end()  # no request is pending
            return
        self._has_data = True
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self.end(InvalidResponseError(f"{self._address} switches to another protocol, which is not supported"))
        except HttpParserError as error:
            self.keep = False
            if not self._complete:
                self.end(self._error or InvalidResponseError(f"{self._address} does not speak HTTP: {error}"))
                return
        if self._complete:
            self._finish()
        elif self._overhead > MAX_HEAD + MAX_READ:
            self.end(InvalidResponseError(f"{self._address} sends endless headers or chunk extensions"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.keep = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiter is None and self._stream_body is None:
            self._on_lost(self)
        elif exc is None and self._has_head and self._answer.headers.keys().isdisjoint(_LENGTH_HEADERS):
            self._finish()  # the end of the connection is the end of the body
        else:
            why = f" ({getattr(exc, 'strerror', None) or exc})" if exc else ""
            message = f"{self._address} closed the connection before it answered{why}"
            if self._has_data:
                self.end(UnreachableError(f"{self._address} closed the connection in the middle of its response{why}"))
            else:
                self.end(StaleConnectionError(message, sent=True) if self.used else UnreachableError(message))

    # Callbacks of the parser. feed_data wraps what they raise in an error of its own; `_error` is the original.

    def on_message_begin(self) -> None:
        if self._complete:
            raise self._refused(InvalidResponseError(f"{self._address} sent more than one response"))

    def on_status(self, status: bytes) -> None:
        self._answer.reason += status.decode("latin-1")
        self._head_bytes += len(status)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers += 1
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD or self._headers > MAX_HEADERS:
            raise self._refused(InvalidResponseError(f"{self._address} sends too many or too large headers"))
        if self._has_head:
            return  # a trailer
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers = self._answer.headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        answer = self._answer
        answer.status = status = self._parser.get_status_code()
        if status < 200:
            self._interim += 1
            if self._interim > MAX_INTERIM or status < 100:
                raise self._refused(InvalidResponseError(f"{self._address} sends interim responses only"))
            return
        self.keep = self._parser.should_keep_alive()
        self._has_head = True
        if self._is_head:
            self._complete, self._fresh = True, False  # the parser would wait for a body
            return
        headers = answer.headers
        length = headers.get("content-length")
        if length is not None and int(length) > self._max_bytes and status not in (204, 304):
            raise self._refused(too_large(self._max_bytes))
        if headers.get("transfer-encoding", "chunked").strip().lower() != "chunked":
            message = f"{self._address} sends its response in a transfer encoding that was not requested"
            raise self._refused(InvalidResponseError(message))
        if "content-encoding" in headers:
            try:
                self._compressed = decompressor(headers["content-encoding"], self._max_bytes)
            except WireError as error:
                raise self._refused(error) from None
        if self._stream:
            self._stream_body = answer.stream = BodyStream(self._loop, self.set_reading)
            self._resolve(answer)

    def on_chunk_header(self) -> None:
        self._overhead -= CHUNK_LINES

    def on_body(self, body: bytes) -> None:
        if self._is_head or not self._has_head:
            raise self._refused(InvalidResponseError(f"{self._address} sent a body where none is allowed"))
        self._overhead -= len(body)
        self._left -= len(body)
        if self._left < 0:
            raise self._refused(too_large(self._max_bytes))
        if self._compressed is not None:
            try:
                body = self._compressed.feed(body)
            except WireError as error:
                raise self._refused(error) from None
        if self._stream_body is not None:
            self._stream_body.put(body)
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        if self._has_head:
            self._complete = True
        else:  # of an interim response
            self._answer = HttpResponse()

    def _refused(self, error: WireError) -> WireError:
        self._error = self._error or error
        return error

    # The outcome

    def _finish(self) -> None:
        self._complete = True
        try:
            if self._compressed is not None:
                self._compressed.end()
        except WireError as error:
            self.end(error)
            return
        self.used += 1
        pieces, self._stream_body = self._stream_body, None
        if pieces is not None:
            pieces.finish(None)
        parts = self._parts
        self._answer.body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._resolve(self._answer)

    def _resolve(self, answer: HttpResponse) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)
