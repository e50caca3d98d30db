"""A folder of the state that is ours: for its owner alone, ignored by git, never reached through a link, and locked."""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from onetool.core import flock
from onetool.core.folder import OpenFolder
from onetool.core.private_file import HAS_OWNERS

LOCK = ".lock"
IGNORE = ".gitignore"


@contextmanager
def locked_folder(path: Path, patience: float) -> Generator[OpenFolder]:
    """Open the folder, which is made where there is none, and hold its lock. Others may hold it for so many seconds.

    Raises OSError; TimeoutError if others hold it for longer.
    """
    with lockable_folder(path) as (folder, lock):
        if not flock.wait(lock, patience):
            raise TimeoutError(errno.ETIMEDOUT, "another process holds its lock", str(path))
        yield folder


@contextmanager
def lockable_folder(path: Path) -> Generator[tuple[OpenFolder, int]]:
    """Open the folder, which is made where there is none, and the file of its lock. Leaving gives the lock back."""
    with _opened(path) as folder:
        if HAS_OWNERS and folder.status().st_mode & 0o077:
            os.fchmod(folder.fileno(), 0o700)
        lock = _open_lock(folder)
        try:
            yield folder, lock
        finally:
            flock.give_back(lock)


def _opened(path: Path) -> OpenFolder:
    try:
        with suppress(FileNotFoundError):
            return OpenFolder.at(path, follow=False)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return OpenFolder.at(path, follow=False)
    except OSError:
        if path.is_symlink():
            raise OSError(errno.ELOOP, "its folder is a link, which state is not", str(path)) from None
        raise


def _open_lock(folder: OpenFolder) -> int:
    """The file of the lock is the last that is made: where it is, the folder is ready."""
    with suppress(FileNotFoundError):
        return folder.open(LOCK, os.O_RDWR)
    with suppress(FileExistsError), os.fdopen(folder.open(IGNORE, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w") as stream:
        stream.write("*\n")
    return folder.open(LOCK, os.O_RDWR | os.O_CREAT)
