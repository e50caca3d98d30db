"""What is told of a session: one entry of a list, and the transcript of what was said."""

from collections.abc import Iterable

import msgspec

from onetool.ask.messages import Assistant, Result, SessionMessage, Usage, User, UserCall
from onetool.ask.sessions.records import (
    UNDER_WAY,
    UNREADABLE,
    SessionHeader,
    Titled,
    TurnEnded,
    read_line,
    read_session,
)

ENDED_PREFIX = b'{"type":"ended"'
USER_PREFIX = b'{"type":"user"'
TITLED_PREFIX = b'{"type":"titled"'
NO_ANSWER = "(no answer)"  # in place of one


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`usage` is of all turns that have come to their end; `provider` and `model` are those of the last such turn."""

    id: str
    created: float  # seconds since 1970
    modified: float
    turns: int  # questions
    title: str
    provider: str
    model: str
    usage: Usage
    size: int  # bytes
    answered: bool = True  # whether the model has said anything to the last question


class SessionEnding(msgspec.Struct, frozen=True):
    """The end of a session: the last turn that came to its end, the turns including later ones, a title given."""

    ended: TurnEnded
    turns: int
    title: str | None
    is_found: bool = True  # whether there is such a turn


def session_info(id: str, first_line: bytes, ending: SessionEnding, modified: float, size: int) -> SessionInfo:
    begun = _record(first_line)
    begun = begun if isinstance(begun, SessionHeader) else SessionHeader()
    ended = ending.ended
    return SessionInfo(
        id=id,
        created=begun.created or modified,
        modified=modified,
        turns=ending.turns,
        title=begun.title if ending.title is None else ending.title,
        provider=ended.provider,
        model=ended.model,
        usage=ended.total,
        size=size,
        answered=ended.steps > 0 and ending.turns == ended.turns,
    )


def read_ending(backwards: Iterable[bytes]) -> SessionEnding:
    """Of the last lines, the last one first."""
    questions, title = 0, None
    for line in backwards:
        if line.startswith(USER_PREFIX):
            questions += 1
        elif title is None and line.startswith(TITLED_PREFIX) and isinstance(given := _record(line), Titled):
            title = given.title
        elif line.startswith(ENDED_PREFIX) and isinstance(ended := _record(line), TurnEnded):
            return SessionEnding(ended, ended.turns + questions, (ended.title or None) if title is None else title)
    return SessionEnding(TurnEnded(), questions, title, is_found=False)


def _record(line: bytes) -> object:
    try:
        known = read_line(line)
    except UNREADABLE:
        return None
    return known and known[0]


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What was said in a session. Calls that were interrupted, or are under way, have results that say so."""

    id: str
    created: float  # seconds since 1970
    modified: float
    messages: tuple[SessionMessage, ...]
    times: tuple[float, ...]  # when each of these was said
    turns: int  # questions
    usage: Usage  # of the turns that came to their end
    damaged: int  # lines that can't be read
    provider: str = ""  # of the last turn that came to its end
    model: str = ""
    title: str = ""
    ended: tuple[TurnEnded, ...] = ()  # the turns that came to their end

    def lacks_answer(self, index: int) -> bool:
        """Whether a question's part ends with this message, and there is no answer to it."""
        said, following = self.messages[index], self.messages[index + 1 : index + 2]
        if isinstance(said, UserCall) or (following and not isinstance(following[0], User | UserCall)):
            return False
        if isinstance(said, Assistant):
            return not said.text
        return not (isinstance(said, Result) and said.content == UNDER_WAY)


def transcript(id: str, data: bytes, modified: float, goes_on: bool) -> Transcript:
    read = read_session(id, data, goes_on)
    return Transcript(
        id=id,
        created=read.begun.created if read.begun else modified,
        modified=modified,
        messages=tuple(one.message for one in read.said),
        times=tuple(one.at for one in read.said),
        turns=sum(isinstance(one.message, User) for one in read.said),
        usage=read.usage,
        damaged=read.damaged,
        provider=read.ended[-1].provider if read.ended else "",
        model=read.ended[-1].model if read.ended else "",
        title=(read.begun.title if read.begun else "") if read.title is None else read.title,
        ended=tuple(read.ended),
    )
