"""FairShares: limits what callers use at the same time, such as runs, threads or streams of events.

A caller is a `Principal.caller`: each credential, all clients without a credential together, and the local user. A
caller may use all places while no other caller waits. What it holds beyond half of the places doesn't keep others
waiting: for them there are up to half as many places again.
"""

from collections import Counter, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairShares(Generic[T]):
    """The places that callers hold, and what waits for a place. Not thread-safe."""

    def __init__(self, places: int, held: Counter[str] | None = None) -> None:
        self.held: Counter[str] = Counter() if held is None else held  # places by caller
        self.waiting: dict[str, deque[T]] = {}  # by caller; the first one is next
        self._places = places
        self._share = places - places // 2

    def has_room(self, caller: str) -> bool:
        """Return whether there is a place for the caller."""
        others_wait = self.waiting and (len(self.waiting) > 1 or caller not in self.waiting)
        if not others_wait and self.held.total() < self._places:
            return True
        return self.held[caller] < self._share and self._counted() < self._places

    def take(self, caller: str) -> bool:
        """Take a place, if there is one for the caller."""
        has_room = self.has_room(caller)
        if has_room:
            self.held[caller] += 1
        return has_room

    def give_back(self, caller: str) -> None:
        self.held[caller] -= 1
        if not self.held[caller]:
            del self.held[caller]

    def wait(self, caller: str, item: T) -> None:
        self.waiting.setdefault(caller, deque()).append(item)

    def stop_waiting(self, caller: str, item: T) -> bool:
        """Remove what waits. Return False if it doesn't wait."""
        items = self.waiting.get(caller, ())
        if not items or item not in items:
            return False
        items.remove(item)
        if not items:
            del self.waiting[caller]
        return True

    def next(self) -> tuple[str, T] | None:
        """Take a place for what is next: callers take turns. Return it with its caller; None if there is no place."""
        for caller in self.waiting:
            if self.take(caller):
                items = self.waiting.pop(caller)
                item = items.popleft()
                if items:
                    self.waiting[caller] = items
                return caller, item
        return None

    def _counted(self) -> int:
        """Return how many places count for callers that hold less than their share."""
        return sum(min(count, self._share) for count in self.held.values())
