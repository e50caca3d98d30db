"""Reads a provider's streamed answer: server-sent events or JSON lines, and how long to wait for the next one."""

import asyncio
import codecs
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Literal

import msgspec

from onetool.ask.providers import ReplyReader
from onetool.core.text import replace_all_surrogates
from onetool.http.body import BodyStream, EventDecoder, Framing, each_event, event_value
from onetool.http.errors import InvalidResponseError, RequestTimeoutError

LARGEST = 16 * 1024 * 1024  # bytes of one event, or one line


class StreamStalledError(RequestTimeoutError):
    """Nothing was received for too long. It is not retried: that would take as long again."""

    again = False


class JsonLines:
    """Framing of a stream with one JSON object per line; same interface as `Events`."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest: list[str] = []  # of a line that has not ended yet, in pieces

    def feed(self, piece: bytes, last: bool = False) -> list[str]:
        first, *others = self._decode(piece, last).split("\n")
        self._rest.append(first)
        if not others:
            return []
        lines = ["".join(self._rest), *others]
        self._rest = [lines.pop()]
        return [line for line in lines if line.strip()]

    def end(self) -> list[str]:
        return [*self.feed(b"", last=True), *self.feed(b"\n")]


class _BoundedFraming:
    """Wraps a framing, and limits the size of one event."""

    def __init__(self, framing: Framing, host: str) -> None:
        self._framing, self._host = framing, host
        self._pending = 0

    def feed(self, piece: bytes) -> list[str]:
        found = self._framing.feed(piece)
        self._pending = 0 if found else self._pending + len(piece)
        if self._pending > LARGEST:
            raise InvalidResponseError(f"{self._host} sends one event of more than {LARGEST:,} bytes")
        return found

    def end(self) -> list[str]:
        return self._framing.end()


async def each_stream_value(
    pieces: BodyStream, framing: Literal["events", "lines"], host: str, timeouts: Callable[[], float | None]
) -> AsyncGenerator[Any]:
    """The value of each event or line: its JSON, or the text if it is not JSON.

    `timeouts` gives the seconds to wait for the next byte; None waits for ever. `StreamStalledError` is raised after
    that, and where there are none left: also when there would be something at hand.
    """
    frames = _BoundedFraming(EventDecoder() if framing == "events" else JsonLines(), host)
    async with (
        aclosing(_with_timeout(pieces, host, timeouts)) as coming,
        aclosing(each_event(coming, frames)) as texts,
    ):
        async for text in texts:
            yield event_value(text)


async def _with_timeout(pieces: BodyStream, host: str, timeouts: Callable[[], float | None]) -> AsyncGenerator[bytes]:
    async with aclosing(aiter(pieces)) as coming:
        while (piece := await _next_piece(coming, host, timeouts())) is not None:
            yield piece


async def _next_piece(coming: AsyncGenerator[bytes], host: str, seconds: float | None) -> bytes | None:
    silent = StreamStalledError(f"{host} did not go on with its answer", max(seconds or 0, 0))
    if seconds is not None and seconds <= 0:
        raise silent
    try:
        async with asyncio.timeout(seconds):
            return await anext(coming, None)
    except TimeoutError:
        raise silent from None


def encode_body(body: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(replace_all_surrogates(body))


# Timeouts: until the answer begins, while it goes on, and after it is complete


SILENCE = 120.0  # seconds without a byte, once an answer has begun: before that a model may think as long as it likes
AFTERWARDS = 3.0  # seconds in all for what may follow an answer that is complete: how many tokens it took …
ENDING = 0.1  # … and for the end of the body, where nothing may follow: then the connection can be used again


class StreamTimeouts:
    """The timeouts of one streamed answer. `until` is the loop time of the deadline."""

    def __init__(self, reader: ReplyReader, silence: float, until: float) -> None:
        self._reader, self._silence, self._until = reader, silence, until
        self._now = asyncio.get_running_loop().time
        self._ends = until
        self._begun = self._was_complete = False

    def seconds(self) -> float | None:
        """Seconds to wait for the next byte; None waits until the deadline."""
        if self._reader.is_complete:
            return self._ends - self._now()
        return self._silence if self._begun else None

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed, also for a stream that never pauses."""
        return self._now() >= self._ends

    def event_received(self, has_delta: bool) -> None:
        """An event was received. `has_delta`: it had more of the answer. Some servers say `complete` with each one."""
        self._begun = True
        if self._reader.has_ended:
            self._ends = min(self._ends, self._now() + ENDING)
        elif self._reader.is_complete and (has_delta or not self._was_complete):
            self._was_complete = True
            self._ends = min(self._until, self._now() + AFTERWARDS)
