"""One writer at a time, among all threads and processes: a lock (flock) on the folder of bundles itself.

The system gives a lock back when its holder ends, however that ends. A folder that has something in it can't be
deleted; if it is moved away while it is held, the holder goes on in the one that it holds, never in the new one: it has
the folder open, and does everything relative to that.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import uniform
from threading import RLock

from onetool.core import flock
from onetool.sources.bundles.errors import Unavailable

PATIENCE = 10.0  # seconds; a write holds it for some milliseconds
PAUSE = 0.001
LONGEST_PAUSE = 0.005
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class FolderLock:
    """`held()` gives the folder, open; who has it may ask again. Raises Unavailable when that takes long, OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mine = RLock()
        self._root: int | None = None

    @contextmanager
    def alone(self, patience: float = PATIENCE) -> Iterator[None]:
        """Among the threads of this process only."""
        if not self._mine.acquire(timeout=patience):
            raise Unavailable(self._busy(patience))
        try:
            yield
        finally:
            self._mine.release()

    @contextmanager
    def held(self, patience: float = PATIENCE) -> Iterator[int]:
        deadline = time.monotonic() + patience
        with self.alone(patience):
            if self._root is not None:
                yield self._root
                return
            self._root = root = self._taken(deadline, patience)
            try:
                yield root
            finally:
                self._root = None
                flock.give_back(root)

    def _taken(self, deadline: float, patience: float) -> int:
        pause = PAUSE
        while True:
            root = os.open(self._folder, FOLDER)
            try:
                if _try(root) and flock.leads_to(self._folder, root):
                    return root
            except BaseException:
                flock.give_back(root)
                raise
            flock.give_back(root)
            if time.monotonic() > deadline:
                raise Unavailable(self._busy(patience))
            time.sleep(uniform(pause / 2, pause))  # noqa: S311 - so that those who wait do not march in step
            pause = min(pause * 1.1, LONGEST_PAUSE)

    def _busy(self, patience: float) -> str:
        who = flock.holder(self._folder) or flock.UNKNOWN
        return f"{self._folder} is being written by {who}, for more than {patience:g} s; try again later"


def _try(root: int) -> bool:
    try:
        return flock.take(root)
    except flock.NoFlockError:
        raise Unavailable("bundles can't be written on this system: it has no flock") from None
