"""What a machine keeps beside a folder of bundles, in `.state`, and git does not: its index, and a key.

`FolderIndex` is the index of the folder, once that is in sync with it: what a FileStore reads from. Where the folder
does not exist, or can't be written, the index is in memory; when that changes, the next sync notices. So it is with a
disk that becomes full: files can be read, whether or not the index can be stored.

The key is that of page tokens.
"""

import logging
import os
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes
from time import monotonic
from typing import TypeVar

import msgspec

from onetool.core.errors import Mistake
from onetool.core.os_files import OpenFolder, open_no_link
from onetool.core.state_folders import is_marked, make_home, mark_folder
from onetool.sources.bundles.errors import UnavailableError
from onetool.sources.bundles.files.disk import INDEX, KEY, LARGEST, READ, STATE, Foreign, anybody
from onetool.sources.bundles.files.overlay import BuiltIn
from onetool.sources.bundles.files.sync import FIRST_SECONDS, NO_BUNDLE, FolderSync
from onetool.sources.bundles.files.writing import FolderLock, create, ensure_folder, exists, replace
from onetool.sources.bundles.index import Index, IndexUnwritableError
from onetool.sources.bundles.index.waiting import SingleRunner, WaitLimit
from onetool.sources.bundles.indexed import IndexedReads

log = logging.getLogger("onetool.bundles")

KEY_BYTES = 32


def make_state(folder: Path) -> Path | None:
    """Where the index is; None where nothing can be written, or the folder is not there."""
    file = folder / INDEX
    if os.path.islink(folder / STATE):
        return None  # what we keep would lie somewhere else
    try:
        if not is_marked(folder / STATE):
            with OpenFolder.at(folder) as root:
                if folder.name == "bundles":
                    make_home(folder.parent)
                _make(root)
        return file if os.access(file.parent, os.W_OK | os.X_OK) else None
    except OSError:
        return None


def key_of(folder: Path, root: OpenFolder) -> bytes:
    """The shared key; created on first use, under the lock."""
    _make(root)
    found = read_key(folder)
    if found is not None:
        return found
    key = token_bytes(KEY_BYTES)
    (replace if exists(root, KEY) else create)(root, KEY, key)
    return key


def read_key(folder: Path) -> bytes | None:
    try:
        file = open_no_link(folder / KEY, READ)
    except OSError:
        return None
    try:
        key = os.read(file, LARGEST)
    except OSError:
        return None
    finally:
        os.close(file)
    return key if len(key) == KEY_BYTES else None


def _make(root: OpenFolder) -> None:
    ensure_folder(root, STATE)
    with root.folder(STATE) as state:
        mark_folder(state)


# The index


T = TypeVar("T")
SETTLE_SECONDS = 5.0  # between two tries to get out of memory again
SHARE = 20  # … which may cost one part in so many


