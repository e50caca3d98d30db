"""`FileStore` keeps bundles in a folder. What may be changed is in `sources.bundles.rules`.

Nothing is created before the first write: a folder that does not exist is an empty store. A bundle keeps its folder's
name when its slug changes. A tool whose file can't be read can be deleted, if the file is named as the store would name
it.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes
from typing import Any

from onetool.core.os_files import OpenFolder
from onetool.sources.bundles.errors import ConflictError, NotFoundError, UnavailableError
from onetool.sources.bundles.files.disk import USAGE, Foreign, anybody
from onetool.sources.bundles.files.indexed import FolderIndex
from onetool.sources.bundles.files.state import KEY_BYTES, FileUsage, key_of, read_key
from onetool.sources.bundles.files.transaction import FileTransaction, IndexOutOfDate
from onetool.sources.bundles.files.writing import ensure_folders
from onetool.sources.bundles.index import PathTakenError
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.rules import MOST_TOOLS, StoreRules
from onetool.sources.bundles.transaction import StoreTransaction

log = logging.getLogger("onetool.bundles")

MOST_TRIES = 3  # where the index turns out to be out of step


class FileStore(FolderIndex, StoreRules):
    def __init__(
        self,
        folder: Path,
        built_in: Sequence[tuple[Bundle, Sequence[Tool]]] = (),
        now: Callable[[], float] = time.time,
        max_tools: int = MOST_TOOLS,
        foreign: Foreign = anybody,
    ) -> None:
        StoreRules.__init__(self, built_in, now, max_tools)
        FolderIndex.__init__(self, folder, built_in, foreign)
        self.counter = FileUsage(folder / USAGE, now)
        self._key: bytes | None = None

    # Beside

    def catch_up(self) -> None:
        """What other processes have written is in the index, which they share."""

    def watch(self, call: Callable[[], None]) -> None:
        """Nothing tells of changes of files."""

    def key(self) -> bytes:
        """Where none can be kept, it is this process's own."""
        if self._key is None:
            self._key = read_key(self._folder) or self._new_key()
        return self._key

    def _new_key(self) -> bytes:
        try:
            with self._lock.held() as root:
                return key_of(self._folder, root)
        except (OSError, UnavailableError):
            return token_bytes(KEY_BYTES)

    def close(self) -> None:
        self.counter.close()
        for index in (*self._retired, *((self._made[0],) if self._made else ())):
            index.close()

    # How it is done

    def change(self, job: Callable[[StoreTransaction], None], makes: bool = False) -> Any:
        """Under the lock. What the job leaves as its `result`; all errors are BundleErrors.

        Only one that `makes` something new has to do with a folder that is not there.
        """
        if not makes and not self._folder.exists():
            raise NotFoundError("there is no such bundle: there are none yet")
        try:
            ensure_folders(self._folder)
            with self._lock.held() as root:
                self._move_to_file()
                if not self._is_kept:
                    self.sync()  # what other processes do reaches an index in memory in no other way
                for _ in range(MOST_TRIES):
                    try:
                        return self._try(job, root)
                    except IndexOutOfDate:
                        self.sync()
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise UnavailableError(f"{self._folder} can't be written: {why}; nothing has changed") from error
        raise ConflictError(f"files in {self._folder} are being changed all the time; try again", "unsteady")

    def _try(self, job: Callable[[StoreTransaction], None], root: OpenFolder) -> Any:
        work: FileTransaction | None = None
        try:
            with self._index().changing() as changes:
                work = FileTransaction(root, changes)
                job(work)
        except (UnavailableError, OSError, PathTakenError) as error:
            if work is None or not work.is_done:
                raise
            self._is_outdated = True
            log.warning("the index of the bundles could not be updated; the next sync repairs it: %s", error)
            with suppress(UnavailableError):
                self.sync()  # the caller may read its change at once
        assert work is not None  # noqa: S101 - else an error has been raised
        return work.result
