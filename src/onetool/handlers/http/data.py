"""Data as it comes from outside: JSON that everybody after us can walk through."""

from collections.abc import Iterator
from typing import Any

import msgspec

from onetool.core.json_bounds import TooMuch, check_json

DEEPEST = 200  # levels: whoever walks through data takes some of Python's own for each

_HOLDERS = frozenset((list, dict))


class TooDeep(TooMuch):
    def __init__(self) -> None:
        super().__init__(f"is nested too deep: more than {DEEPEST} levels")


def json_of(text: bytes) -> Any:
    """The data that a text is; TooMuch where it would cost too much, or what msgspec raises."""
    check_json(text)
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise TooDeep from None
    if text.count(b"[") + text.count(b"{") > DEEPEST:  # else it can't be
        for number, _ in enumerate(levels(value)):
            if number >= DEEPEST:
                raise TooDeep
    return value


def levels(value: Any) -> Iterator[list[Any]]:
    """The lists and objects of data, level by level: the outermost, those in it, those in these …"""
    level = [value] if type(value) in _HOLDERS else []
    while level:
        yield level
        level = [
            inner
            for one in level
            for inner in (one.values() if type(one) is dict else one)
            if type(inner) in _HOLDERS  # which takes half the time of isinstance
        ]
