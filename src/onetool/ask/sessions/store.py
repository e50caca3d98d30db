"""All sessions of one folder: take a turn in one of them, list, read and delete them.

A turn has its session alone; reading needs no lock. A list reads only the first line and the last ones of each file, so
thousands are listed at once.
"""

import builtins
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from onetool.ask.errors import SessionError
from onetool.ask.messages import Assistant, Result, SessionMessage, Usage, User, UserCall
from onetool.ask.sessions import files
from onetool.ask.sessions.files import SUFFIX, run_in_thread
from onetool.ask.sessions.records import (
    LAST,
    SESSION_ID,
    UNDER_WAY,
    UNREADABLE,
    SessionHeader,
    Titled,
    TurnEnded,
    check_id,
    is_generated,
    new_id,
    read_line,
    read_session,
    record_line,
    short_title,
)
from onetool.ask.sessions.session import ChatSession
from onetool.core import flock
from onetool.core.os_files import read_at

HEAD_BYTES = 4096  # bytes; a first line is shorter
TAIL_BYTES = 4096  # where an `ended` is found, as a rule; else more is read
MOST_TAIL_BYTES = 8 * 1024 * 1024  # … but not more than that
ENDED_PREFIX = b'{"type":"ended"'
USER_PREFIX = b'{"type":"user"'
TITLED_PREFIX = b'{"type":"titled"'


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


def read_info(id: str, file: int) -> SessionInfo | None:
    """None for a file in which nothing is. Raises OSError."""
    status = os.fstat(file)
    if not status.st_size:
        return None
    begun = _read_header(file)
    ended, turns, title = _read_end(file, status.st_size)
    answered = ended.steps > 0 and turns == ended.turns
    return SessionInfo(
        id=id,
        created=begun.created or status.st_mtime,
        modified=status.st_mtime,
        turns=turns,
        title=begun.title if title is None else title,
        provider=ended.provider,
        model=ended.model,
        usage=ended.total,
        size=status.st_size,
        answered=answered,
    )


def find_sessions(folder: Path) -> list[tuple[int, str]]:
    """The modification times and ids of all sessions, newest first."""
    there: list[tuple[int, str]] = []
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SessionError(f"the sessions in {folder} can't be listed: {error.strerror}", "session") from None
    for entry in entries:
        id = entry.name.removesuffix(SUFFIX)
        if id == entry.name or not SESSION_ID.fullmatch(id):
            continue
        with suppress(OSError):  # it may have been deleted meanwhile
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_size:
                there.append((status.st_mtime_ns, id))
    return sorted(there, reverse=True)


def _read_header(file: int) -> SessionHeader:
    record = _record(read_at(file, HEAD_BYTES, 0).partition(b"\n")[0])
    return record if isinstance(record, SessionHeader) else SessionHeader()


def _read_end(file: int, size: int) -> tuple[TurnEnded, int, str | None]:
    """The last `ended` record, the number of turns including unfinished ones after it, and a title that was given."""
    length = TAIL_BYTES
    while True:
        start = max(0, size - length)
        lines = read_at(file, size - start, start).split(b"\n")[1 if start else 0 :]
        questions, title = 0, None
        for line in reversed(lines):
            if line.startswith(USER_PREFIX):
                questions += 1
            elif title is None and line.startswith(TITLED_PREFIX) and isinstance(given := _record(line), Titled):
                title = given.title
            elif line.startswith(ENDED_PREFIX) and isinstance(ended := _record(line), TurnEnded):
                return ended, ended.turns + questions, (ended.title or None) if title is None else title
        if not start or length >= MOST_TAIL_BYTES:
            return TurnEnded(), questions, title
        length *= 8


def _record(line: bytes) -> object:
    try:
        known = read_line(line)
    except UNREADABLE:
        return None
    return known and known[0]


# The store


