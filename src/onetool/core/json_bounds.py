"""What JSON from outside may cost: its parts and the digits of its numbers, counted in its bytes before they are read.

Few bytes can be much work: 4 MiB are 1.4 million empty lists, or a thousand numbers that take a second to be read and
written. Readers of JSON do that in one step, in which nothing else of the process runs; so does whoever walks through
the data later. Every door that reads somebody else's JSON calls `check_json` first.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

MOST_PARTS = 500_000  # of one text: items of lists, and members of objects
MOST_DIGITS = 1_000  # of one number
CHUNK = 64 * 1024  # bytes that are looked at in one go: others have their turn in between

_SIGNS = (b",", b"[", b"{")  # one of them stands before each part
_STRIDE = MOST_DIGITS // 2
_DIGITS_IN_A_ROW = re.compile(rb"[0-9]{2}")
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_TOO_LONG = b"0" * (MOST_DIGITS + 1)
_ESCAPED = re.compile(rb"\\*+.?", re.DOTALL)


class TooMuch(ValueError):  # noqa: N818 - not wrong in itself
    """JSON that would take too long to read, or to walk through: what is wrong, as the rest of a sentence about it."""


def check_json(data: bytes) -> None:
    """TooMuch says what a text has too much of. Whether it is JSON at all is for its reader to find out."""
    if len(data) <= MOST_DIGITS:
        return
    many = len(data) > MOST_PARTS and _parts(data) > MOST_PARTS
    if not many and not _long_number(data):
        return
    bare = b"".join(_without_texts(data))
    if _parts(bare) - bare.count(b"[]") - bare.count(b"{}") > MOST_PARTS:  # in those stands nothing
        raise TooMuch(f"has more than {MOST_PARTS:,} parts")
    if _long_number(bare):
        raise TooMuch(f"has a number of more than {MOST_DIGITS:,} digits")


def data_in(text: str) -> Any:
    """What a text says in JSON, if it is an object or a list. A number stays text: it may as well be a zip code."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        check_json(data := text.encode())
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, TooMuch, RecursionError, UnicodeError):
        return text


def _parts(data: bytes) -> int:
    return sum(map(data.count, _SIGNS))


def _long_number(data: bytes) -> bool:
    """Whether more digits follow each other: then two neighbours among every so many bytes are digits, too."""
    if _DIGITS_IN_A_ROW.search(data[::_STRIDE]) is None:
        return False
    return _TOO_LONG in data.translate(_ZEROS)


def _without_texts(data: bytes) -> Iterator[bytes]:
    """What stands outside of texts, piece by piece."""
    start, in_text = 0, False
    while start < len(data):
        end = start + CHUNK
        if data[end - 1 : end] == b"\\" and (rest := _ESCAPED.match(data, end)):
            end = rest.end()  # what is escaped stays with its backslash
        pieces = data[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b" ".join(pieces[in_text::2])
        in_text ^= len(pieces) % 2 == 0
        start = end
