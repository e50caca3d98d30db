"""SessionStore: all sessions of one folder: take a turn in one of them, list, read and delete them.

A turn has its session alone; reading needs no lock. A list reads only the first line and the last ones of each file, so
thousands are listed at once.
"""

import builtins
import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from onetool.ask.errors import SessionError
from onetool.ask.sessions import files
from onetool.ask.sessions.base import AskSessions, ListPlace, owner_folder
from onetool.ask.sessions.files import SUFFIX, SessionFile
from onetool.ask.sessions.infos import SessionEnding, SessionInfo, Transcript, read_ending, session_info, transcript
from onetool.ask.sessions.records import SESSION_ID, Titled, record_line, short_title
from onetool.core import flock
from onetool.core.os_files import read_at

HEAD_BYTES = 4096  # bytes; a first line is shorter
TAIL_BYTES = 4096  # where an `ended` is found, as a rule; else more is read
MOST_TAIL_BYTES = 8 * 1024 * 1024  # … but not more than that
OWNERS = "owners"  # the folder of those that have a name


def read_info(id: str, file: int) -> SessionInfo | None:
    """None for a file in which nothing is. Raises OSError."""
    status = os.fstat(file)
    if not status.st_size:
        return None
    first = read_at(file, HEAD_BYTES, 0).partition(b"\n")[0]
    return session_info(id, first, _read_end(file, status.st_size), status.st_mtime, status.st_size)


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


def _read_end(file: int, size: int) -> SessionEnding:
    length = TAIL_BYTES
    while True:
        start = max(0, size - length)
        lines = read_at(file, size - start, start).split(b"\n")[1 if start else 0 :]
        ending = read_ending(reversed(lines))
        if ending.is_found or not start or length >= MOST_TAIL_BYTES:
            return ending
        length *= 8


# The store


class SessionStore(AskSessions):
    """The sessions of one owner. They are in `folder`, or in a folder in there if the owner has a name.

    Folders are made when they are first needed.
    """

    def __init__(self, folder: Path, now: Callable[[], float] = time.time, owner: str = "") -> None:
        super().__init__(now, owner)
        self._root = folder
        self.folder = folder / OWNERS / owner_folder(owner) if owner else folder

    def read(self, id: str) -> Transcript:
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
        return transcript(id, data, modified, goes_on)

    def delete(self, id: str) -> None:
        path, file = self._lock(id, "then delete it")
        try:
            flock.remove(path, file)
        except OSError as error:
            raise SessionError(f"the session {path.stem} can't be deleted: {error.strerror}", "session") from None

    def rename(self, id: str, title: str) -> None:
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
            raise self._busy_error(id, then)
        return path, file

    def has(self, id: str) -> bool:
        try:
            return os.stat(self._path(id), follow_symlinks=False).st_size > 0
        except (OSError, ValueError):
            return False

    def list(self) -> builtins.list[SessionInfo]:
        self._check_place()
        return self._read_infos(self._ids())

    def info(self, id: str) -> SessionInfo:
        id = self._resolve(id)
        for found in self._read_infos([id]):
            return found
        raise self._not_found(id)

    def page(self, before: ListPlace | None, most: int) -> tuple[builtins.list[SessionInfo], ListPlace | None]:
        self._check_place()
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

    def _ids(self) -> builtins.list[str]:
        return [id for _, id in find_sessions(self.folder)]

    def _make_place(self) -> None:
        for folder in self._folders():
            files.make_private(folder)

    def _check_place(self) -> None:
        for folder in self._folders():
            files.refuse_link(folder)

    def _folders(self) -> tuple[Path, ...]:
        """Each that others must not have put there, the outer ones first."""
        return (self._root, self.folder.parent, self.folder) if self._owner else (self.folder,)

    def _path(self, id: str) -> Path:
        return self.folder / f"{id}{files.SUFFIX}"

    def _lock_for_turn(self, id: str) -> SessionFile | None:
        file = files.lock_file(self._path(id), create=True)
        return None if file is None else SessionFile(self._path(id), file)

    def _holder(self, id: str) -> str:
        return flock.holder(self._path(id), us="another turn of this process") or flock.UNKNOWN
