"""When a request may be sent again, and how long to wait before. Only what does no harm twice is sent twice."""

import random
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from math import isfinite

from onetool.handlers.http.faults import WireFailure
from onetool.handlers.http.impl import Limits, Request
from onetool.handlers.http.timing import longest_pause, tries
from onetool.handlers.http.wire import Answer

TOO_MANY = 429


class Retries:
    """Of one tool. `tries` is how often it is sent at most."""

    def __init__(
        self,
        request: Request,
        limits: Limits,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.tries = tries(request, limits)
        self._now = now
        self._chance = chance

    def pause(self, number: int, outcome: Answer | WireFailure, left: float) -> float | None:
        """Seconds to wait after try `number` (from 1); None when that was the last one, for one reason or another."""
        if number >= self.tries:
            return None
        asked = 0.0
        if isinstance(outcome, WireFailure):
            if not outcome.again:
                return None
        elif outcome.status != TOO_MANY and outcome.status < 500:
            return None
        else:
            asked = retry_after(outcome, self._now()) or 0.0
        pause = max(asked, self._chance() * longest_pause(number))
        return pause if pause < left else None


def retry_after(answer: Answer, now: float) -> float | None:
    """Seconds that a server asks to wait: it says them, or a date."""
    text = answer.headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        seconds = parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return max(0.0, seconds) if isfinite(seconds) else None
