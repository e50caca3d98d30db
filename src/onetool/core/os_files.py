"""Opens files and folders without following links, and reads and writes private files.

`OpenFolder` is an open folder, with operations on relative names. These use the folder's descriptor (dir_fd), so that
replacing a folder in its path has no effect.

Private files are readable only by their owner, and are replaced atomically.
"""

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

PLAIN = os.O_CLOEXEC  # not inherited by child processes
DIRECTORY = os.O_DIRECTORY
NO_LINK = os.O_NOFOLLOW
# Don't wait for the other end of a pipe, and don't take over a terminal: the kind of a file is certain only after
# opening it.
NO_WAIT = os.O_NONBLOCK | os.O_NOCTTY
MAX_INPUT_BYTES = 128 * 1024**2  # of a user's file or download; readers have their own limits
CHECK_BYTES = 4  # size of the checksum

StrOrBytesPath = str | bytes | os.PathLike[str]


def open_no_link(path: StrOrBytesPath, flags: int, mode: int = 0o600, dir_fd: int | None = None) -> int:
    """Open a file that isn't a link itself. Raises OSError: ELOOP for a link."""
    return os.open(path, flags | PLAIN | NO_LINK, mode, dir_fd=dir_fd)


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
    """Write a folder's new entries to disk. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | DIRECTORY | PLAIN)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Folders

LIST = os.O_RDONLY | DIRECTORY | PLAIN
# O_PATH passes through folders that may be entered but not listed, as the kernel's own lookup does.
ENTER = getattr(os, "O_PATH", os.O_RDONLY) | DIRECTORY | PLAIN

Name = str | bytes


class OpenFolder:
    """An open folder. The methods raise OSError like the functions of `os` with these names, and follow no links."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def at(cls, path: StrOrBytesPath, flags: int = LIST, *, follow: bool = True) -> Self:
        """Open the folder at a path; with `follow` it may be a link."""
        return cls(os.open(path, flags if follow else flags | NO_LINK))

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Status and content

    def status(self) -> os.stat_result:
        return os.fstat(self._fd)

    def stat(self, name: Name) -> os.stat_result:
        return os.stat(name, dir_fd=self._fd, follow_symlinks=False)

    def names(self) -> list[str]:
        return os.listdir(self._fd)

    @contextmanager
    def scan(self) -> Generator[Iterator["os.DirEntry[str]"]]:
        with os.scandir(self._fd) as entries:
            yield entries

    def folder(self, name: Name) -> "OpenFolder":
        return OpenFolder(os.open(name, LIST | NO_LINK, dir_fd=self._fd))

    def open(self, name: Name, flags: int, mode: int = 0o600) -> int:
        return open_no_link(name, flags, mode, dir_fd=self._fd)

    # Changes

    def mkdir(self, name: Name, mode: int = 0o700) -> None:
        os.mkdir(name, mode, dir_fd=self._fd)

    def unlink(self, name: Name) -> None:
        os.unlink(name, dir_fd=self._fd)

    def rmdir(self, name: Name) -> None:
        os.rmdir(name, dir_fd=self._fd)

    def rename(self, name: Name, other: Name) -> None:
        """Rename a file, replacing any file with the other name."""
        os.rename(name, other, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def link(self, name: Name, other: Name) -> None:
        os.link(name, other, src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False)

    def sync(self) -> None:
        """Write the folder's new entries to disk."""
        os.fsync(self._fd)


# Private files

MODE = 0o600
SQLITE_ENDS = ("-journal", "-wal", "-shm")


def private(path: str | Path, flags: int) -> int:
    """Open a file, refusing links. Used as the `opener` of `open`. Raises OSError."""
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
            if status.st_uid != os.geteuid():
                raise UnsafeFileError("it belongs to another user")
            if status.st_mode & 0o077:
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
                if stat.S_ISREG(mode) and mode & 0o077 and owner == os.geteuid():
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
