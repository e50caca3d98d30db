"""Files as POSIX has them, also where the system is another: flags, files that are no links, reading at an offset.

`O_NOFOLLOW` and its like are missing on Windows, and `O_BINARY` is missing elsewhere. Without the latter Windows would
change the bytes that are read and written.
"""

import errno
import os
import stat
from typing import Any

PLAIN = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)  # bytes as they are, and not for child processes
DIRECTORY = getattr(os, "O_DIRECTORY", 0)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# Not to wait for a pipe's other end, not to become a terminal's session: what it is, is seen for sure only once open.
NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)

StrOrBytesPath = str | bytes | os.PathLike[str]


def open_no_link(path: StrOrBytesPath, flags: int, mode: int = 0o600, dir_fd: int | None = None) -> int:
    """Open a file that is no link itself. Raises OSError: ELOOP for a link."""
    if NO_LINK:
        return os.open(path, flags | PLAIN | NO_LINK, mode, dir_fd=dir_fd)
    at: dict[str, Any] = {} if dir_fd is None else {"dir_fd": dir_fd}
    try:
        _refuse_link(os.stat(path, follow_symlinks=False, **at))
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    file = os.open(path, flags | PLAIN, mode, **at)
    try:  # a link may have been put there meanwhile
        status = os.stat(path, follow_symlinks=False, **at)
        _refuse_link(status)
        if not os.path.samestat(status, os.fstat(file)):
            raise _link_error()
    except BaseException:
        os.close(file)
        raise
    return file


def is_link(status: os.stat_result) -> bool:
    """Whether it is a link, or what Windows calls a junction."""
    junction = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    return stat.S_ISLNK(status.st_mode) or (junction is not None and getattr(status, "st_reparse_tag", 0) == junction)


def read_at(file: int, size: int, at: int) -> bytes:
    """Read so many bytes at the most from there on. Where the system has no `pread`, the position moves."""
    if hasattr(os, "pread"):
        return os.pread(file, size, at)
    os.lseek(file, at, os.SEEK_SET)
    return os.read(file, size)


def sync_folder(folder: StrOrBytesPath) -> None:
    """Make new names in a folder safe. Windows can't open one, and needs no such step. Raises OSError."""
    if not DIRECTORY:
        return
    handle = os.open(folder, os.O_RDONLY | DIRECTORY | PLAIN)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refuse_link(status: os.stat_result) -> None:
    if is_link(status):
        raise _link_error()


def _link_error() -> OSError:
    return OSError(errno.ELOOP, os.strerror(errno.ELOOP))
