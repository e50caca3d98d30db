"""SessionStore: all sessions of one folder: take a turn in one of them, list, read and delete them.

A turn has its session alone; reading needs no lock. A list reads only the first line and the last ones of each file, so
thousands are listed at once.

The lock (flock) is on the file itself, and the system releases it when its holder ends. After locking, the holder
checks that the name still leads to this file: its last holder may have deleted it. An empty file is no session: who
locks it first begins one, and removes it again if nothing is said.
"""

import builtins
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from onetool.ask.errors import SessionError
from onetool.ask.sessions.base import AskSessions, ListPlace, owner_folder
from onetool.ask.sessions.records import (
    SESSION_ID,
    SessionEnding,
    SessionInfo,
    Transcript,
    read_ending,
    session_info,
    transcript,
)
from onetool.core import flock
from onetool.core.os_files import NO_WAIT, OpenFolder, open_no_link, read_at, sync_folder
from onetool.core.state_folders import mark_folder

LARGEST = 32 * 1024 * 1024
SUFFIX = ".jsonl"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LINK_ERROR = "it is a link, and links are not followed"
LINK_HINT = "take the link away; ONETOOL_HOME says where all of this is kept instead"

READ_FLAGS = os.O_RDONLY | NO_WAIT
WRITE_FLAGS = os.O_RDWR | os.O_APPEND | NO_WAIT

HEAD_BYTES = 4096  # bytes; a first line is shorter
TAIL_BYTES = 4096  # where an `ended` is found, as a rule; else more is read
MOST_TAIL_BYTES = 8 * 1024 * 1024  # … but not more than that
OWNERS = "owners"  # the folder of those that have a name


# The file


def open_file(path: Path, flags: int) -> int:
    """Raises FileNotFoundError, and SessionError for what is no file of ours."""
    try:
        file = open_no_link(path, flags)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not flags & os.O_CREAT:
            raise
        raise _unusable_error(path, error) from None
    try:
        if stat.S_ISREG(os.fstat(file).st_mode):
            return file
    except OSError as error:
        os.close(file)
        raise _unusable_error(path, error) from None
    os.close(file)
    raise _unusable_error(path, "it is no regular file")


def lock_file(path: Path, *, create: bool = False) -> int | None:
    """Open and lock the file; None while another process has it. Raises as `open_file` does."""
    while True:
        file = open_file(path, WRITE_FLAGS | (os.O_CREAT if create else 0))
        mine = False
        try:
            if not flock.take(file):
                return None
            mine = flock.leads_to(path, file, follow_symlinks=False)
            if mine:
                return file
        except OSError as error:
            raise _unusable_error(path, error) from None
        finally:
            if not mine:
                os.close(file)


def release_file(path: Path, file: int) -> None:
    """Unlock and close the file, and remove it if it is empty. Never raises."""
    is_empty = False
    with suppress(OSError):
        is_empty = os.fstat(file).st_size == 0 and flock.leads_to(path, file, follow_symlinks=False)
    if not is_empty:
        flock.give_back(file)
        return
    with suppress(OSError):
        flock.remove(path, file)


def read_content(path: Path, file: int) -> bytes:
    """The content of the file, as far as it is written."""
    parts: list[bytes] = []
    at = 0
    try:
        size = os.fstat(file).st_size
        if size > LARGEST:
            raise _unusable_error(
                path, f"it has {size:,} bytes, and {LARGEST:,} is the most; begin another, --new-session"
            )
        while at < size and (part := read_at(file, size - at, at)):
            parts.append(part)
            at += len(part)
    except OSError as error:
        raise _unusable_error(path, error) from None
    return b"".join(parts)


def append_lines(path: Path, file: int, lines: bytes) -> None:
    """Append whole lines; an incomplete last line is ended first."""
    try:
        size = os.fstat(file).st_size
        if size and read_at(file, 1, size - 1) != b"\n":
            lines = b"\n" + lines
        while lines:  # once, but on a disk that is nearly full: then the second time tells why
            lines = lines[os.write(file, lines) :]
    except OSError as error:
        raise _unusable_error(path, error, "written") from None


def make_safe(path: Path, file: int, *, is_new: bool) -> None:
    """Flush the file to disk (fsync), and the folder too if the file is new."""
    try:
        os.fsync(file)
        if is_new:
            sync_folder(path.parent)
    except OSError as error:
        raise _unusable_error(path, error, "written") from None


def make_private_folder(folder: Path) -> None:
    """Create the folder with mode 0700, or set its mode, and mark it as state."""
    refuse_link(folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with OpenFolder.at(folder, follow=False) as opened:
            mark_folder(opened)
    except OSError as error:
        raise SessionError(f"sessions can't be kept in {folder}: {_os_error_text(error)}", "session") from None


def refuse_link(folder: Path) -> None:
    """Refuse a folder that is a link: one that came with other people's files may lead anywhere."""
    if folder.is_symlink():
        raise SessionError(f"sessions can't be kept in {folder}: {LINK_ERROR}", "session", [LINK_HINT])


class SessionFile:
    """A file that is open and locked for a turn."""

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        self._file = file

    def read(self) -> bytes:
        return read_content(self._path, self._file)

    def append(self, lines: bytes) -> None:
        append_lines(self._path, self._file, lines)

    def flush(self) -> None:
        """It is written already."""

    async def settle(self) -> None:
        """So it is."""

    def make_safe(self, *, is_new: bool) -> None:
        make_safe(self._path, self._file, is_new=is_new)

    def give_back(self) -> None:
        """Closing does it, at once."""

    def close(self) -> None:
        """Others may have it. Nothing more is written, not even into a file that gets this one's number."""
        file, self._file = self._file, -1
        if file != -1:
            release_file(self._path, file)


def _unusable_error(path: Path, why: OSError | str, how: str = "used") -> SessionError:
    if isinstance(why, OSError):
        why = _os_error_text(why)
    return SessionError(f"the session {path.name.removesuffix(SUFFIX)} can't be {how}: {path}: {why}", "session")


def _os_error_text(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return LINK_ERROR
    if error.errno in DISK_FULL:
        return f"{error.strerror}; what was said before is kept. Make room, and ask again"
    return error.strerror or type(error).__name__


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
            file = open_file(path, READ_FLAGS)
        except FileNotFoundError:
            raise self._not_found(id) from None
        try:
            goes_on = flock.holder(path) is not None  # asked first: a turn that ends meanwhile has all its results
            data, modified = read_content(path, file), os.fstat(file).st_mtime
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
            line = self._title_line(title)
            append_lines(path, file, line)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            make_safe(path, file, is_new=False)
        finally:
            release_file(path, file)

    def _lock(self, id: str, then: str) -> tuple[Path, int]:
        id = self._resolve(id)
        path = self._path(id)
        try:
            file = lock_file(path)
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
                file = open_file(self._path(id), READ_FLAGS)
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
            make_private_folder(folder)

    def _check_place(self) -> None:
        for folder in self._folders():
            refuse_link(folder)

    def _folders(self) -> tuple[Path, ...]:
        """Each that others must not have put there, the outer ones first."""
        return (self._root, self.folder.parent, self.folder) if self._owner else (self.folder,)

    def _path(self, id: str) -> Path:
        return self.folder / f"{id}{SUFFIX}"

    def _lock_for_turn(self, id: str) -> SessionFile | None:
        file = lock_file(self._path(id), create=True)
        return None if file is None else SessionFile(self._path(id), file)

    def _holder(self, id: str) -> str:
        return flock.holder(self._path(id), us="another turn of this process") or flock.UNKNOWN
