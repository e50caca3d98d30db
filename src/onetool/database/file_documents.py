"""`FileDocuments`: documents as files of one folder, as versions before `state.db` have kept them."""

import errno
import os
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import (
    asynccontextmanager,
    contextmanager,
    suppress,
)
from pathlib import Path
from typing import Literal

from onetool.core import flock
from onetool.core.flock import lockable_folder
from onetool.core.os_files import PLAIN, draft_of, open_no_link, private, read_private, sync_folder
from onetool.core.state_folders import make_state_folder
from onetool.database.documents import StoredDocument, Unknown, Version

PAUSE = 0.05  # seconds between two attempts on an event loop
LARGEST = 4 * 1024**2  # bytes that are read, and one more

Guard = Literal["any", "no_link", "private"]
"""Which files are read: all; those that are no links; those that nobody else could have written or can read."""


class HeldFile:
    def __init__(self, documents: "FileDocuments", key: str) -> None:
        self._documents, self._key = documents, key

    def load(self) -> StoredDocument:
        return self._documents.load(self._key)

    def write(self, body: bytes) -> Version:
        return self._documents.write(self._key, body)

    def delete(self) -> bool:
        return self._documents.delete(self._key)

    def check(self) -> None:
        """The system takes a lock from nobody."""


class FileDocuments:
    """The file of a document is named after its key, which is a safe name.

    `lock`: one for the folder, or one for each file. With `sync` a change is on the disk when `write` returns.
    """

    def __init__(
        self,
        folder: Path,
        suffix: str = ".json",
        *,
        guard: Guard = "private",
        lock: Literal["folder", "file"] = "folder",
        sync: bool = True,
    ) -> None:
        self.folder = folder
        self._suffix = suffix
        self._guard: Guard = guard
        self._follows = guard == "any"
        self._paths: dict[str, str] = {}  # a version is asked for with every request
        self._has_one_lock = lock == "folder"
        self._sync = sync

    def file(self, key: str) -> Path:
        return self.folder / f"{key}{self._suffix}"

    def describe(self, key: str) -> str:
        return str(self.file(key))

    def version(self, key: str) -> Version:
        """Raises OSError, but for a file that is not there."""
        try:
            found = os.stat(self._paths.get(key) or self._path(key), follow_symlinks=self._follows)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_mode, found.st_uid)

    def _path(self, key: str) -> str:
        return self._paths.setdefault(key, str(self.file(key)))

    def load(self, key: str) -> StoredDocument:
        version = self.version(key)  # first: what is written in between is then noticed
        return StoredDocument(version, self.read(key))

    def read(self, key: str) -> bytes | None:
        body = self._read(key)
        if body is not None:
            with suppress(OSError):  # a folder from before there were markers may be one that we can't write
                make_state_folder(self.folder)
        return body

    def _read(self, key: str) -> bytes | None:
        file = self.file(key)
        if self._guard == "private":
            return read_private(file, LARGEST + 1)
        try:
            opened = os.open(file, os.O_RDONLY | PLAIN) if self._follows else open_no_link(file, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with os.fdopen(opened, "rb") as stream:
            return stream.read() if self._follows else stream.read(LARGEST + 1)

    def write(self, key: str, body: bytes) -> Version:
        file = self.file(key)
        make_state_folder(self.folder)
        with draft_of(file, body, sync=self._sync) as draft:
            ours = draft.stat().st_ino
            draft.replace(file)
        if self._sync:
            sync_folder(self.folder)
        version = self.version(key)
        # Another process may have replaced it in this moment: that is noticed by whoever compares versions.
        return version if isinstance(version, tuple) and version[0] == ours else Unknown()

    def delete(self, key: str) -> bool:
        with suppress(FileNotFoundError, NotADirectoryError):
            self.file(key).unlink()
            return True
        return False

    def keys(self) -> list[str]:
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        end = self._suffix
        return sorted(name.removesuffix(end) for name in names if name.endswith(end) and not name.startswith("."))

    # Locks

    @contextmanager
    def locked(self, key: str, patience: float) -> Iterator[HeldFile]:
        with self._lock_file(key) as lock:
            if not flock.wait(lock, patience):
                raise _held(self.file(key))
            yield HeldFile(self, key)

    @asynccontextmanager
    async def locked_async(self, key: str, patience: float) -> AsyncIterator[HeldFile]:
        with self._lock_file(key) as lock:
            if not await flock.wait_async(lock, patience, PAUSE):
                raise _held(self.file(key))
            yield HeldFile(self, key)

    @contextmanager
    def _lock_file(self, key: str) -> Generator[int]:
        """Gives the open file of the lock. Leaving gives the lock back, as the end of the process does."""
        if self._has_one_lock:
            with lockable_folder(self.folder) as (_, lock):
                yield lock
            return
        make_state_folder(self.folder)
        # Never deleted: a new file would be another lock.
        lock = private(self.folder / f".{key}{self._suffix}.lock", os.O_RDWR | os.O_CREAT)
        try:
            yield lock
        finally:
            flock.give_back(lock)


def _held(file: Path) -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, "another process holds its lock", str(file))
