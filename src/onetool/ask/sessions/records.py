"""The content of a session file: ids of sessions, one record per line, and how a file is read and repaired.

Whatever stands in a file, reading it is no error, except for a later version of the format. On reading, every call gets
one result, right behind it and in the order of the calls: a call without a result may have run or not, and the model is
told so; a result without its call is left out.
"""

import re
import time
from collections.abc import Iterable
from io import BytesIO
from os import urandom
from typing import Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from onetool.ask.errors import SessionError
from onetool.ask.messages import Assistant, Call, Result, SessionMessage, Usage, User, UserCall
from onetool.core.text import replace_all_surrogates

SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LAST = "last"
ID_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # 32, none of which are taken for each other
GENERATED_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[a-z0-9]{4}")


def check_id(id: str) -> str:
    """The id; SessionError for what can't be one."""
    if id == LAST:
        raise SessionError(f"{LAST!r} stands for the session that was used last: choose another name", "session")
    if SESSION_ID.fullmatch(id):
        return id
    shown = id if len(id) <= 64 else f"{id[:64]}…"
    raise SessionError(
        f"{shown!r} can't be the name of a session: 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', "
        "and a letter or a digit first",
        "session",
    )


def is_generated(id: str) -> bool:
    """Whether the id looks generated: no user chooses such a name."""
    return GENERATED_ID.fullmatch(id) is not None


def new_id(now: float) -> str:
    """`20261115-191200-k3f9`: when it began (UTC), and something that sets it apart."""
    return (
        f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{''.join(ID_ALPHABET[byte % 32] for byte in urandom(4))}"
    )


# Records, one per line


VERSION = 1
LONGEST_TITLE = 80  # characters


class SessionHeader(msgspec.Struct, frozen=True, kw_only=True, tag="session"):
    """The first line."""

    version: int = VERSION
    id: str = ""
    created: float = 0.0
    title: str = ""  # the first words of the first question
    owner: str | UnsetType = UNSET  # for people: the folder decides whose it is


TurnEnd = Literal["answered", "failed", "stopped"]


class TurnEnded(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """A turn has come to its end. `turns` and `total` are of the session up to here, so that a list needs no more."""

    at: float = 0.0
    provider: str = ""
    model: str = ""
    usage: Usage = Usage()
    steps: int = 0
    turns: int = 0
    total: Usage = Usage()
    title: str | UnsetType = UNSET  # that somebody has given it
    how: TurnEnd | UnsetType = UNSET  # older ones don't say
    why: str = ""  # it failed, for people


class Titled(msgspec.Struct, frozen=True, kw_only=True, tag="titled"):
    """From here on the session has this title."""

    title: str = ""
    at: float = 0.0


class Allowed(msgspec.Struct, frozen=True, kw_only=True, tag="allowed"):
    """From here on these tools alone are there, until another line says otherwise."""

    tools: tuple[str, ...] = ()
    at: float = 0.0


class _AnyRecord(msgspec.Struct):
    type: str


class _TimedRecord(msgspec.Struct):
    at: float = 0.0


Record = SessionHeader | TurnEnded | Titled | Allowed | SessionMessage
KNOWN_TYPES = ("session", "ended", "titled", "allowed", "user", "assistant", "result", "called")
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_record_decoder = msgspec.json.Decoder(Record)
_any_decoder = msgspec.json.Decoder(_AnyRecord)
_time_decoder = msgspec.json.Decoder(_TimedRecord)
_message_decoder = msgspec.json.Decoder(SessionMessage)


def record_line(record: SessionHeader | TurnEnded | Titled | Allowed) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def message_line(message: SessionMessage, at: float) -> tuple[bytes, SessionMessage]:
    """The line of a message, and the message as that line says it, without what JSON can't express."""
    try:
        text = msgspec.json.encode(message)
        _message_decoder.decode(text)  # what can't be read again would be lost
    except (UnicodeEncodeError, *UNREADABLE, TypeError, ValueError, OverflowError):
        text, message = _simplified(message)
    return text[:-1] + b',"at":%.3f}\n' % at, message


def read_line(line: bytes) -> tuple[Record, float] | None:
    """What a line says, and when; None for a kind that a later version may have. Raises one of UNREADABLE."""
    try:
        return _record_decoder.decode(line), _time_decoder.decode(line).at
    except msgspec.ValidationError:
        if _any_decoder.decode(line).type in KNOWN_TYPES:
            raise
        return None


def title_of(message: SessionMessage) -> str:
    """The first words of a question, for a list; or the tool that the person called first."""
    if isinstance(message, UserCall):
        return f"+{message.name}"[:LONGEST_TITLE]
    if not isinstance(message, User):
        return ""
    return short_title(message.text[: 8 * LONGEST_TITLE] or ", ".join(file.name for file in message.files))


def short_title(words: str) -> str:
    """One line of a title's length, without signs that can't be seen."""
    title = " ".join("".join(sign if sign.isprintable() else " " for sign in words).split())
    return title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1].rstrip()}…"


