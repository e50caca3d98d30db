"""Counts the requests of each principal, to enforce its rate.

RequestRates        counts in the memory of this process
SharedRates         counts in a database, for all replicas or all workers of a machine
"""

import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from onetool.core.limits import PARTS as PARTS
from onetool.core.limits import RateWindow
from onetool.core.principal import Principal

if TYPE_CHECKING:
    from onetool.database.shared_rates import SharedWindows

MAX_PRINCIPALS = 10_000  # remembered at once; the least recent callers are forgotten first


class PrincipalRates(ABC):
    """A rate limiter that allows at most `rate.count` requests of a principal in any `rate.seconds`."""

    @abstractmethod
    def check(self, principal: Principal) -> float | None:
        """Count a request, and return None. If it exceeds the rate, return the seconds to wait, without counting it."""

    async def check_async(self, principal: Principal) -> float | None:
        """Check a request on an event loop. A principal without a rate needs no check."""
        return self.check(principal)


class RequestRates(PrincipalRates):
    """A rate limiter in memory."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._windows: OrderedDict[tuple[str, float], RateWindow] = OrderedDict()

    def check(self, principal: Principal) -> float | None:
        rate = principal.rate
        if rate is None:
            return None
        # Credentials of one owner share a window, unless their `rate.seconds` differ.
        key = principal.caller, rate.seconds
        with self._lock:
            window = self._windows.get(key)
            if window is None:
                window = self._windows[key] = RateWindow(rate.seconds)
                if len(self._windows) > MAX_PRINCIPALS:
                    self._windows.popitem(last=False)
            self._windows.move_to_end(key)
            return window.take(self._clock(), rate.count)


class SharedRates(PrincipalRates):
    """A rate limiter in a database. `what` separates different counts of the same principals."""

    def __init__(self, windows: "SharedWindows", what: str = "requests") -> None:
        self._windows = windows
        self._what = what

    def check(self, principal: Principal) -> float | None:
        rate = principal.rate
        return None if rate is None else self._windows.take(self._name(principal), rate.count, rate.seconds).wait

    async def check_async(self, principal: Principal) -> float | None:
        rate = principal.rate
        if rate is None:
            return None
        return (await self._windows.take_async(self._name(principal), rate.count, rate.seconds)).wait

    def _name(self, principal: Principal) -> str:
        return f"{self._what} of {principal.caller}"
