"""A session's file: opened, locked, read, and added to.

The lock (flock) is on the file itself, and the system gives it back when its holder ends, however that ends. Who gets
it looks whether the name still leads to this file: it may have been deleted meanwhile, by its last holder.
A file without content is no session: who locks it first begins one, and who says nothing takes it away again.
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from onetool.ask.errors import SessionError
from onetool.core import flock

LARGEST = 32 * 1024 * 1024
ENDING = ".jsonl"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LINK = "it is a link, and links are not followed"
ELSEWHERE = "take the link away; ONETOOL_HOME says where all of this is kept instead"

# Not to wait for a pipe's writer, not to become a terminal's session: whatever it is, it is refused only once open.
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
WRITE = READ & ~os.O_RDONLY | os.O_RDWR | os.O_APPEND


def opened(path: Path, flags: int) -> int:
    """Raises FileNotFoundError, and SessionError for what is no file of ours."""
    try:
        file = os.open(path, flags, 0o600)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not flags & os.O_CREAT:
            raise
        raise _unusable(path, error) from None
    try:
        if stat.S_ISREG(os.fstat(file).st_mode):
            return file
    except OSError as error:
        os.close(file)
        raise _unusable(path, error) from None
    os.close(file)
    raise _unusable(path, "it is no regular file")


def taken(path: Path, *, create: bool = False) -> int | None:
    """The file, open and locked, or None while somebody else has it. Raises as `opened` does."""
    while True:
        file = opened(path, WRITE | (os.O_CREAT if create else 0))
        mine = False
        try:
            if not flock.take(file):
                return None
            mine = flock.leads_to(path, file, follow_symlinks=False)
            if mine:
                return file
        except OSError as error:
            raise _unusable(path, error) from None
        finally:
            if not mine:
                os.close(file)


def given_back(path: Path, file: int) -> None:
    """Never raises: what was said is written."""
    with suppress(OSError):
        if os.fstat(file).st_size == 0 and flock.leads_to(path, file, follow_symlinks=False):
            path.unlink()
    flock.give_back(file)


def content(path: Path, file: int) -> bytes:
    """All of it, or as much as has been written by now."""
    parts: list[bytes] = []
    at = 0
    try:
        size = os.fstat(file).st_size
        if size > LARGEST:
            raise _unusable(path, f"it has {size:,} bytes, and {LARGEST:,} is the most; begin another, --new-session")
        while at < size and (part := os.pread(file, size - at, at)):
            parts.append(part)
            at += len(part)
    except OSError as error:
        raise _unusable(path, error) from None
    return b"".join(parts)


def add(path: Path, file: int, lines: bytes) -> None:
    """Whole lines, behind whatever is there: half a line is ended first, and stays what it is."""
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            lines = b"\n" + lines
        while lines:  # once, but on a disk that is nearly full: then the second time tells why
            lines = lines[os.write(file, lines) :]
    except OSError as error:
        raise _unusable(path, error, "written") from None


def make_safe(path: Path, file: int, *, is_new: bool) -> None:
    """What was written survives the machine's end, too; a new file's name with it."""
    try:
        os.fsync(file)
        if is_new:
            folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        raise _unusable(path, error, "written") from None


def private(folder: Path) -> None:
    """Made, if it is not there. There may be one already that is more open than it should be."""
    refuse_link(folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        itself = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(itself).st_mode & 0o077:
                os.fchmod(itself, 0o700)
            _keep_from_git(itself)
        finally:
            os.close(itself)
    except OSError as error:
        raise SessionError(f"sessions can't be kept in {folder}: {_in_words(error)}", "session") from None


def refuse_link(folder: Path) -> None:
    """A folder that came with somebody else's files may be a link, and lead to any place."""
    if folder.is_symlink():
        raise SessionError(f"sessions can't be kept in {folder}: {LINK}", "session", [ELSEWHERE])


def _keep_from_git(folder: int) -> None:
    """What was said is nobody else's, whatever repository the folder lies in. One that a person has written stays."""
    with suppress(FileExistsError):
        os.close(os.open(".gitignore", os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder))
    if os.stat(".gitignore", dir_fd=folder, follow_symlinks=False).st_size == 0:  # made just now, or before a crash
        file = os.open(".gitignore", os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.write(file, b"*\n")
        finally:
            os.close(file)


def _unusable(path: Path, why: OSError | str, how: str = "used") -> SessionError:
    if isinstance(why, OSError):
        why = _in_words(why)
    return SessionError(f"the session {path.name.removesuffix(ENDING)} can't be {how}: {path}: {why}", "session")


def _in_words(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return LINK
    if error.errno in FULL:
        return f"{error.strerror}; what was said before is kept. Make room, and ask again"
    return error.strerror or type(error).__name__
