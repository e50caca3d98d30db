"""JSON and Server-Sent Events, decoded within bounds of depth and size."""

import asyncio
import codecs
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from typing import Any, Protocol

import msgspec

from onetool.core.json_data import JsonTooCostlyError, check_json

DEEPEST = 200  # levels: whoever walks through data takes some of Python's own for each

_HOLDERS = frozenset((list, dict))


class TooDeepError(JsonTooCostlyError):
    def __init__(self) -> None:
        super().__init__(f"is nested too deep: more than {DEEPEST} levels")


def json_of(text: bytes) -> Any:
    """The data that a text is; JsonTooCostlyError where it would cost too much, or what msgspec raises."""
    check_json(text)
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise TooDeepError from None
    if text.count(b"[") + text.count(b"{") > DEEPEST:  # else it can't be
        for number, _ in enumerate(levels(value)):
            if number >= DEEPEST:
                raise TooDeepError
    return value


def levels(value: Any) -> Iterator[list[Any]]:
    """The lists and objects of data by depth, outermost first."""
    level = [value] if type(value) in _HOLDERS else []
    while level:
        yield level
        level = [
            inner
            for one in level
            for inner in (one.values() if type(one) is dict else one)
            if type(inner) in _HOLDERS  # which takes half the time of isinstance
        ]


# Server-sent events


SLICE = 16 * 1024  # bytes that are read in one go: they may be thousands of events

_FIELD = "data"


class StreamedText(str):
    """A piece of the response, reported through progress."""

    __slots__ = ()


class Framing(Protocol):
    """How a stream is cut into what it says."""

    def feed(self, piece: bytes) -> list[str]: ...

    def end(self) -> list[str]: ...


class EventDecoder:
    """`feed` gives the data of each event that the bytes complete. Names, ids and comments are left out."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._line: list[str] = []  # a line that has not ended yet, in pieces
        self._data: list[str] = []  # of the event that has not ended yet
        self._begun = self._after_return = False

    def feed(self, piece: bytes, last: bool = False) -> list[str]:
        text = self._decode(piece, last)
        if not self._begun and text:
            self._begun, text = True, text.removeprefix("\ufeff")
        if self._after_return and text:  # a line end may be cut in two
            self._after_return, text = False, text.removeprefix("\n")
        self._after_return = self._after_return or text.endswith("\r")
        found: list[str] = []
        *lines, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line in lines:
            self._line.append(line)
            self._take("".join(self._line), found)
            self._line.clear()
        if rest:
            self._line.append(rest)
        return found

    def end(self) -> list[str]:
        """What was begun: not every server ends its last event properly, and it is complete by its length."""
        found = self.feed(b"", last=True)
        if self._line:
            self._take("".join(self._line), found)
            self._line.clear()
        self._take("", found)
        return found

    def _take(self, line: str, found: list[str]) -> None:
        if not line:
            if self._data:
                found.append("\n".join(self._data))
                self._data = []
            return
        name, _, value = line.partition(":")
        if name == _FIELD:
            self._data.append(value.removeprefix(" "))


async def each_event(pieces: AsyncIterable[bytes], framing: Framing | None = None) -> AsyncGenerator[str]:
    """The data of one event after another, or of what else the framing finds.

    However many have come at once, others have their turn in between.
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
    """What it says in JSON, where it is JSON; else the text."""
    try:
        return json_of(data.encode())
    except (msgspec.MsgspecError, JsonTooCostlyError, UnicodeError):
        return data