def _simplified(message: SessionMessage) -> tuple[bytes, SessionMessage]:
    """Without halves of surrogate pairs, and without a value that is no JSON: that one is not used again."""
    try:
        if isinstance(message, Result):
            message = msgspec.structs.replace(message, value=UNSET)
        message = msgspec.convert(replace_all_surrogates(msgspec.to_builtins(message)), SessionMessage)
        return msgspec.json.encode(message), message
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SessionError(f"what was said can't be written down: {error}", "session") from None


# Repair: every call gets one result


INTERRUPTED = (
    "This call was interrupted before its result was kept: its outcome is unknown. "
    "It may have done all, part or none of its work; look before it is called again."
)
UNDER_WAY = "This call is under way: there is no result yet."


class TimedMessage(NamedTuple):
    message: SessionMessage
    at: float


class _OpenCalls:
    """The calls of one message, and their results as they come."""

    def __init__(self, calls: Iterable[Call] = (), at: float = 0.0) -> None:
        self._calls = list(calls)
        self._at = at
        self._results: list[TimedMessage | None] = [None] * len(self._calls)
        self._waiting: dict[str, list[int]] = {}
        for place in reversed(range(len(self._calls))):
            self._waiting.setdefault(self._calls[place].id, []).append(place)

    def take(self, result: Result, at: float) -> None:
        places = self._waiting.get(result.call)
        if places:
            self._results[places.pop()] = TimedMessage(result, at)

    def closed(self, words: str = INTERRUPTED) -> Iterable[TimedMessage]:
        for call, result in zip(self._calls, self._results, strict=True):
            yield result or TimedMessage(Result(call=call.id, name=call.name, content=words, ok=False), self._at)


def repair(messages: Iterable[TimedMessage], goes_on: bool = False) -> list[TimedMessage]:
    """Give every call its result. `goes_on`: a turn is running, so the last calls may still get theirs."""
    whole: list[TimedMessage] = []
    under_way = _OpenCalls()
    for message, at in messages:
        if isinstance(message, Result):
            under_way.take(message, at)
            continue
        whole += under_way.closed()
        whole.append(TimedMessage(message, at))
        under_way = _OpenCalls(message.calls, at) if isinstance(message, Assistant) else _OpenCalls()
    whole += under_way.closed(UNDER_WAY if goes_on else INTERRUPTED)
    return whole


# Reading a whole file


MOST_LINES = 50_000  # more than anybody says; to read so many holds up others for no more than some milliseconds


class SessionContent(msgspec.Struct, frozen=True, kw_only=True):
    begun: SessionHeader | None  # none where the first line was cut off
    said: list[TimedMessage]  # mended
    ended: list[TurnEnded]
    damaged: int  # lines that can't be read
    allowed: tuple[str, ...] | None = None  # the tools that it was last given
    title: str | None = None  # that somebody has given it last

    @property
    def usage(self) -> Usage:
        return sum((one.usage for one in self.ended), Usage())


def read_session(id: str, data: bytes, goes_on: bool = False) -> SessionContent:
    """`goes_on`: a turn is under way."""
    begun: SessionHeader | None = None
    said: list[TimedMessage] = []
    ended: list[TurnEnded] = []
    damaged = 0
    allowed: tuple[str, ...] | None = None
    title: str | None = None
    for place, line in enumerate(BytesIO(data)):  # one by one: to split all at once would hold up all other threads
        if place == MOST_LINES:
            raise _too_many_lines(id)
        if line.isspace():
            continue
        try:
            found = read_line(line)
        except UNREADABLE:
            damaged += 1
            continue
        match found:
            case (SessionHeader() as first, _):
                _refuse_later_version(id, first)
                begun = begun or first
            case (TurnEnded() as end, _):
                ended.append(end)
            case (Allowed() as given, _):
                allowed = given.tools
            case (Titled() as named, _):
                title = named.title
            case (message, at):
                said.append(TimedMessage(message, at))
    whole = repair(said, goes_on)
    return SessionContent(begun=begun, said=whole, ended=ended, damaged=damaged, allowed=allowed, title=title)


def _too_many_lines(id: str) -> SessionError:
    hint = "begin another session with --new-session"
    return SessionError(f"the session {id} can't be used: it has more than {MOST_LINES:,} lines", "session", [hint])


def _refuse_later_version(id: str, begun: SessionHeader) -> None:
    if begun.version > VERSION:
        raise SessionError(
            f"the session {id} was written by a later OneTool (form {begun.version}; this one knows {VERSION})",
            "session",
            ["update OneTool", "or begin another session with --new-session"],
        )
