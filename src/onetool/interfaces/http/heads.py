"""`HttpConnection` is uvicorn's protocol with two additions that uvicorn lacks.

`HeadWatch` limits the heads of requests; other limits for slow clients are the work of a reverse proxy. `JoinedWrites`
sends a response in one piece. Only methods of `asyncio.Protocol` and `asyncio.Transport` are extended.
"""

import asyncio
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from onetool.core.system import has_unread
from onetool.http.asgi import MAX_HEAD

HEAD_S = 15.0  # for a complete head, from its first byte on; for the first one, from the connection on
RECENT_S = 2.0  # a client that connected or sent something in that time may be about to send a request


class HeadWatch:
    """Ends a connection whose head is too slow or too large, or which sends what uvicorn would misread.

    uvicorn adds headers that follow a body to the checked ones, and drops the host of `GET http://elsewhere/ HTTP/1.1`.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._parser = HttpRequestParser(self)  # calls the methods `on_…`
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(HEAD_S, transport.close)
        self._is_head = self._is_body = self._has_url = self._is_bad = False
        self._size = 0  # received bytes of an incomplete head, without the first piece
        self._active_at = self._loop.time()

    def feed(self, data: bytes) -> bool:
        """Return whether the connection goes on. Errors of the parser are uvicorn's to answer."""
        self._active_at = self._loop.time()
        self._size = self._size + len(data) if self._is_head else 0
        self._is_head = not self._is_body
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._is_head = False
        if not self._is_head:
            if self._timer is not None:
                self.end()
        elif self._timer is None:
            self._timer = self._loop.call_later(HEAD_S, self._transport.close)
        if self._is_head and self._size > MAX_HEAD:
            self._refuse(b"431 Request Header Fields Too Large")
        elif self._is_bad:
            self._refuse(b"400 Bad Request")
        return not self._transport.is_closing()

    def end(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_url(self, part: bytes) -> None:
        self._is_bad |= not self._has_url and part[:1] != b"/"
        self._is_head = self._has_url = True

    def on_header(self, _name: bytes, _value: bytes) -> None:
        self._is_bad |= self._is_body

    def on_headers_complete(self) -> None:
        self._is_head, self._is_body, self._has_url = False, True, False

    def on_message_complete(self) -> None:
        self._is_body = False

    def may_ask(self) -> bool:
        """Return whether a client, not a replica, may be about to send a request."""
        if self._transport.is_closing() or not isinstance(self._transport.get_extra_info("peername"), tuple):
            return False
        return self._is_head or self.has_unread() or self._loop.time() - self._active_at < RECENT_S

    def has_unread(self) -> bool:
        """Return whether received data waits for the loop. Closing the connection would lose it."""
        found = None if self._transport.is_closing() else self._transport.get_extra_info("socket")
        return found is not None and has_unread(found.fileno())

    def _refuse(self, status: bytes) -> None:
        self._transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self._transport.close()


class JoinedWrites:
    """A transport that sends the head of a response together with its body, if that follows at once.

    Two writes take the kernel and the client twice the time.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        elif data.startswith(b"HTTP/1.1 "):
            self._head = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class HttpConnection(HttpToolsProtocol):
    """uvicorn's protocol for a connection. `watches` has those of all open connections."""

    def __init__(self, *args: Any, watches: set[HeadWatch], **options: Any) -> None:
        super().__init__(*args, **options)
        self.__watches = watches

    def connection_made(self, transport: Any) -> None:
        self.__watch = HeadWatch(transport)
        self.__watches.add(self.__watch)
        super().connection_made(JoinedWrites(transport))  # pyright: ignore[reportArgumentType]

    def connection_lost(self, exc: Exception | None) -> None:
        self.__watch.end()
        self.__watches.discard(self.__watch)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.__watch.feed(data):
            super().data_received(data)
