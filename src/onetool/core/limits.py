"""What is limited for a server: how many there may be in a time, and which part of a total each of its workers has.

`RateWindow` counts in a sliding window of time: there are never more than so many in any window. A window is counted in
parts. A part counts until all of it has left the window, so that what is remembered does not grow with the rate: a rate
may be a little lower than it says, by a sixtieth, and is never higher.

Most processes are alone, and are the first of one worker. What needs doing once is done by the first.
"""

from collections import deque
from collections.abc import Iterable

import msgspec

MIB = 1024**2  # bytes
DAY = 86_400  # seconds
PARTS = 60  # of a window


class RateWindow:
    """Parts of the window with their numbers, oldest first."""

    __slots__ = ("_part_s", "_parts", "count")

    def __init__(self, seconds: float, parts: Iterable[tuple[int, int]] = ()) -> None:
        self._part_s = seconds / PARTS
        self._parts = deque(parts)
        self.count = sum(count for _, count in self._parts)

    @property
    def parts(self) -> list[tuple[int, int]]:
        """What another window is made of."""
        return list(self._parts)

    def take(self, now: float, most: float) -> float | None:
        """Count one. Returns the seconds to wait if it is one too many, which is then not counted; else None."""
        if (wait := self.wait_for(now, most)) is not None:
            return wait
        part, parts = int(now / self._part_s), self._parts
        last = parts.pop()[1] if parts and parts[-1][0] >= part else 0
        parts.append((part, last + 1))
        self.count += 1
        return None

    def wait_for(self, now: float, most: float) -> float | None:
        """Return the seconds until there is a place; None if there is one. Nothing is counted."""
        part, parts = int(now / self._part_s), self._parts
        while parts and parts[0][0] < part - PARTS:  # all of it has left
            self.count -= parts.popleft()[1]
        return max(self.next_free(now), self._part_s / PARTS) if self.count >= most else None

    def next_free(self, now: float) -> float:
        """Return the seconds until the oldest part has left; 0 if there is none."""
        return (self._parts[0][0] + PARTS + 1) * self._part_s - now if self._parts else 0.0


# A worker's share


class WorkerShare(msgspec.Struct, frozen=True):
    number: int = 1
    workers: int = 1
    run: str = ""  # the same for all workers of one start of the server

    @property
    def is_first(self) -> bool:
        return self.number == 1

    def of(self, total: int) -> int:
        """Return this worker's part of a total, at least 1."""
        return max(1, total // self.workers + (self.number <= total % self.workers))


_own = WorkerShare()


def worker_share() -> WorkerShare:
    return _own


def set_worker_share(share: WorkerShare) -> None:
    """Set the share of this process, once, when it starts."""
    global _own
    _own = share
