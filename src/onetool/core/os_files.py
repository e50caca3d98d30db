"""Opens files and folders without following links, and reads and writes private files.

The functions for files work the same on all systems: `O_NOFOLLOW` and similar flags are missing on Windows, and
`O_BINARY`, without which Windows changes the bytes that are read and written, is missing elsewhere.

`OpenFolder` is an open folder, with operations on relative names. Where possible, these use the folder's descriptor
(dir_fd), so that replacing a folder in its path has no effect. Windows can't open folders: there, `OpenFolder` holds a
path with all links resolved, and each operation first checks that the path still leads to the same folder without any
link; after opening a file, it checks this once more.

Private files are readable only by their owner, and are replaced atomically.
"""

import errno
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

PLAIN = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)  # binary, and not inherited by child processes
DIRECTORY = getattr(os, "O_DIRECTORY", 0)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# Don't wait for the other end of a pipe, and don't take over a terminal: the kind of a file is certain only after
# opening it.
NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
MAX_INPUT_BYTES = 128 * 1024**2  # of a user's file or download; readers have their own limits
CHECK_BYTES = 4  # size of the checksum

StrOrBytesPath = str | bytes | os.PathLike[str]


def open_no_link(path: StrOrBytesPath, flags: int, mode: int = 0o600, dir_fd: int | None = None) -> int:
    """Open a file that isn't a link itself. Raises OSError: ELOOP for a link."""
    if NO_LINK:
        return os.open(path, flags | PLAIN | NO_LINK, mode, dir_fd=dir_fd)
    at: dict[str, Any] = {} if dir_fd is None else {"dir_fd": dir_fd}
    try:
        _refuse_link(os.stat(path, follow_symlinks=False, **at))
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    file = os.open(path, flags | PLAIN, mode, **at)
    try:  # the file may have been replaced by a link
        status = os.stat(path, follow_symlinks=False, **at)
        _refuse_link(status)
        if not os.path.samestat(status, os.fstat(file)):
            raise _link_error()
    except BaseException:
        os.close(file)
        raise
    return file


def is_link(status: os.stat_result) -> bool:
    """Return whether the status is that of a link or a Windows junction."""
    junction = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    return stat.S_ISLNK(status.st_mode) or (junction is not None and getattr(status, "st_reparse_tag", 0) == junction)


def read_at(file: int, size: int, at: int) -> bytes:
    """Read at most `size` bytes at an offset. On systems without `pread`, the file position moves."""
    if hasattr(os, "pread"):
        return os.pread(file, size, at)
    os.lseek(file, at, os.SEEK_SET)
    return os.read(file, size)


def write_cache(file: Path, head: bytes, body: bytes | memoryview) -> None:
    """Write a cache file: a line that identifies the content, a checksum, and the body. Raises OSError."""
    from zlib import crc32

    replace_file(file, b"".join((head, crc32(body).to_bytes(CHECK_BYTES, "big"), body)), sync=False)


