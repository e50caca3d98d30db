"""Texts as words: without case, accents and punctuation. What is kept and what is asked for go through the same here.

A word is a run of letters and digits, or one symbol such as an emoji.
"""

import re
from unicodedata import category, combining, normalize

LONGEST = 100  # characters of a word
_ASCII = re.compile("[a-z0-9]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")  # get|Weather, HTTP|Server
_SELECTORS = range(0xFE00, 0xFE10)  # say how the sign before them is to be drawn


class _Signs(dict[int, str | None]):
    """Of every sign what becomes of it; learnt as they come."""

    def __missing__(self, code: int) -> str | None:
        self[code] = found = _sign(chr(code))
        return found


def _sign(sign: str) -> str | None:
    kind = category(sign)
    if kind == "Cf" or combining(sign) or ord(sign) in _SELECTORS:  # accents, soft hyphens, joiners
        return None
    if kind[0] in "LNM":
        return sign
    return f" {sign} " if kind == "So" else " "


_SIGNS = _Signs()


def words(text: str) -> list[str]:
    """All of them, in their order."""
    if text.isascii():
        found = _ASCII.findall(text.lower())
    else:
        plain = normalize("NFKD", normalize("NFKD", text).casefold()).translate(_SIGNS)
        found = normalize("NFC", plain).split()
    return [word[:LONGEST] for word in found] if len(text) > LONGEST else found


class Name:
    """A name as it is compared, `Get-Weather` as `get weather`, and the words that it is found by."""

    def __init__(self, text: str) -> None:
        found = words(text)
        self.key = " ".join(found)
        self.squeezed = "".join(found)[:LONGEST]  # `read-file` as some would write it
        humps = words(_HUMP.sub(" ", text))
        if humps != found:  # getWeather is found by its parts, too
            found = found + humps
        self.words = [*found, self.squeezed] if len(found) > 1 else found
