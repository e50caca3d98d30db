"""Times as texts, in UTC with milliseconds: 2026-11-15T16:00:00.000Z. Texts of this form sort as their times do."""

from datetime import UTC, datetime

LATEST = 253_402_300_799.0  # the end of the year 9999


def as_text(seconds: float) -> str:
    at = datetime.fromtimestamp(min(max(seconds, 0.0), LATEST), UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def as_seconds(text: str) -> float:
    """ValueError for what is no time. People may write it shorter, or in a zone of their own; without one it is UTC."""
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
