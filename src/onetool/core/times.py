"""Times as texts: points in time as ISO 8601 in UTC, and spans such as 30d."""

import re
from datetime import UTC, datetime
from functools import lru_cache

_SPAN = re.compile(r"([0-9]{1,6})([smhdw])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def read_time(text: str) -> float | None:
    """A date or a time as ISO 8601 has it -> seconds since 1970; without a zone it is UTC. None if it is neither."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def read_span(text: str) -> int | None:
    """`30d` -> seconds; the units are s, m (minutes), h, d and w. None if it is no span."""
    match = _SPAN.fullmatch(text)
    return int(match[1]) * _SECONDS[match[2]] if match else None


def utc_text(seconds: float) -> str:
    """`2027-01-01T12:00:00Z`. What no calendar has becomes the first or the last moment that one has."""
    return f"{_to_the_second(int(seconds // 1))}Z"


def utc_text_ms(seconds: float) -> str:
    """`2027-01-01T12:00:00.123Z`. Such texts are in the order of their times."""
    whole, milliseconds = divmod(int(seconds * 1000), 1000)
    return f"{_to_the_second(whole)}.{milliseconds:03}Z"


@lru_cache(64)
def _to_the_second(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "9999-12-31T23:59:59" if seconds > 0 else "0001-01-01T00:00:00"
