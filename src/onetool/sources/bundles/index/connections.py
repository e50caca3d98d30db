"""Connections: one for each thread, opened when it first asks and again when the file is another one.

An index in memory has a single one, which its threads take in turns. After a fork the child opens its own: those of the
parent stay untouched, as SQLite wants it.
"""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from threading import RLock, local
from weakref import WeakSet

from onetool.sources.bundles.errors import Unavailable
from onetool.sources.bundles.index.opening import Identity, identity, in_memory, opened, throw_away
from onetool.sources.bundles.index.patience import Patience

_of_the_parent: list[object] = []  # kept, so that nothing in a forked child closes them


class Held:
    """A connection, for whoever has its lock; and the file that it is to."""

    def __init__(self, database: sqlite3.Connection, file: Identity | None, patience: float | None = None) -> None:
        self.database = database
        self.file = file
        self._patience = patience  # that SQLite has; None: nobody knows
        self.lock = RLock()
        self.process = os.getpid()
        self.is_filled = False  # whether somebody has looked if the index is, and seen to it
        self.revision: int | None = None  # of one in memory, which nobody else changes: after its last change

    def is_still_of(self, file: Path) -> bool:
        try:
            return self.database.in_transaction or self.file == identity(file)
        except sqlite3.ProgrammingError:  # it is closed
            return False

    def wait(self, seconds: float) -> None:
        """From now on so long for others."""
        if seconds != self._patience:
            self.database.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")
            self._patience = seconds

    def close(self) -> None:
        with self.lock, suppress(sqlite3.Error):
            self.database.close()

    def __del__(self) -> None:  # its thread has ended
        if self.process == os.getpid():
            self.database.close()
        else:
            _of_the_parent.append(self.database)


class Connections:
    """Raises OSError, sqlite3.Error and Unavailable, also when it is made."""

    def __init__(self, file: Path | None, patience: Patience) -> None:
        self._file = file
        self._patience = patience
        self._mine = local()
        self._all: WeakSet[Held] = WeakSet()
        self._lock = RLock()
        self._is_closed = False
        self._shared = None if file is not None else self._kept(Held(in_memory(), None))
        self.current()

    def current(self) -> Held:
        """This thread's. One that is in the middle of a transaction stays, whatever became of its file."""
        if self._is_closed:
            raise Unavailable("the index of the bundles has been closed")
        if self._file is None:
            return self._in_memory()
        held: Held | None = getattr(self._mine, "held", None)
        if held is not None and held.process == os.getpid():
            if held.is_still_of(self._file):
                return held
            self._mine.held = None  # whatever comes of opening another one: this one is never asked again
            held.close()
        patience = self._patience.seconds
        self._mine.held = held = self._kept(Held(*opened(self._file, patience), patience))
        return held

    def give_up(self, held: Held, is_damaged: bool) -> None:
        """Never use this one again; and nobody its file, where that is damaged."""
        with self._lock:
            if held is self._shared:
                self._shared = self._kept(Held(in_memory(), None))
        self._mine.held = None
        held.close()
        if is_damaged and self._file is not None and held.file is not None:
            throw_away(self._file, held.file, self._patience.seconds)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            everyone = [held for held in self._all if held.process == os.getpid()]
        for held in everyone:
            held.close()

    def _in_memory(self) -> Held:
        assert self._shared is not None  # noqa: S101 - made at the beginning
        return self._shared

    def _kept(self, held: Held) -> Held:
        with self._lock:
            self._all.add(held)
        return held
