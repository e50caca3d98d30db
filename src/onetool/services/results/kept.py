"""Which results this process has stored, for their owners alone.

The folder of the store tells no handle, and is not to: whoever can list it could read all results. So only what was
stored since the process began can be listed, and the list is in memory.
"""

from collections import deque
from threading import Lock

import msgspec

MOST_KEPT = 1000  # of one owner
MOST_OWNERS = 1000
LONGEST_HEAD = 200  # characters


class KeptResult(msgspec.Struct, frozen=True, kw_only=True):
    """One stored result. `name` is the tool that it came from, where that is known; `at` is when it was stored."""

    handle: str
    name: str | None
    at: float
    size: int
    lines: int
    head: str


class KeptResults:
    """The newest of each owner. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_owner: dict[str, deque[KeptResult]] = {}

    def add(self, owner: str, result: KeptResult) -> None:
        with self._lock:
            kept = self._by_owner.pop(owner, None)
            if kept is None:
                kept = deque[KeptResult](maxlen=MOST_KEPT)
                if len(self._by_owner) >= MOST_OWNERS:
                    self._by_owner.pop(next(iter(self._by_owner)))  # who has stored nothing for longest
            kept.append(result)
            self._by_owner[owner] = kept

    def of(self, owner: str) -> list[KeptResult]:
        """The newest first."""
        with self._lock:
            return list(reversed(self._by_owner.get(owner, ())))