NO_ANSWER = "(no answer)"  # in place of one
OWNERS = "owners"  # the folder of those that have a name
PAUSE = 0.02  # seconds between two looks at a session that somebody has
NEW_SESSION_HINT = "begin another with --new-session"
GENERATED_HINT = "a name of this form is one that we make up, so that it is taken for a mistyped one"
LIST_HINT = "`onetool sessions list` shows which there are"


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What was said in a session. Calls that were interrupted, or are under way, have results that say so."""

    id: str
    created: float  # seconds since 1970
    modified: float
    messages: tuple[SessionMessage, ...]
    times: tuple[float, ...]  # when each of these was said
    turns: int  # questions
    usage: Usage  # of the turns that came to their end
    damaged: int  # lines of the file that can't be read
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


class SessionStore:
    """The sessions of one owner. They are in `folder`, or in a folder in there if the owner has a name.

    So the ids of two owners never meet: what is another's is not found, and its id is free. Folders are made when they
    are first needed.
    """

    def __init__(self, folder: Path, now: Callable[[], float] = time.time, owner: str = "") -> None:
        self._root = folder
        self.folder = folder / OWNERS / _folder_name(owner) if owner else folder
        self._owner = owner
        self._now = now

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
                await run_in_thread(session.make_safe)
            raise
        else:
            await run_in_thread(session.make_safe)
        finally:
            session.close()

    def read(self, id: str) -> Transcript:
        """What was said, also while a turn is under way. Raises SessionError."""
        id = self._resolve(id)
        path = self._path(id)
        try:
            file = files.open_file(path, files.READ_FLAGS)
        except FileNotFoundError:
            raise self._not_found(id) from None
        try:
            goes_on = flock.holder(path) is not None  # asked first: a turn that ends meanwhile has all its results
            data, modified = files.read_content(path, file), os.fstat(file).st_mtime
        finally:
            os.close(file)
        if not data:
            raise self._not_found(id)
        return _transcript(id, data, modified, goes_on)

    def delete(self, id: str) -> None:
        """Raises SessionError: not_found, or busy while a turn is under way."""
        path, file = self._lock(id, "then delete it")
        try:
            flock.remove(path, file)
        except OSError as error:
            raise SessionError(f"the session {path.stem} can't be deleted: {error.strerror}", "session") from None

    def rename(self, id: str, title: str) -> None:
        """Give it a title. That is no use of it: it stays where it was in the list. Raises SessionError like delete."""
        path, file = self._lock(id, "then rename it")
        try:
            before = os.fstat(file)
            if not before.st_size:
                raise self._not_found(path.stem)
            line = record_line(Titled(title=short_title(title), at=round(self._now(), 3)))
            files.append_lines(path, file, line)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            files.make_safe(path, file, is_new=False)
        finally:
            files.release_file(path, file)

    def _lock(self, id: str, then: str) -> tuple[Path, int]:
        id = self._resolve(id)
        path = self._path(id)
        try:
            file = files.lock_file(path)
        except FileNotFoundError:
            raise self._not_found(id) from None
        if file is None:
            raise _busy_error(id, path, then)
        return path, file

    def has(self, id: str) -> bool:
        """Whether its file is there, with something in it."""
        try:
            return os.stat(self._path(id), follow_symlinks=False).st_size > 0
        except (OSError, ValueError):
            return False

    def similar_ids(self, id: str) -> builtins.list[str]:
        """Those of similar names, the most similar first."""
        from onetool.core.text import nearest

        return nearest(id, (one for _, one in find_sessions(self.folder) if one != id))

    def list(self) -> builtins.list[SessionInfo]:
        """The newest first. What can't be opened is not in it."""
        self._refuse_links()
        return self._read_infos(id for _, id in find_sessions(self.folder))

    def info(self, id: str) -> SessionInfo:
        """What a list says of one. Raises SessionError."""
        id = self._resolve(id)
        for found in self._read_infos([id]):
            return found
        raise self._not_found(id)

    def page(
        self, before: tuple[int, str] | None, most: int
    ) -> tuple[builtins.list[SessionInfo], tuple[int, str] | None]:
        """So many of the list that follow a place in it, and the place that the next ones follow: None at its end."""
        self._refuse_links()
        there = [one for one in find_sessions(self.folder) if before is None or one < before]
        return self._read_infos(id for _, id in there[:most]), there[most - 1] if len(there) > most else None

    def _read_infos(self, ids: Iterable[str]) -> builtins.list[SessionInfo]:
        listed = []
        for id in ids:
            try:
                file = files.open_file(self._path(id), files.READ_FLAGS)
            except (OSError, SessionError):
                continue
            try:
                one = read_info(id, file)
            except OSError:
                continue
            finally:
                os.close(file)
            if one:
                listed.append(one)
        return listed

    def _make_folder(self) -> None:
        for folder in self._folders():
            files.make_private(folder)

    def _refuse_links(self) -> None:
        for folder in self._folders():
            files.refuse_link(folder)

    def _folders(self) -> tuple[Path, ...]:
        """Each that others must not have put there, the outer ones first."""
        return (self._root, self.folder.parent, self.folder) if self._owner else (self.folder,)

    def _path(self, id: str) -> Path:
        return self.folder / f"{id}{files.SUFFIX}"

    def _resolve(self, id: str) -> str:
        self._refuse_links()
        if id != LAST:
            return check_id(id)
        there = find_sessions(self.folder)
        if not there:
            raise SessionError("there is no session yet", "not_found", ["ask something first"])
        return there[0][1]

    # Opening one. All of it but the waiting is done in a thread: a session may be large, and a disk slow.

    async def _open_turn(self, id: str | None, new: bool, wait: float) -> ChatSession:
        from asyncio import sleep

        if id is None:
            return await run_in_thread(self._open_generated, undo=ChatSession.close)
        named = await run_in_thread(lambda: self._resolve_for_turn(id, new))
        pauses = flock.pauses(wait, PAUSE, PAUSE)
        while (session := await run_in_thread(lambda: self._try_open(named, new), undo=_close)) is None:
            if (pause := next(pauses, None)) is None:
                raise _busy_error(named, self._path(named), f"or {NEW_SESSION_HINT}")
            await sleep(pause)
        return session

    def _resolve_for_turn(self, id: str, new: bool) -> str:
        """The id of the session, resolved once: `last` may become another one while we wait."""
        self._make_folder()
        return check_id(id) if new else self._resolve(id)

    def _try_open(self, id: str, new: bool) -> ChatSession | None:
        """Open and lock the session; None while another process has it."""
        file = files.lock_file(self._path(id), create=True)
        if file is not None:
            return self._open_locked(id, file, new)
        if new:
            raise _exists_error(id)
        return None

    def _open_generated(self) -> ChatSession:
        self._make_folder()
        while True:
            id = new_id(self._now())
            file = files.lock_file(self._path(id), create=True)
            if file is None:  # the same id at the same time: another one, then
                continue
            try:
                return self._open_locked(id, file, new=True)
            except SessionError as error:
                if error.reason != "exists":
                    raise

    def _open_locked(self, id: str, file: int, new: bool) -> ChatSession:
        """Gives the file back where there is no session to give."""
        path = self._path(id)
        try:
            data = files.read_content(path, file)
            if new and data:
                raise _exists_error(id)
            if not new and not data and is_generated(id):
                raise self._not_found(id, f"or --new-session begins it: {GENERATED_HINT}")
            return ChatSession(
                id, path, file, read_session(id, data), is_new=not data, now=self._now, owner=self._owner
            )
        except BaseException:
            files.release_file(path, file)
            raise

    def _not_found(self, id: str, *hints: str) -> SessionError:
        from onetool.core.text import or_rather

        rather = or_rather(id, (one for _, one in find_sessions(self.folder)))
        return SessionError(f"there is no session {id!r}{rather}", "not_found", [LIST_HINT, *hints])


def _folder_name(owner: str) -> str:
    """A hash: an owner's name is no path, and may be longer than one."""
    from hashlib import blake2b

    return blake2b(owner.encode("utf-8", "surrogatepass"), digest_size=16, person=b"ask sessions").hexdigest()


def _transcript(id: str, data: bytes, modified: float, goes_on: bool) -> Transcript:
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


def _close(session: ChatSession | None) -> None:
    if session is not None:
        session.close()


def _busy_error(id: str, path: Path, otherwise: str) -> SessionError:
    who = flock.holder(path, us="another turn of this process") or flock.UNKNOWN
    return SessionError(f"the session {id} is in use by {who}", "busy", ["wait until that turn has ended", otherwise])


def _exists_error(id: str) -> SessionError:
    return SessionError(
        f"there is a session {id!r} already", "exists", ["choose another name", "or leave --new-session out"]
    )
