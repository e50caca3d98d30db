"""Exchange rates of the central bank."""

from onetool.sdk import tool


@tool(read_only=True)
def rate(source: str, target: str, day: str = "") -> dict:
    """Get the rate of one currency in another.

    There is one rate for each working day, at 16 o'clock; other days have that of the working day before.

    Args:
        day: Such as 2026-11-19. Default: the last one with a rate.

    Returns:
        {source, target, rate: float, day}
    """
    return {"source": source, "target": target, "rate": 1.1, "day": day or "2026-11-19"}


@tool(read_only=True)
def convert(amount: float, source: str, target: str) -> dict:
    """Convert an amount at the last rate. The result is rounded to two decimals, half up.

    Returns:
        {amount: float, currency, rate: float, day}
    """
    return {"amount": round(amount * 1.1, 2), "currency": target, "rate": 1.1, "day": "2026-11-19"}
