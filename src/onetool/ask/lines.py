"""The bytes between us and a provider: a request's body as JSON; a stream's pieces, cut into what they say."""

import asyncio
import codecs
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Literal

import msgspec

from onetool.core.halves import all_mended
from onetool.handlers.http.faults import Garbled, TooLate
from onetool.handlers.http.pieces import Pieces
from onetool.handlers.http.sse import Events, Framing, each_event, event_value

LARGEST = 16 * 1024 * 1024  # bytes of one event, or one line


class Silent(TooLate):
    """Nothing came for so long. Whether the next try would be better, nobody knows; it would take as long."""

    again = False


class Lines:
    """Like `Events`, of a stream that has an object in each line."""

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


class _Bounded:
    """A framing that gives up where nothing ends."""

    def __init__(self, framing: Framing, place: str) -> None:
        self._framing, self._place = framing, place
        self._pending = 0

    def feed(self, piece: bytes) -> list[str]:
        found = self._framing.feed(piece)
        self._pending = 0 if found else self._pending + len(piece)
        if self._pending > LARGEST:
            raise Garbled(f"{self._place} sends one event of more than {LARGEST:,} bytes")
        return found

    def end(self) -> list[str]:
        return self._framing.end()


async def each_value(
    pieces: Pieces, framing: Literal["events", "lines"], place: str, patience: Callable[[], float | None]
) -> AsyncGenerator[Any]:
    """What one event or line after another says: its JSON, or the text that is none.

    `patience` tells how many seconds there may be nothing now; None is for ever. `Silent` is raised after that, and
    where there are none left: also when there would be something at hand.
    """
    frames = _Bounded(Events() if framing == "events" else Lines(), place)
    async with (
        aclosing(_patient(pieces, place, patience)) as coming,
        aclosing(each_event(coming, frames)) as texts,
    ):
        async for text in texts:
            yield event_value(text)


async def _patient(pieces: Pieces, place: str, patience: Callable[[], float | None]) -> AsyncGenerator[bytes]:
    async with aclosing(aiter(pieces)) as coming:
        while (piece := await _next(coming, place, patience())) is not None:
            yield piece


async def _next(coming: AsyncGenerator[bytes], place: str, seconds: float | None) -> bytes | None:
    silent = Silent(f"{place} did not go on with its answer", max(seconds or 0, 0))
    if seconds is not None and seconds <= 0:
        raise silent
    try:
        async with asyncio.timeout(seconds):
            return await anext(coming, None)
    except TimeoutError:
        raise silent from None


def encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(all_mended(body))
