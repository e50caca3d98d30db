"""How often a tool may be called: so many times in any 60 seconds, counted for each tool by its id."""

import math
import time
from collections import deque
from collections.abc import Callable
from threading import Lock

from onetool.core.errors import ToolFailure

WINDOW = 60.0  # seconds
# Calls a minute up to which each of them is remembered; above that they are counted in slices of the window.
EXACT = 1_000
MANY = 1_000  # tools, after which those that nobody calls are looked for


class _Log:
    """The calls of one tool: slices with a time and a number, the oldest first."""

    __slots__ = ("slices", "total")

    def __init__(self) -> None:
        self.slices: deque[list[float]] = deque()
        self.total = 0

    def forget(self, before: float) -> None:
        while self.slices and self.slices[0][0] <= before:
            self.total -= int(self.slices.popleft()[1])

    def add(self, now: float, width: float) -> None:
        """A slice is as young as its last call: no more than allowed ever happens, at most a little less."""
        if self.slices and now - self.slices[-1][2] < width:
            self.slices[-1][0] = now
            self.slices[-1][1] += 1
        else:
            self.slices.append([now, 1, now])
        self.total += 1


class Rates:
    """Of all tools, in one process. `take` counts a call, or refuses it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._logs: dict[str, _Log] = {}
        self._look_at = MANY

    def take(self, tool_id: str, per_minute: int) -> None:
        """ToolFailure, with reason rate_limited, where it has been called that often in the last minute."""
        with self._lock:
            now = self._clock()
            seconds = self._wait(tool_id, per_minute, now)
            if seconds <= 0:
                log = self._logs.get(tool_id) or self._new(tool_id, now)
                log.add(now, WINDOW / EXACT if per_minute > EXACT else 0.0)
                return
        times = "once" if per_minute == 1 else f"{per_minute:,} times"
        raise ToolFailure(
            f"it may be called {times} a minute (limits.maxCallsPerMinute), and has been",
            reason="rate_limited",
            hints=(f"try again in {math.ceil(seconds)} s",),
        )

    def wait(self, tool_id: str, per_minute: int) -> float:
        """Seconds until it can be called; 0 when it can be now."""
        with self._lock:
            return self._wait(tool_id, per_minute, self._clock())

    def _wait(self, tool_id: str, per_minute: int, now: float) -> float:
        log = self._logs.get(tool_id)
        if log is None:
            return 0.0
        log.forget(now - WINDOW)
        over = log.total - per_minute
        if over < 0:
            return 0.0
        for at, number, _ in log.slices:  # the limit may have been lowered: then more than one slice has to go
            over -= number
            if over < 0:
                return at + WINDOW - now
        return WINDOW

    def _new(self, tool_id: str, now: float) -> _Log:
        if len(self._logs) >= self._look_at:
            for log in self._logs.values():
                log.forget(now - WINDOW)
            self._logs = {known: log for known, log in self._logs.items() if log.total}
            self._look_at = max(MANY, 2 * len(self._logs))
        log = self._logs[tool_id] = _Log()
        return log
