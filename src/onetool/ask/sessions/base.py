"""AskSessions: what can be done with the sessions of one owner, and the rules that hold wherever they are kept.

ChatSession is one of them, while a turn of it is under way: what was said, and what is being said, written down at
once.
"""

import builtins
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar

from msgspec import UNSET, UnsetType

from onetool.ask.errors import SessionError
from onetool.ask.messages import Assistant, Call, Result, SessionMessage, Usage, User
from onetool.ask.sessions.records import (
    LAST,
    Allowed,
    SessionContent,
    SessionHeader,
    SessionInfo,
    Titled,
    Transcript,
    TurnEnd,
    TurnEnded,
    check_id,
    is_generated,
    message_line,
    new_id,
    read_session,
    record_line,
    short_title,
    title_of,
)
from onetool.core import flock
from onetool.core.text import replace_all_surrogates

LONGEST_OWNER = 300  # characters in the first line, which has to stay short

T = TypeVar("T")

PAUSE = 0.02  # seconds between two looks at a session that somebody has
NEW_SESSION_HINT = "begin another with --new-session"
GENERATED_HINT = "a name of this form is one that we make up, so that it is taken for a mistyped one"
LIST_HINT = "`onetool sessions list` shows which there are"

ListPlace = tuple[float, str]  # where a session stands in the list: when it was used last, and its id


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


