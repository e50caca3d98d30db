"""One session, while a turn of it is under way: what was said, and what is being said, written down at once."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from msgspec import UNSET, UnsetType

from onetool.ask.messages import Assistant, Call, Result, SessionMessage, Usage, User
from onetool.ask.sessions.records import (
    Allowed,
    SessionContent,
    SessionHeader,
    TurnEnd,
    TurnEnded,
    message_line,
    record_line,
    title_of,
)
from onetool.core.text import replace_all_surrogates

LONGEST_OWNER = 300  # characters in the first line, which has to stay short


class SessionWriter(Protocol):
    """Where a turn writes: nobody else does until it is closed. All methods raise SessionError, but `close`."""

    def read(self) -> bytes:
        """All lines so far."""
        ...

    def append(self, lines: bytes) -> None:
        """Add whole lines. It does not block: what takes long is written meanwhile, and told by the next call."""
        ...

    def flush(self) -> None:
        """Wait until everything is written that was added."""
        ...

    async def settle(self) -> None:
        """`flush` for an event loop."""
        ...

    def make_safe(self, *, is_new: bool) -> None:
        """What was added survives the machine's end. May take long."""
        ...

    def give_back(self) -> None:
        """Let others have it as soon as this returns, where that takes long. Never raises."""
        ...

    def close(self) -> None:
        """Others may have it, soon at the latest. It does not block, and never raises."""
        ...


class ChatSession:
    """A session during one turn, made by `AskSessions.turn`. Nobody else has it meanwhile."""

    def __init__(
        self,
        id: str,
        writer: SessionWriter,
        content: SessionContent,
        *,
        is_new: bool,
        now: Callable[[], float],
        owner: str = "",
    ) -> None:
        self.id = id
        self._owner = replace_all_surrogates(owner[:LONGEST_OWNER]) or UNSET
        self.is_new = is_new
        self.messages: list[SessionMessage] = []
        self.usage = content.usage  # of the turns that came to their end
        self.damaged = content.damaged
        self.allowed = content.allowed  # the tools that it was last given; None: nobody has said any
        self._title = UNSET if content.title is None else content.title
        self._writer = writer
        self._now = now
        self._has_first_line = content.begun is not None
        self._is_safe = True
        self._unwritten = b""  # goes with the next message: where nothing is said, nothing is kept
        self._calls: dict[str, Call] = {}
        self._values: dict[str, Any] = {}
        for message, _ in content.said:
            self._take(message)

    def append(self, message: SessionMessage) -> None:
        """To what is kept, and to the messages. Raises SessionError."""
        at = round(self._now(), 3)
        written, message = message_line(message, at)
        if not self._has_first_line:
            written = self._first_line(at, message) + written
        self._writer.append(written + self._unwritten)
        self._has_first_line, self._unwritten = True, b""
        self._take(message)

    def _first_line(self, at: float, message: SessionMessage) -> bytes:
        return record_line(SessionHeader(id=self.id, created=at, title=title_of(message), owner=self._owner))

    def allow(self, tools: Iterable[str]) -> None:
        """These tools alone, in this turn and in those after it."""
        names = tuple(sorted(tools))
        if names != self.allowed:
            self.allowed = names
            self._unwritten = record_line(Allowed(tools=names, at=round(self._now(), 3)))

    def end(
        self, provider: str, model: str, usage: Usage, steps: int, how: TurnEnd | UnsetType = UNSET, why: str = ""
    ) -> None:
        """A turn has come to its end: that is written down; leaving `turn` makes it safe. Raises SessionError."""
        total = self.usage + usage
        turns = sum(isinstance(message, User) for message in self.messages)
        ended = TurnEnded(
            at=round(self._now(), 3),
            provider=provider,
            model=model,
            usage=usage,
            steps=steps,
            turns=turns,
            total=total,
            title=self._title,
            how=how,
            why=why,
        )
        self._writer.append(record_line(ended))
        self.usage = total
        self._is_safe = False

    def cached(self, name: str, args: Mapping[str, Any]) -> Any | UnsetType:
        """What the same tool gave for the same arguments, where that may be used again; else UNSET.

        The same arguments are the same JSON, in whatever order: 1, 1.0 and true are three things.
        """
        key = call_key(name, args)
        return UNSET if key is None else self._values.get(key, UNSET)

    def make_safe(self) -> None:
        """What has ended survives the machine's end, too. May take long on a slow disk. Raises SessionError."""
        self._writer.flush()
        if not self._is_safe:
            self._writer.make_safe(is_new=self.is_new)
            self._is_safe = True

    def finish(self) -> None:
        """The turn has ended: make it safe, and give it back. May take long. Raises SessionError."""
        try:
            self.make_safe()
        finally:
            self._writer.give_back()

    async def settle(self) -> None:
        """What was said so far is written when this returns. Raises SessionError."""
        await self._writer.settle()

    def close(self) -> None:
        """Others may have it. Nothing more is written."""
        self._writer.close()

    def _take(self, message: SessionMessage) -> None:
        self.messages.append(message)
        if isinstance(message, Assistant):
            self._calls = {call.id: call for call in message.calls}
        elif isinstance(message, Result) and message.ok and message.value is not UNSET:
            call = self._calls.get(message.call)
            key = call_key(call.name, call.args) if call and call.malformed is None else None
            if key is not None:
                self._values[key] = message.value


def call_key(name: str, args: Mapping[str, Any]) -> str | None:
    """A key that is the same for the same call; None if the arguments are not JSON."""
    try:
        return json.dumps([name, dict(args)], sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return None
