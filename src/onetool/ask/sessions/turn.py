"""`ChatSession`: a session during one turn, with its messages, which are written as they are added."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

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
from onetool.ask.sessions.rows import SessionWriter
from onetool.core.text import replace_all_surrogates
from onetool.core.work import run_in_thread

MAX_OWNER = 300  # characters in the first line, which must stay short


class ChatSession:
    """A session during one turn, created by `SessionStore.turn` and held exclusively."""

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
        self._owner = replace_all_surrogates(owner[:MAX_OWNER]) or UNSET
        self.is_new = is_new
        self.messages: list[SessionMessage] = []
        self.usage = content.usage  # of ended turns
        self.damaged = content.damaged
        self.allowed = content.allowed  # the last allowed tools; None: never set
        self._title = UNSET if content.title is None else content.title
        self._writer = writer
        self._now = now
        self._has_first_line = content.header is not None
        self._unwritten = b""  # written with the next message: a session without messages is not stored
        self._calls: dict[str, Call] = {}
        self._values: dict[str, Any] = {}
        for message, _ in content.messages:
            self._take(message)

    def append(self, message: SessionMessage) -> None:
        """Add a message, which is written soon: see `settle`. Raises SessionError if an earlier write failed."""
        at = round(self._now(), 3)
        written, message = message_line(message, at)
        if not self._has_first_line:
            header = SessionHeader(id=self.id, created=at, title=title_of(message), owner=self._owner)
            written = record_line(header) + written
        self._writer.append(written + self._unwritten)
        self._has_first_line, self._unwritten = True, b""
        self._take(message)

    def allow(self, tools: Iterable[str]) -> None:
        """Allow only these tools, in this turn and later ones."""
        names = tuple(sorted(tools))
        if names != self.allowed:
            self.allowed = names
            self._unwritten = record_line(Allowed(tools=names, at=round(self._now(), 3)))

    def end(
        self, provider: str, model: str, usage: Usage, steps: int, how: TurnEnd | UnsetType = UNSET, why: str = ""
    ) -> None:
        """Record the end of the turn. Once written, the turn survives a power failure. Raises SessionError."""
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

    def cached(self, name: str, args: Mapping[str, Any]) -> Any | UnsetType:
        """Return the reusable result of an equal call; else UNSET.

        Arguments are equal if their JSON is, ignoring the order of keys: 1, 1.0 and true differ.
        """
        key = call_key(name, args)
        return UNSET if key is None else self._values.get(key, UNSET)

    async def settle(self) -> None:
        """Wait until all messages so far are written. Raises SessionError."""
        if self._writer.has_unwritten:
            await run_in_thread(self._writer.flush)

    def finish(self) -> None:
        """Wait until everything is written, and release the session. Raises SessionError."""
        try:
            self._writer.flush()
        finally:
            self._writer.finish()

    def close(self) -> None:
        """Release the session soon, without blocking. Messages can't be added afterwards."""
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
    """Return a key that is equal for equal calls; None if the arguments are not JSON."""
    try:
        return json.dumps([name, dict(args)], sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return None
