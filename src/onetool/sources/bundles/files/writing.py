"""Durable file operations and their lock. Operations are durable when they return, and undone when they raise.

There is one writer at a time among all threads and processes: the lock is a flock on the folder of bundles, which the
system releases when its holder ends. `root` is the open folder, and paths are relative to it, so that moving the folder
doesn't matter. A new file is written under a name with a leading dot, synced, and then renamed: readers see either the
old or the new file. The next scan removes files with leading dots that killed processes have left.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock

from onetool.core import flock, os_files
from onetool.core.os_files import OpenFolder
from onetool.sources.bundles.errors import UnavailableError
from onetool.sources.bundles.files.disk import DRAFT, Stamp, parent, stamp_of

LOCK_TIMEOUT = 10.0  # seconds; a write holds the lock for some milliseconds


class FolderLock:
    """The lock of a folder. `held()` gives the open folder and can be nested. Raises UnavailableError and OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mine = RLock()
        self._root: OpenFolder | None = None

    @contextmanager
    def alone(self, seconds: float = LOCK_TIMEOUT) -> Iterator[None]:
        """Hold the lock among the threads of this process only."""
        if not self._mine.acquire(timeout=seconds):
            raise UnavailableError(self._busy(seconds))
        try:
            yield
        finally:
            self._mine.release()

    @contextmanager
    def held(self, seconds: float = LOCK_TIMEOUT) -> Iterator[OpenFolder]:
        deadline = time.monotonic() + seconds
        with self.alone(seconds):
            if self._root is not None:
                yield self._root
                return
            root = flock.take_path(self._folder, OpenFolder.at, deadline - time.monotonic())
            if root is None:
                raise UnavailableError(self._busy(seconds))
            self._root = root
            try:
                yield root
            finally:
                self._root = None
                flock.give_back(root)

    def _busy(self, seconds: float) -> str:
        holder = flock.holder(self._folder) or flock.UNKNOWN
        return f"{self._folder} has been locked by {holder} for more than {seconds:g} s; try again later"


# Changes of files: durable on return, undone on failure. Stamps are of the written files, not of later changes.

MAX_SYNCS = 16  # files that are written concurrently
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def create(root: OpenFolder, path: str, data: bytes) -> Stamp:
    """Create a file. Raises FileExistsError."""
    return create_all(root, [(path, data)])[0]


def create_all(root: OpenFolder, files: Sequence[tuple[str, bytes]]) -> list[Stamp]:
    """Create files in one folder, all or none. Raises FileExistsError with the path of an existing file."""
    if not files:
        return []
    drafts = [(beside(path), data) for path, data in files]
    created: list[str] = []
    try:
        stamps = _write_all(root, drafts)
        for (draft, _), (path, _) in zip(drafts, files, strict=True):
            try:
                _link(root, draft, path)
            except FileExistsError:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
            created.append(path)
            remove_quietly(root, draft)
        sync_folder(root, parent(files[0][0]))
    except BaseException:
        for path in (*created, *(draft for draft, _ in drafts)):
            remove_quietly(root, path)
        raise
    return stamps


def replace(root: OpenFolder, path: str, data: bytes) -> Stamp:
    """Replace a file atomically. The old file is kept under a second name until the new file is durable."""
    draft, before = beside(path), beside(path)
    stamp = _write_file(root, draft, data)
    try:
        try:
            _link(root, path, before, or_copy=True)
            root.rename(draft, path)
        except BaseException:
            remove_quietly(root, draft)
            raise
        _sync_parent(root, path, lambda: root.rename(before, path))
    finally:
        remove_quietly(root, before)
    return stamp


def rename(root: OpenFolder, path: str, new: str) -> None:
    root.rename(path, new)
    sync_folder(root, parent(new))


def remove(root: OpenFolder, path: str) -> None:
    """Remove a file, or a folder with its content."""
    trash = beside(path)
    root.rename(path, trash)
    _sync_parent(root, path, lambda: root.rename(trash, path))
    remove_quietly(root, trash)


