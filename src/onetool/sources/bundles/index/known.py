"""The words that somebody may mistype, kept in memory: their table only grows, so that only new ones are read."""

from collections.abc import Sequence
from threading import Lock

from onetool.sources.bundles.index.connections import Held
from onetool.sources.bundles.index.opening import Identity

_NEW = "SELECT no, word FROM letters WHERE no > ? ORDER BY no"


class Known:
    def __init__(self) -> None:
        self._lock = Lock()
        self._file: Identity | None = None
        self._last = 0
        self._words: list[str] = []

    def words(self, held: Held) -> Sequence[str]:
        """All that this moment has, and maybe later ones, of which nothing is found."""
        with self._lock:
            if held.file != self._file:
                self._file, self._last, self._words = held.file, 0, []
            if found := held.database.execute(_NEW, (self._last,)).fetchall():
                self._last = found[-1][0]
                self._words = [*self._words, *(word for _, word in found)]  # others may be going through the old one
            return self._words
