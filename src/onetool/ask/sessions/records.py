"""The content of a session: ids, records as JSON, reading and repair, and transcripts.

Damaged records are skipped. On reading, every call gets one result, directly after it and in the order of the calls.
For a call without a result, the model is told that its outcome is unknown. A result without its call is omitted.
"""

import re
import time
from collections.abc import Iterable
from os import urandom
from typing import Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from onetool.ask.errors import SessionError
from onetool.ask.messages import Assistant, Call, Result, SessionMessage, Usage, User, UserCall
from onetool.core.text import replace_all_surrogates

SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LAST = "last"
ID_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # 32, without look-alikes
GENERATED_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[a-z0-9]{4}")


def check_id(id: str) -> str:
    """Return the id if it is valid. Raises SessionError."""
    if id == LAST:
        raise SessionError(f"{LAST!r} stands for the most recently used session: choose another name", "session")
    if SESSION_ID.fullmatch(id):
        return id
    shown = id if len(id) <= 64 else f"{id[:64]}…"
    raise SessionError(
        f"{shown!r} can't be the name of a session: use 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', "
        "beginning with a letter or a digit",
        "session",
    )


def is_generated(id: str) -> bool:
    """Return whether an id looks generated."""
    return GENERATED_ID.fullmatch(id) is not None


def new_id(now: float) -> str:
    """Return an id such as `20261115-191200-k3f9`: the time (UTC), and four random characters."""
    random = "".join(ID_ALPHABET[byte % 32] for byte in urandom(4))
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{random}"


# Records, each in a row

MAX_TITLE = 80  # characters


class SessionHeader(msgspec.Struct, frozen=True, kw_only=True, tag="session"):
    """The first record of a session."""

    id: str = ""
    created: float = 0.0
    title: str = ""  # the first words of the first question


TurnEnd = Literal["answered", "failed", "stopped"]


