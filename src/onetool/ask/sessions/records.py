"""The lines of a session's file. A message stands there as it is, with the time beside its own members."""

import msgspec
from msgspec import UNSET

from onetool.ask.errors import SessionError
from onetool.ask.messages import Message, Result, Usage, User
from onetool.core.halves import all_mended

VERSION = 1
LONGEST_TITLE = 80  # characters


class Begun(msgspec.Struct, frozen=True, kw_only=True, tag="session"):
    """The first line."""

    version: int = VERSION
    id: str = ""
    created: float = 0.0
    title: str = ""  # the first words of the first question


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """A turn has come to its end. `turns` and `total` are of the session up to here, so that a list needs no more."""

    at: float = 0.0
    provider: str = ""
    model: str = ""
    usage: Usage = Usage()
    steps: int = 0
    turns: int = 0
    total: Usage = Usage()


class Allowed(msgspec.Struct, frozen=True, kw_only=True, tag="allowed"):
    """From here on these tools alone are there, until another line says otherwise."""

    tools: tuple[str, ...] = ()
    at: float = 0.0


class _Any(msgspec.Struct):
    type: str


class _Timed(msgspec.Struct):
    at: float = 0.0


Record = Begun | Ended | Allowed | Message
KNOWN = ("session", "ended", "allowed", "user", "assistant", "result")
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_record = msgspec.json.Decoder(Record)
_any = msgspec.json.Decoder(_Any)
_timed = msgspec.json.Decoder(_Timed)
_message = msgspec.json.Decoder(Message)


def line(record: Begun | Ended | Allowed) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def message_line(message: Message, at: float) -> tuple[bytes, Message]:
    """Its line, and the message as that line says it: what JSON can't say is not in either."""
    try:
        text = msgspec.json.encode(message)
        _message.decode(text)  # what can't be read again would be lost
    except (UnicodeEncodeError, *UNREADABLE, TypeError, ValueError, OverflowError):
        text, message = _plainer(message)
    return text[:-1] + b',"at":%.3f}\n' % at, message


def read(line: bytes) -> tuple[Record, float] | None:
    """What a line says, and when; None for a kind that a later version may have. Raises one of UNREADABLE."""
    try:
        return _record.decode(line), _timed.decode(line).at
    except msgspec.ValidationError:
        if _any.decode(line).type in KNOWN:
            raise
        return None


def title_of(message: Message) -> str:
    """The first words of a question, for a list."""
    if not isinstance(message, User):
        return ""
    words = message.text[: 8 * LONGEST_TITLE] or ", ".join(file.name for file in message.files)
    title = " ".join("".join(sign if sign.isprintable() else " " for sign in words).split())
    return title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1].rstrip()}…"


def _plainer(message: Message) -> tuple[bytes, Message]:
    """Without halves of surrogate pairs, and without a value that is no JSON: that one is not used again."""
    try:
        if isinstance(message, Result):
            message = msgspec.structs.replace(message, value=UNSET)
        message = msgspec.convert(all_mended(msgspec.to_builtins(message)), Message)
        return msgspec.json.encode(message), message
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SessionError(f"what was said can't be written down: {error}", "session") from None
