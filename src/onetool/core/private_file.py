"""Files that are ours: made readable by their owner, never opened through a link, replaced as a whole or not at all."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG

from onetool.core.os_files import open_no_link

MODE = 0o600
SQLITE_ENDS = ("-journal", "-wal", "-shm")
HAS_OWNERS = hasattr(os, "geteuid")  # and modes that say who can read and write


def private(path: str | Path, flags: int) -> int:
    """An `opener` for `open` that refuses links: a link would make us write to another place. Raises OSError."""
    return open_no_link(path, flags, MODE)


class UnsafeFileError(OSError):
    """A file that others could have written, or can read: why it is not used, and what to do."""

    def __init__(self, why: str, hint: str | None = None) -> None:
        super().__init__(why)
        self.why, self.hint = why, hint


def read_private(file: Path, most: int) -> bytes | None:
    """So many bytes at the most of a file that is ours alone; None if there is none. Raises UnsafeFileError."""
    try:
        handle = open_no_link(file, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnsafeFileError("it is a link" if file.is_symlink() else f"it can't be read ({error.strerror})") from None
    try:
        with os.fdopen(handle, "rb") as stream:
            status = os.fstat(handle)
            if HAS_OWNERS and status.st_uid != os.geteuid():
                raise UnsafeFileError("it belongs to somebody else")
            if HAS_OWNERS and status.st_mode & 0o077:
                hint = f"look at what it says, then: chmod 600 {file}"
                raise UnsafeFileError("others can read or write it", hint)
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
    """Have a file that is its owner's alone, before SQLite opens it, which would make one that all can read.

    What SQLite puts beside it has the same mode. One that is there already is not opened: closing it would end the
    locks that other connections of this process have. Raises OSError.
    """
    try:
        os.close(open_no_link(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE))
    except FileExistsError:
        for one in (file, *(file.with_name(file.name + end) for end in SQLITE_ENDS)):
            _close_to_others(one)


def _close_to_others(file: Path) -> None:
    """Files of former versions may be open to others. What is somebody else's, or a link, stays as it is."""
    with suppress(OSError):
        status = os.lstat(file)
        if HAS_OWNERS and S_ISREG(status.st_mode) and status.st_mode & 0o077 and status.st_uid == os.geteuid():
            file.chmod(MODE)


@contextmanager
def draft_of(file: Path, data: bytes, mode: int = MODE, *, sync: bool = True) -> Generator[Path]:
    """A file beside it with this content, to be moved to its place. If it is not, leaving removes it."""
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
    """Readers see the old content or the new one. After OSError it is the old one."""
    with draft_of(file, data, sync=sync) as draft:
        draft.replace(file)