class TurnEnded(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """The end of a turn. `total` covers the session so far, for lists."""

    at: float = 0.0
    provider: str = ""
    model: str = ""
    usage: Usage = Usage()
    steps: int = 0
    total: Usage = Usage()
    how: TurnEnd | UnsetType = UNSET  # older records lack it
    why: str = ""  # the reason of a failure


class Titled(msgspec.Struct, frozen=True, kw_only=True, tag="titled"):
    """A title given by the user. It is only read: now the row of the session has it."""

    title: str = ""


class Allowed(msgspec.Struct, frozen=True, kw_only=True, tag="allowed"):
    """The allowed tools from here on, until the next such record."""

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


class Row(NamedTuple):
    """A record as it is stored. `kind` is its type."""

    kind: str
    body: bytes

    @classmethod
    def of(cls, record: Record) -> "Row":
        return cls(str(record.__struct_config__.tag), msgspec.json.encode(record))


def message_row(message: SessionMessage, at: float) -> tuple[Row, SessionMessage]:
    """Return the row of a message, and the message as in that row, without values that JSON can't express."""
    try:
        text = msgspec.json.encode(message)
        _message_decoder.decode(text)  # raises if it would be unreadable
    except (UnicodeEncodeError, *UNREADABLE, TypeError, ValueError, OverflowError):
        try:  # without lone surrogates, and without a value that isn't JSON
            if isinstance(message, Result):
                message = msgspec.structs.replace(message, value=UNSET)
            message = msgspec.convert(replace_all_surrogates(msgspec.to_builtins(message)), SessionMessage)
            text = msgspec.json.encode(message)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise SessionError(f"the message can't be stored: {error}", "session") from None
    return Row(str(message.__struct_config__.tag), text[:-1] + b',"at":%.3f}' % at), message


def read_timed(body: bytes) -> tuple[Record, float] | None:
    """Return a record, and its time; None for an unknown type. Raises one of UNREADABLE."""
    try:
        return _record_decoder.decode(body), _time_decoder.decode(body).at
    except msgspec.ValidationError:
        if _any_decoder.decode(body).type in KNOWN_TYPES:
            raise
        return None


def read_record(body: bytes | None) -> Record | None:
    """Return a record; None if there is none or it is unreadable."""
    try:
        return _record_decoder.decode(body) if body else None
    except UNREADABLE:
        return None


def title_of(message: SessionMessage) -> str:
    """Return the first words of a question, or the name of a tool that the user called."""
    if isinstance(message, UserCall):
        return f"+{message.name}"[:MAX_TITLE]
    if not isinstance(message, User):
        return ""
    return short_title(message.text[: 8 * MAX_TITLE] or ", ".join(file.name for file in message.files))


def short_title(words: str) -> str:
    """Return one line of at most MAX_TITLE visible characters."""
    title = " ".join("".join(char if char.isprintable() else " " for char in words).split())
    return title if len(title) <= MAX_TITLE else f"{title[: MAX_TITLE - 1].rstrip()}…"


# Repair: every call gets one result

INTERRUPTED = (
    "This call was interrupted before its result was stored: its outcome is unknown. "
    "It may have done all, part or none of its work; check before calling it again."
)
UNDER_WAY = "This call is still running: there is no result yet."


class TimedMessage(NamedTuple):
    message: SessionMessage
    at: float


class _OpenCalls:
    """The calls of one message, and their results so far."""

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
    """Give every call a result. `goes_on` means that a turn is running, so the last calls may still get theirs."""
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


# Reading a whole session


class SessionContent(msgspec.Struct, frozen=True, kw_only=True):
    header: SessionHeader | None  # None if it is damaged
    messages: list[TimedMessage]  # repaired: every call has a result
    ended: list[TurnEnded]
    damaged: int  # records that can't be read
    allowed: tuple[str, ...] | None = None  # the last allowed tools
    title: str = ""

    @property
    def usage(self) -> Usage:
        return sum((one.usage for one in self.ended), Usage())


def read_session(bodies: Iterable[bytes], goes_on: bool = False, title: str | None = None) -> SessionContent:
    """Read the records of a session. `goes_on` means that a turn is under way; `title` was given by the user."""
    header: SessionHeader | None = None
    messages: list[TimedMessage] = []
    ended: list[TurnEnded] = []
    damaged = 0
    allowed: tuple[str, ...] | None = None
    first_title = ""
    for body in bodies:
        try:
            found = read_timed(body)
        except UNREADABLE:
            damaged += 1
            continue
        match found:
            case None:
                pass
            case (SessionHeader() as first, _):
                header = header or first
                first_title = first_title or first.title
            case (TurnEnded() as end, _):
                ended.append(end)
            case (Allowed() as given, _):
                allowed = given.tools
            case (Titled() as named, _):
                first_title = named.title
            case (message, at):
                messages.append(TimedMessage(message, at))
    return SessionContent(
        header=header,
        messages=repair(messages, goes_on),
        ended=ended,
        damaged=damaged,
        allowed=allowed,
        title=first_title if title is None else title,
    )


# An entry of a list, and the transcript

NO_ANSWER = "(no answer)"


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A session in a list. `usage` is the total of all ended turns; `provider` and `model` are those of the last."""

    id: str
    created: float  # seconds since 1970
    modified: float
    turns: int  # questions
    title: str
    provider: str
    model: str
    usage: Usage
    size: int  # bytes
    answered: bool = True  # whether the model has answered the last question


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a session. Calls that were interrupted or are under way have results that say so."""

    id: str
    created: float  # seconds since 1970
    modified: float
    messages: tuple[SessionMessage, ...]
    times: tuple[float, ...]  # of these messages
    turns: int  # questions
    usage: Usage  # of ended turns
    damaged: int  # records that can't be read
    provider: str = ""  # of the last ended turn
    model: str = ""
    title: str = ""
    ended: tuple[TurnEnded, ...] = ()

    def lacks_answer(self, index: int) -> bool:
        """Return whether the conversation stops at this message without an answer to the question."""
        message, following = self.messages[index], self.messages[index + 1 : index + 2]
        if isinstance(message, UserCall) or (following and not isinstance(following[0], User | UserCall)):
            return False
        if isinstance(message, Assistant):
            return not message.text
        return not (isinstance(message, Result) and message.content == UNDER_WAY)


def transcript(id: str, content: SessionContent, modified: float) -> Transcript:
    last = content.ended[-1] if content.ended else TurnEnded()
    return Transcript(
        id=id,
        created=content.header.created if content.header else modified,
        modified=modified,
        messages=tuple(one.message for one in content.messages),
        times=tuple(one.at for one in content.messages),
        turns=sum(isinstance(one.message, User) for one in content.messages),
        usage=content.usage,
        damaged=content.damaged,
        provider=last.provider,
        model=last.model,
        title=content.title,
        ended=tuple(content.ended),
    )
