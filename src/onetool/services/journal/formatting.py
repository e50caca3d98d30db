"""Formats numbers, durations and times of the stats for display."""

from datetime import UTC, datetime

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
PERIOD_TITLES = {
    "day": "The last 24 hours",
    "week": "The last 7 days",
    "month": "The last 30 days",
    "all": "All recorded calls",
}


def whole(number: float) -> str:
    """Return a whole number such as 1,234,567, with a typographic minus sign."""
    return f"{number:,.0f}".replace("-", "\N{MINUS SIGN}")


def short(number: float) -> str:
    """Return a short number: 950, 1.2k, 35k, 1.2M."""
    for size, unit in _UNITS:
        if round(abs(number)) >= size:
            share = number / size
            text = f"{share:.1f}" if abs(share) < 9.95 else f"{share:.0f}"
            return f"{text.removesuffix('.0')}{unit}".replace("-", "\N{MINUS SIGN}")
    return whole(number)


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1f}%".replace(".0%", "%")


def duration(ms: float | None) -> str:
    """Return a duration such as 0.21 ms, 340 ms, 1.2 s, 4 min 10 s, 3 h 20 min or 2 d 4 h."""
    if ms is None:
        return "–"
    if ms < 0:
        return f"\N{MINUS SIGN}{duration(-ms)}"
    if ms < 999.5:
        return f"{_three_digits(ms)} ms"
    if ms < 59_950:
        return f"{_three_digits(ms / 1000)} s"
    seconds = round(ms / 1000)
    for size, unit, part, smaller in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            rest = seconds % size // part
            return f"{seconds // size:,} {unit}{f' {rest} {smaller}' if rest else ''}"
    return f"{seconds} s"


def saved(amount: float, text: str) -> str:
    """Return the text for an amount saved: "none yet" if it is negative, although the data have the amount."""
    return text if amount >= 0 else "none yet"


def _three_digits(number: float) -> str:
    text = f"{number:.2f}" if number < 1 else f"{number:.1f}" if number < 99.95 else f"{number:.0f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def moment(iso: str | None) -> str:
    """Return a time as `15 Nov 2026, 10:02`."""
    return f"{_utc(iso).day} {_utc(iso):%b %Y, %H:%M}" if iso else "–"


def tick(iso: str, period: str) -> str:
    """Return an axis label: the hour for a day, else the date."""
    at = _utc(iso)
    return f"{at:%H:%M}" if period == "day" else f"{at.day} {at:%b}"


def span(iso: str, period: str) -> str:
    """Return the name of a bucket: `Sun 15 Nov, 06:00`, or only the date if a bucket is a day."""
    at = _utc(iso)
    return f"{at:%a} {at.day} {at:%b}" + (f", {at:%H:%M}" if period in ("day", "week") else "")


def _utc(iso: str) -> datetime:
    return datetime.fromisoformat(iso).astimezone(UTC)
