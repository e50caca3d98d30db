"""The streams that the SDK's client takes: the lines of a process, and what some servers leave out.

What is no message (a banner, a stray print) goes into the journal, and the conversation goes on.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from anyio import EndOfStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from onetool.core.json_bounds import MOST_PARTS, TooMuch, check_json
from onetool.sources.mcp_servers.child import Child, Lines
from onetool.sources.mcp_servers.journal import Journal

ANSWERS = re.compile(rb'^\{(?:(?!"(?:result|error|method|params)").)*?"id"\s*:\s*(\d{1,18})\b', re.DOTALL)
MOST_UNANSWERED = 64  # requests of a server; one that only asks and never listens has to wait
PATIENCE = 5.0  # seconds
NEAR = 200  # bytes at its begin where an answer says what it answers, mostly


def has_at_most(parts: int, value: Any) -> bool:
    """Whether data has so few parts that it can be copied and checked without harm: small text can hold millions."""
    left, waiting = parts, [value]
    while waiting:
        inside = waiting.pop()
        if isinstance(inside, dict | list):
            left -= len(inside)
            if left < 0:
                return False
            waiting.extend(inside.values() if isinstance(inside, dict) else inside)
    return True


class Incoming:
    """Its messages, one after the other, until there are no more. The SDK's ReadStream."""

    def __init__(self, lines: Lines, journal: Journal, unanswered: asyncio.Semaphore) -> None:
        self._lines = lines
        self._journal = journal
        self._unanswered = unanswered

    async def receive(self) -> SessionMessage:
        while (line := await self._lines.next()) is not None:
            if (line := line.strip()) and (message := self._message(line)) is not None:
                if isinstance(message.message, JSONRPCRequest):
                    with suppress(TimeoutError):  # it may have taken one back without a word
                        await asyncio.wait_for(self._unanswered.acquire(), PATIENCE)
                return message
        raise EndOfStream

    def _message(self, line: bytes) -> SessionMessage | None:
        try:
            check_json(line)
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            self._journal.aside(line)
            why = f": it {error}" if isinstance(error, TooMuch) else ""
        number = ANSWERS.search(line[:NEAR])
        if number is None:
            return None
        # Whoever waits for this would wait in vain.
        wrong = ErrorData(code=PARSE_ERROR, message=f"its answer can't be read{why}")
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(number[1]), error=wrong))

    async def aclose(self) -> None:
        self._lines.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Completed:
    """Messages of any transport, with what a server of today may leave out and the SDK insists on."""

    def __init__(self, stream: Any, is_modern: Callable[[], bool]) -> None:
        self._stream = stream
        self._is_modern = is_modern

    @property
    def last_context(self) -> Any:
        """In which context the message was sent, where the transport knows."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return self._completed(await self._stream.receive())

    def _completed(self, item: Any) -> Any:
        message = getattr(item, "message", None)
        if not isinstance(message, JSONRPCResponse):
            return item
        if not has_at_most(MOST_PARTS, message.result):
            wrong = ErrorData(code=PARSE_ERROR, message=f"its answer has more than {MOST_PARTS:,} parts")
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=wrong))
        if "resultType" not in message.result and self._is_modern():
            message.result["resultType"] = "complete"
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._completed(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *what: Any) -> None:
        await self._stream.__aexit__(*what)


class Outgoing:
    """What is said to it. The SDK's WriteStream."""

    def __init__(self, child: Child, unanswered: asyncio.Semaphore) -> None:
        self._child = child
        self._unanswered = unanswered

    async def send(self, item: SessionMessage, /) -> None:
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._unanswered.release()
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await self._child.write(text.encode() + b"\n")

    async def aclose(self) -> None:
        """Its input is closed when it is ended."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None
