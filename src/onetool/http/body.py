"""Reads the body of a response into data, with limits.

While the body arrives, it is decompressed and limited in size, as a whole or as a stream with backpressure. Then it is
decoded as JSON or as server-sent events, with limits on depth and size.
"""

import asyncio
import codecs
import zlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator
from typing import Any, Protocol

import msgspec

from onetool.core.json_data import JsonTooCostlyError, check_json
from onetool.http.errors import InvalidResponseError, ResponseTooLargeError, WireError

GZIP, ZLIB, RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
CODINGS = frozenset(("gzip", "x-gzip", "deflate", "br", "zstd", "compress", "identity"))
MAX_SHOWN = 64 * 1024  # characters of a body shown to a user
LARGE = 256 * 1024  # bytes or characters: larger bodies are decoded in a thread
MAX_MEMBERS = 256  # of one gzip stream: concatenated files are valid, but each costs time
MAX_DEPTH = 200  # levels: recursive functions use Python stack for each level

_HOLDERS = frozenset((list, dict))
_TEXTS = ("application/xml", "application/yaml", "application/x-yaml", "application/javascript", "application/graphql")


def is_text_type(media: str) -> bool:
    """Return whether a body of this media type, in lower case and without parameters, is text."""
    return media.startswith("text/") or media.endswith("+xml") or media in _TEXTS


class CompressedBody:
    """A gzip or deflate body, decompressed to at most `max_bytes` bytes."""

    def __init__(self, coding: str, max_bytes: int) -> None:
        self._left = self._max_bytes = max_bytes
        self._bits = GZIP if coding == "gzip" else 0  # 0: zlib or raw, detected from the first byte
        self._stream = zlib.decompressobj(self._bits) if self._bits else None
        self._members = 1
        self._started = False

    def feed(self, data: bytes) -> bytes:
        if self._stream is None:
            self._bits = ZLIB if data[0] & 0x0F == 8 else RAW  # servers use "deflate" for both
            self._stream = zlib.decompressobj(self._bits)
        self._started = True
        stream, pieces = self._stream, list[bytes]()
        while data:
            try:
                part = stream.decompress(data, self._left + 1)
            except zlib.error as error:
                raise InvalidResponseError(f"the response can't be decompressed: {error}") from None
            self._left -= len(part)
            if self._left < 0:
                raise too_large(self._max_bytes)
            pieces.append(part)
            data = stream.unused_data
            if not stream.eof:
                break
            if data and self._bits == GZIP:
                self._members += 1
                if self._members > MAX_MEMBERS:
                    raise InvalidResponseError(f"the response is compressed as more than {MAX_MEMBERS} parts")
                stream = self._stream = zlib.decompressobj(GZIP)
            elif data:
                raise InvalidResponseError("the response has extra data after the compressed body")
        return b"".join(pieces)

    def end(self) -> None:
        if self._started and self._stream is not None and not self._stream.eof:
            raise InvalidResponseError("the response is truncated: the compressed body is incomplete")


def decompressor(coding: str, max_bytes: int) -> CompressedBody | None:
    """Return a decompressor for this Content-Encoding; None for an uncompressed body."""
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return None
    if coding in ("gzip", "x-gzip"):
        return CompressedBody("gzip", max_bytes)
    if coding == "deflate":
        return CompressedBody("deflate", max_bytes)
    known = all(part.strip() in CODINGS for part in coding.split(","))  # an unknown coding could be a secret
    how = f"the encoding {coding[:40]!r}, which" if known else "an encoding that"
    raise InvalidResponseError(f"the response has {how} was not requested")


def too_large(max_bytes: int) -> ResponseTooLargeError:
    return ResponseTooLargeError(
        f"the response has more than {max_bytes:,} bytes (limits.maxResponseBytes)", "limits.maxResponseBytes"
    )


# Streamed bodies

HIGH_WATER = 256 * 1024  # unread bytes after which reading from the server pauses
LOW_WATER = 64 * 1024


