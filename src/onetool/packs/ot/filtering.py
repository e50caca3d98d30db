"""What a pattern lets through: names, and sometimes other texts, that contain it in any case."""

from typing import Literal

Info = Literal["list", "min", "full"]


def wanted(pattern: str) -> str:
    """As it is compared."""
    return pattern.strip().casefold()


def has(pattern: str, *texts: str) -> bool:
    return not pattern or any(pattern in text.casefold() for text in texts)