class FolderIndex(IndexedReads):
    def __init__(self, folder: Path, built_in: BuiltIn, foreign: Foreign = anybody) -> None:
        self._folder = folder
        self._foreign = foreign
        self.built_in = built_in
        self._lock = FolderLock(folder)
        self._made: tuple[Index, FolderSync] | None = None
        self._retired: list[Index] = []  # that others took the place of, and that are to be closed
        self._is_kept = False  # the index is a file
        self._is_in_memory = False  # there is no folder yet; another process may create it
        self._is_outdated = True  # something has changed that the index does not know yet
        self._seen = -1  # its state at the last look
        self._move_at = 0.0  # not before
        self._wait_limit = WaitLimit()
        self._runner = SingleRunner("the bundles are being read", self._wait_limit)

    def file_of(self, tool_id: str) -> str | None:
        path = self._read(lambda index: index.path_of(tool_id))
        return None if path is None else str(self._folder / path)

    def mistakes(self) -> list[Mistake]:
        """The broken files. Tools whose only mistake is their bundle's are not listed one by one."""
        return [
            msgspec.structs.replace(mistake, file=str(self._folder / (mistake.file or "")))
            for mistake in self._read(Index.mistakes)
            if mistake.message != NO_BUNDLE
        ]

    def stamp(self) -> Hashable:
        if self._made is None or self._is_outdated or (self._is_in_memory and self._folder.is_dir()):
            return None
        return self._made[0].stamp()

    def sync(self) -> bool:
        with self._lock.alone():
            self._move_to_file()
            index = self._synced()
            self._is_outdated = False
            before, self._seen = self._seen, index.state()
            return before != self._seen

    # How it is done

    def _read(self, question: Callable[[Index], T]) -> T:
        try:
            return question(self._index())
        except IndexUnwritableError:  # it was lost, and there is no room for another one
            self._is_outdated = True
            return question(self._index())

    def _index(self) -> Index:
        """The index, synced with changes that this process knows of. Only the first call waits for other threads."""
        if self._is_outdated or (self._is_in_memory and self._folder.is_dir()):
            if self._made is None:
                self._catch_up(FIRST_SECONDS)
            else:
                with suppress(UnavailableError):
                    if self._wait_limit.is_short:
                        self._runner.do(self._catch_up)
                    else:
                        self._catch_up()
        return self._parts()[0]

    def _catch_up(self, seconds: float = 0.0) -> None:
        with self._lock.alone(seconds):
            if self._is_outdated or self._is_in_memory:
                self.sync()

    def _synced(self) -> Index:
        index, looking = self._parts()
        try:
            looking.sync(index)
        except IndexUnwritableError as error:
            log.warning("%s; the index is kept in memory until then", error)
            index, looking = made = self._index_in(None)
            looking.sync(index)
            self._move_at = monotonic() + SETTLE_SECONDS
            self._switch_to(made, is_kept=False)
        return index

    def _parts(self) -> tuple[Index, FolderSync]:
        if self._made is None:
            with self._lock.alone():
                if self._made is None:
                    self._made = self._open()
                    self._wait_limit.answered()
        return self._made

    def _open(self) -> tuple[Index, FolderSync]:
        self._is_in_memory = not self._folder.is_dir()
        file = make_state(self._folder)
        if file is not None:
            try:
                made = self._index_in(file)
                self._retired.append(made[0])  # until it has answered
                made[0].state()
                self._retired.pop()
                self._is_kept = True
                return made
            except UnavailableError as error:
                log.warning("%s; the index is kept in memory for now", error)
        self._is_kept = False
        return self._index_in(None)

    def _index_in(self, file: Path | None) -> tuple[Index, FolderSync]:
        looking = FolderSync(self._folder, self._lock, self.built_in, self._foreign)
        index = Index(file, lambda: looking.sync(index, is_new=True))
        return index, looking

    def _move_to_file(self) -> None:
        """From memory into a file, as soon as there can be one that takes everything in."""
        if self._made is None or self._is_kept or monotonic() < self._move_at:
            return
        self._is_in_memory = not self._folder.is_dir()
        if (file := make_state(self._folder)) is None:
            return
        began = monotonic()
        try:
            index, looking = made = self._index_in(file)
            self._retired.append(index)  # until it has taken everything in
            looking.sync(index)
            self._retired.pop()
        except UnavailableError:
            self._move_at = max(began + SETTLE_SECONDS, monotonic() + (monotonic() - began) * SHARE)
            while len(self._retired) > 1:
                self._retired.pop().close()
        else:
            self._switch_to(made, is_kept=True)

    def _switch_to(self, made: tuple[Index, FolderSync], is_kept: bool) -> None:
        """Another thread may still be asking the one before, or be about to: it is closed when a further one comes."""
        before, self._made, self._is_kept = self._made, made, is_kept
        while self._retired:
            self._retired.pop().close()
        if before is not None:
            self._retired.append(before[0])