class BodyStream:
    """A response body as an async iterator. Calls `set_reading(False)` above HIGH_WATER and `set_reading(True)` below
    LOW_WATER.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, set_reading: Callable[[bool], None]) -> None:
        self._loop = loop
        self._set_reading = set_reading
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._held = False
        self._ended = False
        self._error: WireError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._closed: Callable[[], None] | None = None

    def put(self, piece: bytes) -> None:
        if not piece:
            return
        self._waiting.append(piece)
        self._size += len(piece)
        if self._size > HIGH_WATER and not self._held:
            self._held = True
            self._set_reading(False)
        self._wake()

    def finish(self, error: WireError | None) -> None:
        self._ended, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def on_close(self, on_close: Callable[[], None]) -> None:
        """Set a function that is called once, when the body has been read or closed."""
        self._closed = on_close

    def close(self) -> None:
        if self._held:  # resume reading whatever happens to the connection
            self._held = False
            self._set_reading(True)
        closed, self._closed = self._closed, None
        if closed is not None:
            closed()

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self])

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        try:
            while True:
                while self._waiting:
                    piece = self._waiting.popleft()
                    self._size -= len(piece)
                    if self._held and self._size < LOW_WATER:
                        self._held = False
                        self._set_reading(True)
                    yield piece
                if self._ended:
                    break
                self._reader = self._loop.create_future()
                await self._reader
            if self._error is not None:
                raise self._error
        finally:
            self.close()


class TooDeepError(JsonTooCostlyError):
    def __init__(self) -> None:
        super().__init__(f"is nested too deep: more than {MAX_DEPTH} levels")


def json_of(text: bytes) -> Any:
    """Parse JSON. Raise JsonTooCostlyError if that would cost too much, or msgspec's error."""
    check_json(text)
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise TooDeepError from None
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH:  # cheap lower bound: fewer brackets can't be too deep
        for number, _ in enumerate(levels(value)):
            if number >= MAX_DEPTH:
                raise TooDeepError
    return value


def levels(value: Any) -> Iterator[list[Any]]:
    """Yield the lists and objects of data by depth, outermost first."""
    level = [value] if type(value) in _HOLDERS else []
    while level:
        yield level
        level = [
            inner
            for container in level
            for inner in (container.values() if type(container) is dict else container)
            if type(inner) in _HOLDERS  # half the time of isinstance
        ]


# Server-sent events

SLICE = 16 * 1024  # bytes parsed in one go: they may contain thousands of events


class StreamedText(str):
    """A piece of the response, reported as progress."""

    __slots__ = ()


class Framing(Protocol):
    """A parser that splits a stream into messages."""

    def feed(self, piece: bytes) -> list[str]: ...
    def end(self) -> list[str]: ...


class EventDecoder:
    """A decoder of server-sent events. `feed` returns the data of each completed event, without names, IDs and
    comments.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._line: list[str] = []  # pieces of an incomplete line
        self._data: list[str] = []  # lines of an incomplete event
        self._started = self._after_return = False

    def feed(self, piece: bytes, last: bool = False) -> list[str]:
        text = self._decode(piece, last)
        if not self._started and text:
            self._started, text = True, text.removeprefix("\ufeff")
        if self._after_return and text:  # a line end may be split between pieces
            self._after_return, text = False, text.removeprefix("\n")
        self._after_return = self._after_return or text.endswith("\r")
        events: list[str] = []
        *lines, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line in lines:
            self._line.append(line)
            self._take("".join(self._line), events)
            self._line.clear()
        if rest:
            self._line.append(rest)
        return events

    def end(self) -> list[str]:
        """Return the last event, even if no blank line follows: not every server sends one."""
        events = self.feed(b"", last=True)
        if self._line:
            self._take("".join(self._line), events)
            self._line.clear()
        self._take("", events)
        return events

    def _take(self, line: str, events: list[str]) -> None:
        if not line:
            if self._data:
                events.append("\n".join(self._data))
                self._data = []
            return
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))


async def each_event(pieces: AsyncIterable[bytes], framing: Framing | None = None) -> AsyncGenerator[str]:
    """Yield the data of each event, or each message of another framing.

    Other tasks get their turn even if many events arrive at once.
    """
    framing = framing or EventDecoder()
    size = 0
    async for piece in pieces:
        for start in range(0, len(piece), SLICE):
            part = piece[start : start + SLICE]
            for data in framing.feed(part):
                yield data
            size += len(part)
            if size >= SLICE:
                size = 0
                await asyncio.sleep(0)
    for data in framing.end():
        yield data


def event_value(data: str) -> Any:
    """Return the data of an event: parsed if it is JSON, else as text."""
    try:
        return json_of(data.encode())
    except (msgspec.MsgspecError, JsonTooCostlyError, UnicodeError):
        return data