def read_cache(file: StrOrBytesPath, head: bytes, max_bytes: int) -> memoryview | None:
    """Return the body of a cache file; None if the file is missing, damaged, too large or has another head."""
    from zlib import crc32

    try:
        with os.fdopen(open_no_link(file, os.O_RDONLY | NO_WAIT), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > max_bytes or stream.read(len(head)) != head:
                return None
            data = memoryview(stream.read(max_bytes))
    except OSError:
        return None
    body = data[CHECK_BYTES:]
    return body if int.from_bytes(data[:CHECK_BYTES], "big") == crc32(body) and body else None


def sync_folder(folder: StrOrBytesPath) -> None:
    """Write a folder's new entries to disk. Not needed, and not possible, on Windows. Raises OSError."""
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


# Folders

HAS_DIR_FD = bool(DIRECTORY and NO_LINK and os.open in os.supports_dir_fd)
LIST = os.O_RDONLY | DIRECTORY | PLAIN
# O_PATH passes through folders that may be entered but not listed, as the kernel's own lookup does.
ENTER = getattr(os, "O_PATH", os.O_RDONLY) | DIRECTORY | PLAIN

Name = str | bytes


class OpenFolder:
    """An open folder. The methods raise OSError like the functions of `os` with these names, and follow no links."""

    def __init__(self, fd: int | None, path: str = "") -> None:
        self._fd = fd
        self.path = path  # only used without a descriptor
        self._at_first = None if fd is not None else os.stat(path, follow_symlinks=False)

    @classmethod
    def at(cls, path: StrOrBytesPath, flags: int = LIST, *, follow: bool = True) -> Self:
        """Open the folder at a path; with `follow` it may be a link."""
        if HAS_DIR_FD:
            return cls(os.open(path, flags if follow else flags | NO_LINK))
        status = os.stat(path, follow_symlinks=follow)
        if is_link(status):
            raise _link_error()
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return cls(None, os.path.realpath(os.fsdecode(path)))

    def fileno(self) -> int:
        if self._fd is None:
            raise OSError(errno.EBADF, "this system has no descriptors for folders")
        return self._fd

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Status and content

    def status(self) -> os.stat_result:
        return os.fstat(self._fd) if self._fd is not None else os.stat(self._whole(b"."))

    def stat(self, name: Name) -> os.stat_result:
        return self._do(os.stat, name, follow_symlinks=False)

    def names(self) -> list[str]:
        return os.listdir(self._fd if self._fd is not None else self._whole(b"."))

    @contextmanager
    def scan(self) -> Generator[Iterator["os.DirEntry[str]"]]:
        with os.scandir(self._fd if self._fd is not None else self._whole(b".")) as entries:
            yield entries

    def folder(self, name: Name, flags: int = LIST) -> "OpenFolder":
        if self._fd is not None:
            return OpenFolder(os.open(name, flags | NO_LINK, dir_fd=self._fd))
        return OpenFolder.at(self._whole(name), follow=False)

    def open(self, name: Name, flags: int, mode: int = 0o600) -> int:
        file = self._do(open_no_link, name, flags, mode)
        try:
            self._check()
        except BaseException:
            os.close(file)
            raise
        return file

    # Changes

    def mkdir(self, name: Name, mode: int = 0o700) -> None:
        self._do(os.mkdir, name, mode)

    def unlink(self, name: Name) -> None:
        self._do(os.unlink, name)

    def rmdir(self, name: Name) -> None:
        self._do(os.rmdir, name)

    def rename(self, name: Name, other: Name) -> None:
        """Rename a file, replacing any file with the other name."""
        if self._fd is not None:
            os.rename(name, other, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        else:
            os.replace(self._whole(name), self._whole(other))

    def link(self, name: Name, other: Name) -> None:
        if self._fd is not None:
            os.link(name, other, src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False)
        else:
            os.link(self._whole(name), self._whole(other))

    def sync(self) -> None:
        """Write the folder's new entries to disk. Not needed on Windows."""
        if self._fd is not None:
            os.fsync(self._fd)

    def _do(self, function: Any, name: Name, *args: Any, **options: Any) -> Any:
        if self._fd is not None:
            return function(name, *args, dir_fd=self._fd, **options)
        return function(self._whole(name), *args, **options)

    def _whole(self, name: Name) -> str:
        self._check()
        return os.path.join(self.path, os.fsdecode(name))

    def _check(self) -> None:
        """Raise OSError if the path no longer leads to the folder that was opened, or leads through a link."""
        if self._at_first is None:
            return
        if os.path.realpath(self.path) != self.path or not os.path.samestat(os.lstat(self.path), self._at_first):
            raise OSError(errno.ELOOP, "the folder has been replaced")


# Private files

MODE = 0o600
SQLITE_ENDS = ("-journal", "-wal", "-shm")
HAS_OWNERS = hasattr(os, "geteuid")  # and permission bits


def private(path: str | Path, flags: int) -> int:
    """Open a file, refusing links: an `opener` for `open`. Raises OSError."""
    return open_no_link(path, flags, MODE)


class UnsafeFileError(OSError):
    """A file that other users could have written or can read. `why` is the reason; `hint` says how to fix it."""

    def __init__(self, why: str, hint: str | None = None) -> None:
        super().__init__(why)
        self.why, self.hint = why, hint


def read_private(file: Path, most: int) -> bytes | None:
    """Read at most `most` bytes of a private file. Return None if the file is missing. Raises UnsafeFileError."""
    try:
        handle = open_no_link(file, os.O_RDONLY | NO_WAIT)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnsafeFileError("it is a link" if file.is_symlink() else f"it can't be read ({error.strerror})") from None
    try:
        with os.fdopen(handle, "rb") as stream:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise UnsafeFileError("it is not a regular file")
            if HAS_OWNERS and status.st_uid != os.geteuid():
                raise UnsafeFileError("it belongs to another user")
            if HAS_OWNERS and status.st_mode & 0o077:
                hint = f"check its content, then run: chmod 600 {file}"
                raise UnsafeFileError("other users can read or write it", hint)
            return stream.read(most)
    except UnsafeFileError:
        raise
    except OSError as error:
        raise UnsafeFileError(f"it can't be read ({error.strerror})") from None


def write_new(file: Path, text: str) -> None:
    """Write a new file. An existing file or link stays as it is."""
    with suppress(FileExistsError), open(file, "x", encoding="utf-8") as stream:
        stream.write(text)


def make_private(file: Path) -> None:
    """Create a database file that only its owner can read, or fix the mode of an existing one.

    SQLite would create a file that everyone can read; the files that SQLite adds get the mode of the database. An
    existing file is not opened, because closing it would release the locks of other connections in this process. Raises
    OSError.
    """
    try:
        os.close(open_no_link(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE))
    except FileExistsError:
        for one in (file, *(file.with_name(file.name + end) for end in SQLITE_ENDS)):
            with suppress(OSError):  # files of earlier versions may be readable by others
                mode, owner = (status := os.lstat(one)).st_mode, status.st_uid
                if HAS_OWNERS and stat.S_ISREG(mode) and mode & 0o077 and owner == os.geteuid():
                    one.chmod(MODE)


@contextmanager
def draft_of(file: Path, data: bytes, mode: int = MODE, *, sync: bool = True) -> Generator[Path]:
    """Write a temporary file next to `file`, to be moved to its place. Deleted on exit if not moved."""
    draft = file.with_name(f".{file.name}.{os.urandom(8).hex()}")
    handle = open_no_link(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            if sync:
                os.fsync(handle)
        yield draft
    finally:
        with suppress(OSError):
            draft.unlink()


def replace_file(file: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace a file atomically: readers see the old or the new content. After OSError, the old content remains."""
    with draft_of(file, data, sync=sync) as draft:
        draft.replace(file)
