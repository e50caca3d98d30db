"""The pack `time`: the current time."""

import time
from typing import TypedDict

from onetool.sdk import tool

pack = "time"


class Moment(TypedDict):
    """An instant as milliseconds and as ISO 8601 text."""

    timestamp: int
    iso: str


@tool(read_only=True)
def now() -> Moment:
    """Return the current date and time in UTC.

    Returns:
        `timestamp` in milliseconds since 1970-01-01T00:00:00Z, and `iso`, the same instant as ISO 8601 text in UTC, for
        example "2025-01-31T08:15:30.125Z".
    """
    timestamp = time.time_ns() // 1_000_000
    seconds, milliseconds = divmod(timestamp, 1000)
    date_and_time = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return {"timestamp": timestamp, "iso": f"{date_and_time}.{milliseconds:03d}Z"}
