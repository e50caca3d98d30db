"""`RequestRates`: how many requests each principal has made, so that none makes more than its rate allows."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from threading import Lock

from onetool.core.principal import Principal, Rate

PARTS = 60  # of a window
MOST_PRINCIPALS = 10_000  # that are remembered; beyond that, those that called longest ago are forgotten


class RequestRates:
    """Counts requests in this process. There are never more than `rate.count` in any `rate.seconds`.

    A window is counted in parts. A part counts until all of it has left the window, so that what a principal costs in
    memory does not grow with its rate.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._windows: OrderedDict[tuple[str, float], _Window] = OrderedDict()

    def check(self, principal: Principal) -> float | None:
        """Count a request. Returns the seconds to wait if it is one too many, which is then not counted; else None."""
        rate = principal.rate
        if rate is None:
            return None
        # Credentials of one caller with different counts share what it has used; another time is another window.
        key = principal.owner or principal.name, rate.seconds
        with self._lock:
            window = self._windows.get(key)
            if window is None:
                window = self._windows[key] = _Window(rate)
                if len(self._windows) > MOST_PRINCIPALS:
                    self._windows.popitem(last=False)
            self._windows.move_to_end(key)
            window.rate = rate
            return window.take(self._clock())


class _Window:
    """The requests of one principal: parts of the window with their numbers, oldest first."""

    __slots__ = ("_count", "_part_s", "_parts", "rate")

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._part_s = rate.seconds / PARTS
        self._parts: deque[tuple[int, int]] = deque()
        self._count = 0

    def take(self, now: float) -> float | None:
        part, parts = int(now / self._part_s), self._parts
        while parts and parts[0][0] < part - PARTS:  # all of it has left
            self._count -= parts.popleft()[1]
        if self._count >= self.rate.count:
            free = (parts[0][0] + PARTS + 1) * self._part_s
            return max(free - now, self._part_s / PARTS)
        last = parts.pop()[1] if parts and parts[-1][0] >= part else 0
        parts.append((part, last + 1))
        self._count += 1
        return None
