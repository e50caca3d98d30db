"""Periods that can be summed up, and the buckets that each is shown in. All times are UTC."""

from collections.abc import Mapping
from datetime import UTC, datetime
from math import floor

import msgspec

HOUR = 3600
DAY = 24 * HOUR
MOST_BUCKETS = 90  # of all that there is, the latest


class Period(msgspec.Struct, frozen=True):
    """`seconds` until now, None for all; `bucket`: seconds of one bucket. Buckets begin at whole hours and days."""

    name: str
    seconds: int | None
    bucket: int

    def since(self, now: float) -> float | None:
        return None if self.seconds is None else now - self.seconds

    def buckets(self, first: float, now: float) -> range:
        """The starts of all buckets, for calls of which the first was then."""
        earliest = max(first, now - (MOST_BUCKETS - 1) * self.bucket) if self.seconds is None else now - self.seconds
        return range(floor(earliest / self.bucket) * self.bucket, floor(now) + 1, self.bucket)


PERIODS: Mapping[str, Period] = {
    "day": Period("day", DAY, HOUR),
    "week": Period("week", 7 * DAY, 6 * HOUR),
    "month": Period("month", 30 * DAY, DAY),
    "all": Period("all", None, DAY),
}


def iso(at: float) -> str:
    """ISO 8601, with seconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
