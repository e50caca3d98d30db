"""Only plain data crosses the boundary of the sandbox: JSON types, whatever the code made.

Values are counted while they are walked: forty times `x = [x, x]` is small in the sandbox and has 2^40 leaves here.
"""

import base64
import datetime
import re
from decimal import Decimal
from typing import Any
from uuid import UUID

DEEPEST = 60  # levels; what reads the value at the other end stops there, too
LONGEST_NUMBER = 14_000  # bits: about the 4,300 digits that Python itself is willing to print
FUTURE = re.compile(r"<coroutine [^<>]+>|<gather\(\d+\)>")  # how the sandbox describes what was not awaited
PER_PART = 2  # bytes that every part costs at least: a digit and a comma
MOST_PARTS = 1_000_000  # whatever the budget: a list of nothing takes memory and time, too


class OverBudget(ValueError):  # noqa: N818 - it says what it is
    """More than the budget allows, or nested deeper than any reader would follow."""


class TooManyDigits(ValueError):  # noqa: N818 - it says what it is
    def __init__(self) -> None:
        super().__init__("a whole number of more than 4300 digits")


class NeverAwaited(ValueError):  # noqa: N818 - it says what it is
    """Something that was begun and left alone: what crosses would be a description of it."""


class Crossing:
    """One value on its way out, and the bytes that are left for it."""

    __slots__ = ("_left", "_part")

    def __init__(self, budget: int) -> None:
        self._left = budget
        self._part = max(PER_PART, budget // MOST_PARTS)

    def plain(self, value: Any, depth: int = 0) -> Any:
        """The value as JSON types. OverBudget when it is too large."""
        self._left -= self._part
        kind = type(value)
        if kind is str:
            if value.startswith(("<coroutine ", "<gather(")) and FUTURE.fullmatch(value):
                raise NeverAwaited("something that was never awaited: put await before it")
            self._left -= len(value) if value.isascii() else len(value.encode(errors="replace"))
        elif kind is dict:
            self._go_down(depth)
            return {self._key(key, depth): self.plain(part, depth + 1) for key, part in value.items()}
        elif kind in _LISTS:
            self._go_down(depth)
            return [self.plain(part, depth + 1) for part in value]
        elif kind is int:
            self._left -= value.bit_length() // 3
            if value.bit_length() > LONGEST_NUMBER:
                raise TooManyDigits
        elif kind not in _SCALARS:
            return self.plain(_form(value), depth + 1)
        if self._left < 0:
            raise OverBudget
        return value

    def _go_down(self, depth: int) -> None:
        if depth > DEEPEST or self._left < 0:
            raise OverBudget

    def _key(self, key: Any, depth: int) -> str:
        """A key, as JSON would have it. One that is a tuple or an object has parts, which count like all others."""
        text = key if type(key) is str else _as_key(self.plain(key, depth + 1))
        self._left -= len(text)
        if self._left < 0:
            raise OverBudget
        return text


_LISTS = frozenset({list, tuple, set, frozenset})
_SCALARS = frozenset({int, float, bool, type(None)})


def sayable(value: Any) -> Any:
    """The same data with every text in Unicode: halves of surrogate pairs become question marks."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {sayable(key): sayable(part) for key, part in value.items()}
    return [sayable(part) for part in value] if isinstance(value, list) else value


def _as_key(key: Any) -> str:
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    return str(key)


def _form(value: Any) -> Any:
    """What code may hand out beside JSON types: dates, bytes, its own objects, exceptions."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, tuple):  # a named one
        return dict(zip(fields, value, strict=False)) if (fields := getattr(value, "_fields", None)) else list(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(attributes := getattr(value, "attributes", None), dict):  # an object of a class that the code made
        return attributes if getattr(value, "name", "") != "UUID" else str(UUID(hex=attributes.get("hex")))
    return str(value)
