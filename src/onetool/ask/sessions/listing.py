"""What a list shows of a session: read from the first line and the last ones, so that thousands are listed at once."""

import os
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from onetool.ask.errors import SessionError
from onetool.ask.messages import Usage
from onetool.ask.sessions.files import ENDING
from onetool.ask.sessions.names import ID
from onetool.ask.sessions.records import UNREADABLE, Begun, Ended, read

FIRST = 2048  # bytes; a first line is shorter
LAST = 4096  # where an `ended` is found, as a rule; else more is read
MOST = 8 * 1024 * 1024  # … but not more than that
ENDED = b'{"type":"ended"'
USER = b'{"type":"user"'


class Info(msgspec.Struct, frozen=True, kw_only=True):
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


def info(id: str, file: int) -> Info | None:
    """None for a file in which nothing is. Raises OSError."""
    status = os.fstat(file)
    if not status.st_size:
        return None
    begun = _begun(file)
    ended, turns = _end(file, status.st_size)
    answered = ended.steps > 0 and turns == ended.turns
    return Info(
        id=id,
        created=begun.created or status.st_mtime,
        modified=status.st_mtime,
        turns=turns,
        title=begun.title,
        provider=ended.provider,
        model=ended.model,
        usage=ended.total,
        size=status.st_size,
        answered=answered,
    )


def found(folder: Path) -> list[tuple[int, str]]:
    """When each was modified, and its id; the newest first. What is no file of ours is not among them."""
    there: list[tuple[int, str]] = []
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SessionError(f"the sessions in {folder} can't be listed: {error.strerror}", "session") from None
    for entry in entries:
        id = entry.name.removesuffix(ENDING)
        if id == entry.name or not ID.fullmatch(id):
            continue
        with suppress(OSError):  # it may have been deleted meanwhile
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_size:
                there.append((status.st_mtime_ns, id))
    return sorted(there, reverse=True)


def _begun(file: int) -> Begun:
    record = _record(os.pread(file, FIRST, 0).partition(b"\n")[0])
    return record if isinstance(record, Begun) else Begun()


def _end(file: int, size: int) -> tuple[Ended, int]:
    """The last turn that came to its end, and how many there are with those after it that did not."""
    length = LAST
    while True:
        start = max(0, size - length)
        lines = os.pread(file, size - start, start).split(b"\n")[1 if start else 0 :]
        questions = 0
        for line in reversed(lines):
            if line.startswith(USER):
                questions += 1
            elif line.startswith(ENDED) and isinstance(ended := _record(line), Ended):
                return ended, ended.turns + questions
        if not start or length >= MOST:
            return Ended(), questions
        length *= 8


def _record(line: bytes) -> object:
    try:
        known = read(line)
    except UNREADABLE:
        return None
    return known and known[0]
