"""When something was said: seconds, as they stand in a file, and there may stand anything."""

from datetime import UTC, datetime

LATEST = 253_370_764_800  # the last year that a calendar has begins: in each zone's own time there is such a day


def moment(seconds: float) -> datetime | None:
    """That moment, in UTC; None where it is none."""
    return datetime.fromtimestamp(seconds, UTC) if 0 <= seconds < LATEST else None  # so that NaN is none, too
