"""A file's bytes -> what was said. Nothing that may stand in a file is an error, but a later version of its form."""

from io import BytesIO

import msgspec

from onetool.ask.errors import SessionError
from onetool.ask.messages import Usage
from onetool.ask.sessions.mending import Said, mended
from onetool.ask.sessions.records import UNREADABLE, VERSION, Allowed, Begun, Ended, read

MOST_LINES = 50_000  # more than anybody says; to read so many holds up others for no more than some milliseconds


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    begun: Begun | None  # none where the first line was cut off
    said: list[Said]  # mended
    ended: list[Ended]
    damaged: int  # lines that can't be read
    allowed: tuple[str, ...] | None = None  # the tools that it was last given

    @property
    def usage(self) -> Usage:
        return sum((one.usage for one in self.ended), Usage())


def kept(id: str, data: bytes, goes_on: bool = False) -> Kept:
    """`goes_on`: a turn is under way."""
    begun: Begun | None = None
    said: list[Said] = []
    ended: list[Ended] = []
    damaged = 0
    allowed: tuple[str, ...] | None = None
    for place, line in enumerate(BytesIO(data)):  # one by one: to split all at once would hold up all other threads
        if place == MOST_LINES:
            raise _too_many(id)
        if line.isspace():
            continue
        try:
            found = read(line)
        except UNREADABLE:
            damaged += 1
            continue
        match found:
            case (Begun() as first, _):
                _refuse_later(id, first)
                begun = begun or first
            case (Ended() as end, _):
                ended.append(end)
            case (Allowed() as given, _):
                allowed = given.tools
            case (message, at):
                said.append(Said(message, at))
    return Kept(begun=begun, said=mended(said, goes_on), ended=ended, damaged=damaged, allowed=allowed)


def _too_many(id: str) -> SessionError:
    hint = "begin another session with --new-session"
    return SessionError(f"the session {id} can't be used: it has more than {MOST_LINES:,} lines", "session", [hint])


def _refuse_later(id: str, begun: Begun) -> None:
    if begun.version > VERSION:
        raise SessionError(
            f"the session {id} was written by a later OneTool (form {begun.version}; this one knows {VERSION})",
            "session",
            ["update OneTool", "or begin another session with --new-session"],
        )