def create_folder(root: OpenFolder, path: str, files: Iterable[tuple[str, bytes]]) -> list[Stamp]:
    """Create a folder with files (also one level below), all or nothing. Raises FileExistsError."""
    if exists(root, path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    draft = beside(path)
    try:
        root.mkdir(draft)
        folders = {draft}
        drafts = [(f"{draft}/{name}", data) for name, data in files]
        for file, _ in drafts:
            if parent(file) not in folders:
                root.mkdir(parent(file))
                folders.add(parent(file))
        stamps = _write_all(root, drafts)
        for folder in sorted(folders, reverse=True):
            sync_folder(root, folder)
        root.rename(draft, path)
        _sync_parent(root, path, lambda: root.rename(path, draft))
    except BaseException:
        remove_quietly(root, draft)
        raise
    return stamps


def ensure_folder(root: OpenFolder, path: str) -> bool:
    """Create the folder if it is missing, and return whether it was."""
    try:
        root.mkdir(path)
    except FileExistsError:
        if stat.S_ISDIR(root.stat(path).st_mode):
            return False
        raise NotADirectoryError(errno.ENOTDIR, "a link or a file is where a folder should be", path) from None
    _sync_parent(root, path, lambda: remove_quietly(root, path))
    return True


def ensure_folders(folder: Path) -> None:
    """Create the folder of bundles and its parents."""
    if os.path.isdir(folder):
        return
    ensure_folders(folder.parent)
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
        os_files.sync_folder(folder.parent)


def exists(root: OpenFolder, path: str) -> bool:
    try:
        root.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def names_in(root: OpenFolder, path: str) -> list[str]:
    """Return the names in a folder, without unfinished files; empty if the folder is missing."""
    try:
        folder = root.folder(path)
    except FileNotFoundError:
        return []
    with folder:
        return sorted(name for name in folder.names() if not name.startswith(DRAFT))


def remove_quietly(root: OpenFolder, path: str) -> None:
    """Remove a file or folder, in two attempts. Leftovers are removed later."""
    for _ in range(2):
        with suppress(OSError):
            _remove_tree(root, path)
            return


def sync_folder(root: OpenFolder, path: str) -> None:
    with root.folder(path) as folder:
        folder.sync()


def _sync_parent(root: OpenFolder, path: str, undo: Callable[[], None]) -> None:
    """Sync the folder of a changed path. If that fails, undo the change."""
    try:
        sync_folder(root, parent(path))
    except BaseException:
        undo()
        raise


def beside(path: str) -> str:
    """Return a name for an unfinished file in the same folder."""
    folder, slash, _ = path.rpartition("/")
    return f"{folder}{slash}{DRAFT}{os.urandom(8).hex()}"


def _write_file(root: OpenFolder, path: str, data: bytes) -> Stamp:
    file = root.open(path, NEW)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
            stamp = stamp_of(os.fstat(file))
        finally:
            os.close(file)
    except BaseException:
        remove_quietly(root, path)
        raise
    return stamp


def _write_all(root: OpenFolder, files: Sequence[tuple[str, bytes]]) -> list[Stamp]:
    """Write and sync new files, several concurrently, because file systems commit concurrent syncs together.

    On a disk with 30 ms per sync, the thousand tools of a large API would take half a minute one by one.
    """
    if len(files) == 1:
        return [_write_file(root, *files[0])]
    with ThreadPoolExecutor(MAX_SYNCS) as pool:
        return [*pool.map(lambda file: _write_file(root, *file), files)]


def _link(root: OpenFolder, path: str, other: str, or_copy: bool = False) -> None:
    """Link a file to a second name. Without hard links, copy the file, or move it if the target is free."""
    try:
        root.link(path, other)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if or_copy:
            with os.fdopen(root.open(path, os.O_RDONLY), "rb") as file:
                _write_file(root, other, file.read())
        elif exists(root, other):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), other) from None
        else:
            root.rename(path, other)


def _remove_tree(root: OpenFolder, path: str) -> None:
    try:
        is_folder = stat.S_ISDIR(root.stat(path).st_mode)
    except FileNotFoundError:
        return
    if not is_folder:
        root.unlink(path)
        return
    with root.folder(path) as folder:
        names = folder.names()
    for name in names:
        _remove_tree(root, f"{path}/{name}")
    root.rmdir(path)
