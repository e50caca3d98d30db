"""Marks around a text that the text itself can't end: as many ticks as it nowhere has in a row, and three at least."""

import re

_TICKS = re.compile(r"`+")


def ticks(text: str, least: int = 1) -> str:
    """More than stand in a row anywhere in the text."""
    return "`" * max(least, 1 + max(map(len, _TICKS.findall(text)), default=0))


def fenced(text: str, language: str = "") -> str:
    fence = ticks(text, 3)
    return f"{fence}{language}\n{text}\n{fence}"
