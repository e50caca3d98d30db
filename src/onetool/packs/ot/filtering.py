"""What a pattern lets through: names, and sometimes other texts, that contain it in any case."""

from typing import Literal

Info = Literal["list", "min", "full"]


LONGEST = 1_000  # characters of a pattern: no name is longer


def wanted(pattern: str) -> str:
    """As it is compared."""
    return pattern.strip()[:LONGEST].casefold()


def has(pattern: str, *texts: str) -> bool:
    return not pattern or any(pattern in text.casefold() for text in texts)
