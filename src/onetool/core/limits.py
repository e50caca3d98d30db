"""Rate limits: `RateWindow` counts in a sliding window of time.

The window is divided into parts, so that memory use does not depend on the rate. A part counts until it has left the
window completely: the effective rate may be up to a sixtieth lower than the limit, and is never higher.
"""

from collections import deque
from collections.abc import Iterable

MIB = 1024**2  # bytes
DAY = 86_400  # seconds
PARTS = 60  # of a window


class RateWindow:
    """A sliding window: the numbers and counts of its parts, oldest first."""

    __slots__ = ("_part_s", "_parts", "count")

    def __init__(self, seconds: float, parts: Iterable[tuple[int, int]] = ()) -> None:
        self._part_s = seconds / PARTS
        self._parts = deque(parts)
        self.count = sum(count for _, count in self._parts)

    @property
    def parts(self) -> list[tuple[int, int]]:
        """The parts, from which an equal window can be created."""
        return list(self._parts)

    def take(self, now: float, most: float) -> float | None:
        """Count one event and return None. Over the limit, return the seconds to wait instead, and count nothing."""
        if (wait := self.wait_for(now, most)) is not None:
            return wait
        part, parts = int(now / self._part_s), self._parts
        last = parts.pop()[1] if parts and parts[-1][0] >= part else 0
        parts.append((part, last + 1))
        self.count += 1
        return None

    def wait_for(self, now: float, most: float) -> float | None:
        """Return the seconds until an event is allowed; None if one is allowed now. Nothing is counted."""
        part, parts = int(now / self._part_s), self._parts
        while parts and parts[0][0] < part - PARTS:  # has left completely
            self.count -= parts.popleft()[1]
        return max(self.next_free(now), self._part_s / PARTS) if self.count >= most else None

    def next_free(self, now: float) -> float:
        """Return the seconds until the oldest part leaves the window; 0 if the window is empty."""
        return (self._parts[0][0] + PARTS + 1) * self._part_s - now if self._parts else 0.0