class AskSessions(ABC):
    """The sessions of one owner. The ids of two owners never meet: another's is not found, and its id is free."""

    pause = PAUSE

    def __init__(self, now: Callable[[], float], owner: str) -> None:
        self._now = now
        self._owner = owner

    @asynccontextmanager
    async def turn(self, id: str | None, *, new: bool = False, wait: float = 0.0) -> AsyncIterator[ChatSession]:
        """The session, for as long as this lasts: made if it is not there, waited for at most so many seconds.

        Without an id it is a new one; `new` refuses one that is there already. An id that looks like one of ours has
        to be there, without `new`. Where nothing is said, nothing is kept.
        """
        session = await self._open_turn(id, new, wait)
        try:
            yield session
        except BaseException:
            with suppress(SessionError):  # the first error says more
                await run_in_thread(session.finish)
            raise
        else:
            await run_in_thread(session.finish)
        finally:
            session.close()

    @abstractmethod
    def read(self, id: str) -> Transcript:
        """What was said, also while a turn is under way. Raises SessionError."""

    @abstractmethod
    def delete(self, id: str) -> None:
        """Raises SessionError: not_found, or busy while a turn is under way."""

    @abstractmethod
    def rename(self, id: str, title: str) -> None:
        """Give it a title. That is no use of it: it stays where it was in the list. Raises SessionError like delete."""

    @abstractmethod
    def has(self, id: str) -> bool:
        """Whether there is such a session, with something in it."""

    @abstractmethod
    def info(self, id: str) -> SessionInfo:
        """What a list says of one. Raises SessionError."""

    @abstractmethod
    def list(self) -> builtins.list[SessionInfo]:
        """The newest first. What can't be opened is not in it."""

    @abstractmethod
    def page(self, before: ListPlace | None, most: int) -> tuple[builtins.list[SessionInfo], ListPlace | None]:
        """So many of the list that follow a place in it, and the place that the next ones follow: None at its end."""

    def similar_ids(self, id: str) -> builtins.list[str]:
        """Those of similar names, the most similar first."""
        from onetool.core.text import nearest

        return nearest(id, (one for one in self._ids() if one != id))

    # What depends on where they are kept

    @abstractmethod
    def _ids(self) -> builtins.list[str]:
        """All of them, the newest first."""

    @abstractmethod
    def _check_place(self) -> None:
        """Refuse a place where nothing must be read."""

    @abstractmethod
    def _make_place(self) -> None:
        """Make it if it is not there."""

    @abstractmethod
    def _lock_for_turn(self, id: str) -> SessionWriter | None:
        """Have the session alone, made if it is not there; None while somebody else has it."""

    @abstractmethod
    def _holder(self, id: str) -> str:
        """Who has it, in words."""

    # Opening one. All of it but the waiting is done in a thread: a session may be large, and a disk slow.

    async def _open_turn(self, id: str | None, new: bool, wait: float) -> ChatSession:
        from asyncio import sleep

        if id is None:
            return await run_in_thread(self._open_generated, undo=ChatSession.close)
        named = await run_in_thread(lambda: self._resolve_for_turn(id, new))
        pauses = flock.pauses(wait, self.pause, self.pause)
        while (session := await run_in_thread(lambda: self._try_open(named, new), undo=_close)) is None:
            if (pause := next(pauses, None)) is None:
                raise await run_in_thread(lambda: self._busy_error(named, f"or {NEW_SESSION_HINT}"))
            await sleep(pause)
        return session

    def _resolve_for_turn(self, id: str, new: bool) -> str:
        """The id of the session, resolved once: `last` may become another one while we wait."""
        self._make_place()
        return check_id(id) if new else self._resolve(id)

    def _resolve(self, id: str) -> str:
        self._check_place()
        if id != LAST:
            return check_id(id)
        there = self._ids()
        if not there:
            raise SessionError("there is no session yet", "not_found", ["ask something first"])
        return there[0]

    def _try_open(self, id: str, new: bool) -> ChatSession | None:
        """Open and lock the session; None while somebody else has it."""
        writer = self._lock_for_turn(id)
        if writer is not None:
            return self._open_locked(id, writer, new)
        if new:
            raise _exists_error(id)
        return None

    def _open_generated(self) -> ChatSession:
        self._make_place()
        while True:
            id = new_id(self._now())
            writer = self._lock_for_turn(id)
            if writer is None:  # the same id at the same time: another one, then
                continue
            try:
                return self._open_locked(id, writer, new=True)
            except SessionError as error:
                if error.reason != "exists":
                    raise

    def _open_locked(self, id: str, writer: SessionWriter, new: bool) -> ChatSession:
        """Gives it back where there is no session to give."""
        try:
            data = writer.read()
            if new and data:
                raise _exists_error(id)
            if not new and not data and is_generated(id):
                raise self._not_found(id, f"or --new-session begins it: {GENERATED_HINT}")
            return ChatSession(id, writer, read_session(id, data), is_new=not data, now=self._now, owner=self._owner)
        except BaseException:
            writer.give_back()
            writer.close()
            raise

    def _title_line(self, title: str) -> bytes:
        return record_line(Titled(title=short_title(title), at=round(self._now(), 3)))

    def _not_found(self, id: str, *hints: str) -> SessionError:
        from onetool.core.text import or_rather

        rather = or_rather(id, self._ids())
        return SessionError(f"there is no session {id!r}{rather}", "not_found", [LIST_HINT, *hints])

    def _busy_error(self, id: str, otherwise: str) -> SessionError:
        who = self._holder(id)
        hints = ["wait until that turn has ended", otherwise]
        return SessionError(f"the session {id} is in use by {who}", "busy", hints)


def owner_folder(owner: str) -> str:
    """A hash: an owner's name is no path, and may be longer than one."""
    from hashlib import blake2b

    return blake2b(owner.encode("utf-8", "surrogatepass"), digest_size=16, person=b"ask sessions").hexdigest()


def _close(session: ChatSession | None) -> None:
    if session is not None:
        session.close()


def _exists_error(id: str) -> SessionError:
    return SessionError(
        f"there is a session {id!r} already", "exists", ["choose another name", "or leave --new-session out"]
    )


async def run_in_thread(work: Callable[[], T], undo: Callable[[T], None] | None = None) -> T:
    """Run blocking work in a thread. If cancelled, wait for its end all the same, then undo its result."""
    import asyncio  # lists of sessions, and their completion, do without

    running = asyncio.get_running_loop().run_in_executor(None, work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return running.result()
    if running.exception() is None and undo is not None:
        undo(running.result())
    raise cancelled
