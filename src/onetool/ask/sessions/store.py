"""All sessions of one folder. A turn in one of them has it alone; reading needs nobody's leave."""

import builtins
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import uniform

import msgspec

from onetool.ask.errors import SessionError
from onetool.ask.messages import Assistant, Message, Result, Usage, User
from onetool.ask.sessions import files
from onetool.ask.sessions.aside import aside
from onetool.ask.sessions.listing import Info, found, info
from onetool.ask.sessions.mending import UNDER_WAY
from onetool.ask.sessions.names import LAST, check_id, is_made_up, new_id
from onetool.ask.sessions.reading import kept
from onetool.ask.sessions.session import Session
from onetool.core import flock

NO_ANSWER = "(no answer)"  # in place of one
PAUSE = 0.02  # seconds between two looks at a session that somebody has
ANOTHER = "begin another with --new-session"
OURS = "a name of this form is one that we make up, so that it is taken for a mistyped one"
LISTED = "`onetool sessions list` shows which there are"


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What was said in a session. Calls that were interrupted, or are under way, have results that say so."""

    id: str
    created: float  # seconds since 1970
    modified: float
    messages: tuple[Message, ...]
    times: tuple[float, ...]  # when each of these was said
    turns: int  # questions
    usage: Usage  # of the turns that came to their end
    damaged: int  # lines of the file that can't be read
    provider: str = ""  # of the last turn that came to its end
    model: str = ""

    def lacks_answer(self, place: int) -> bool:
        """Whether a question's part ends with this message, and there is no answer to it."""
        said, following = self.messages[place], self.messages[place + 1 : place + 2]
        if following and not isinstance(following[0], User):
            return False
        if isinstance(said, Assistant):
            return not said.text
        return not (isinstance(said, Result) and said.content == UNDER_WAY)


class Sessions:
    """Kept in `folder`, which is made when it is first needed."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._now = now

    @asynccontextmanager
    async def turn(self, id: str | None, *, new: bool = False, wait: float = 0.0) -> AsyncIterator[Session]:
        """The session, for as long as this lasts: made if it is not there, waited for at most so many seconds.

        Without an id it is a new one; `new` refuses one that is there already. An id that looks like one of ours has
        to be there, without `new`. Where nothing is said, nothing is kept.
        """
        session = await self._begun(id, new, wait)
        try:
            yield session
        except BaseException:
            with suppress(SessionError):  # what came first says more
                await aside(session.make_safe)
            raise
        else:
            await aside(session.make_safe)
        finally:
            session.close()

    def read(self, id: str) -> Transcript:
        """What was said, also while a turn is under way. Raises SessionError."""
        id = self._meant(id)
        path = self._path(id)
        try:
            file = files.opened(path, files.READ)
        except FileNotFoundError:
            raise self._not_found(id) from None
        try:
            goes_on = flock.holder(path) is not None  # asked first: a turn that ends meanwhile has all its results
            data, modified = files.content(path, file), os.fstat(file).st_mtime
        finally:
            os.close(file)
        if not data:
            raise self._not_found(id)
        return _transcript(id, data, modified, goes_on)

    def delete(self, id: str) -> None:
        """Raises SessionError: not_found, or busy while a turn is under way."""
        id = self._meant(id)
        path = self._path(id)
        try:
            file = files.taken(path)
        except FileNotFoundError:
            raise self._not_found(id) from None
        if file is None:
            raise _busy(id, path, "then delete it")
        try:
            path.unlink()
        except OSError as error:
            raise SessionError(f"the session {id} can't be deleted: {error.strerror}", "session") from None
        finally:
            files.given_back(path, file)

    def has(self, id: str) -> bool:
        """Whether its file is there, with something in it."""
        try:
            return os.stat(self._path(id), follow_symlinks=False).st_size > 0
        except (OSError, ValueError):
            return False

    def like(self, id: str) -> builtins.list[str]:
        """Those of similar names, the most similar first."""
        from onetool.core.nearest import nearest

        return nearest(id, (one for _, one in found(self.folder) if one != id))

    def list(self) -> builtins.list[Info]:
        """The newest first. What can't be opened is not in it."""
        files.refuse_link(self.folder)
        listed = []
        for _, id in found(self.folder):
            try:
                file = files.opened(self._path(id), files.READ)
            except (OSError, SessionError):
                continue
            try:
                one = info(id, file)
            except OSError:
                continue
            finally:
                os.close(file)
            if one:
                listed.append(one)
        return listed

    def _path(self, id: str) -> Path:
        return self.folder / f"{id}{files.ENDING}"

    def _meant(self, id: str) -> str:
        files.refuse_link(self.folder)
        if id != LAST:
            return check_id(id)
        there = found(self.folder)
        if not there:
            raise SessionError("there is no session yet", "not_found", ["ask something first"])
        return there[0][1]

    # Opening one. All of it but the waiting is done in a thread: a session may be large, and a disk slow.

    async def _begun(self, id: str | None, new: bool, wait: float) -> Session:
        from asyncio import sleep

        if id is None:
            return await aside(self._made_up, undo=Session.close)
        named, give_up = await aside(lambda: self._named(id, new)), time.monotonic() + wait
        while (session := await aside(lambda: self._tried(named, new), undo=_closed)) is None:
            if time.monotonic() >= give_up:
                raise _busy(named, self._path(named), f"or {ANOTHER}")
            await sleep(uniform(PAUSE / 2, PAUSE))  # noqa: S311 - so that those who wait do not march in step
        return session

    def _named(self, id: str, new: bool) -> str:
        """Which one it is, once and for all: another may be the last before this one is free."""
        files.private(self.folder)
        return check_id(id) if new else self._meant(id)

    def _tried(self, id: str, new: bool) -> Session | None:
        """None while somebody else has it."""
        file = files.taken(self._path(id), create=True)
        if file is not None:
            return self._opened(id, file, new)
        if new:
            raise _exists(id)
        return None

    def _made_up(self) -> Session:
        files.private(self.folder)
        while True:
            id = new_id(self._now())
            file = files.taken(self._path(id), create=True)
            if file is None:  # the same id at the same time: another one, then
                continue
            try:
                return self._opened(id, file, new=True)
            except SessionError as error:
                if error.reason != "exists":
                    raise

    def _opened(self, id: str, file: int, new: bool) -> Session:
        """Gives the file back where there is no session to give."""
        path = self._path(id)
        try:
            data = files.content(path, file)
            if new and data:
                raise _exists(id)
            if not new and not data and is_made_up(id):
                raise self._not_found(id, f"or --new-session begins it: {OURS}")
            return Session(id, path, file, kept(id, data), is_new=not data, now=self._now)
        except BaseException:
            files.given_back(path, file)
            raise

    def _not_found(self, id: str, *hints: str) -> SessionError:
        from onetool.core.nearest import or_rather

        rather = or_rather(id, (one for _, one in found(self.folder)))
        return SessionError(f"there is no session {id!r}{rather}", "not_found", [LISTED, *hints])


def _transcript(id: str, data: bytes, modified: float, goes_on: bool) -> Transcript:
    read = kept(id, data, goes_on)
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
    )


def _closed(session: Session | None) -> None:
    if session is not None:
        session.close()


def _busy(id: str, path: Path, otherwise: str) -> SessionError:
    who = flock.holder(path, us="another turn of this process") or flock.UNKNOWN
    return SessionError(f"the session {id} is in use by {who}", "busy", ["wait until that turn has ended", otherwise])


def _exists(id: str) -> SessionError:
    return SessionError(
        f"there is a session {id!r} already", "exists", ["choose another name", "or leave --new-session out"]
    )
