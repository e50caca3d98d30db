"""The file of a session: open, lock, read, append; and blocking work in a thread.

The lock (flock) is on the file itself, and the system releases it when its holder ends. After locking, the holder
checks that the name still leads to this file: its last holder may have deleted it. An empty file is no session: who
locks it first begins one, and removes it again if nothing is said.
"""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from onetool.ask.errors import SessionError
from onetool.core import flock
from onetool.core.os_files import HAS_DIR_FD, NO_WAIT, OpenFolder, open_no_link, read_at, sync_folder

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T], undo: Callable[[T], None] | None = None) -> T:
    """Run blocking work in a thread. If cancelled, wait for its end all the same, then undo its result."""
    import asyncio  # lists of sessions, and their completion, do without

    running = asyncio.get_running_loop().run_in_executor(None, work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return running.result()
    if running.exception() is None and undo is not None:
        undo(running.result())
    raise cancelled


# The file


LARGEST = 32 * 1024 * 1024
SUFFIX = ".jsonl"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LINK_ERROR = "it is a link, and links are not followed"
LINK_HINT = "take the link away; ONETOOL_HOME says where all of this is kept instead"

READ_FLAGS = os.O_RDONLY | NO_WAIT
WRITE_FLAGS = os.O_RDWR | os.O_APPEND | NO_WAIT


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


def make_private(folder: Path) -> None:
    """Create the folder with mode 0700, or set its mode."""
    refuse_link(folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with OpenFolder.at(folder, follow=False) as itself:
            if HAS_DIR_FD and itself.status().st_mode & 0o077:  # elsewhere modes say nothing
                os.fchmod(itself.fileno(), 0o700)
            _keep_from_git(itself)
    except OSError as error:
        raise SessionError(f"sessions can't be kept in {folder}: {_os_error_text(error)}", "session") from None


def refuse_link(folder: Path) -> None:
    """Refuse a folder that is a link: one that came with other people's files may lead anywhere."""
    if folder.is_symlink():
        raise SessionError(f"sessions can't be kept in {folder}: {LINK_ERROR}", "session", [LINK_HINT])


def _keep_from_git(folder: OpenFolder) -> None:
    """Write a .gitignore: sessions are private. An existing one stays."""
    with suppress(FileExistsError):
        os.close(folder.open(".gitignore", os.O_CREAT | os.O_EXCL))
    if folder.stat(".gitignore").st_size == 0:  # made just now, or before a crash
        file = folder.open(".gitignore", os.O_WRONLY)
        try:
            os.write(file, b"*\n")
        finally:
            os.close(file)


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
