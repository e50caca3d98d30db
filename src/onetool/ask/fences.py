"""Marks around a text that the text itself can't end: as many ticks as it nowhere has in a row, and three at least.

And names that stand in a line, which they can't end either.
"""

import re

from onetool.core.failure import cut
from onetool.core.halves import mended

LONGEST_NAME = 200  # characters

_TICKS = re.compile(r"`+")


def ticks(text: str, least: int = 1) -> str:
    """More than stand in a row anywhere in the text."""
    return "`" * max(least, 1 + max(map(len, _TICKS.findall(text)), default=0))


def fenced(text: str, language: str = "") -> str:
    fence = ticks(text, 3)
    return f"{fence}{language}\n{text}\n{fence}"


def on_a_line(name: str) -> str:
    """A name, of a file say, without line ends and other signs that nobody sees, and not without end."""
    seen = "".join(sign if sign.isprintable() else " " for sign in mended(name[: 8 * LONGEST_NAME]))
    return cut(" ".join(seen.split()), LONGEST_NAME) or "(no name)"
