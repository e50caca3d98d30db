"""`uniqueItems` in linear time. The validator's own compares each item with each other: minutes, for a few thousand
numbers that somebody chose, in which nothing else of the process runs.

Two items are the same where their canonical texts are. Texts and not values: hashes of numbers are no secret, and a
set of numbers that were made to collide is as slow as comparing them all.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

EXACT = 2**53  # from here on a float may stand for several integers
MOST_PARTS = 50_000  # of items that are compared by texts which have to be made first: a tenth of a second


class UniqueItems:
    """The keyword, as the validator takes one."""

    def __init__(self, parent: Any, value: Any, path: Any) -> None:
        self._is_on = value is True

    def validate(self, instance: Any) -> None:
        if not self._is_on or not isinstance(instance, list | tuple):
            return
        items = cast(Sequence[Any], instance)
        if _form(items) is _text and _has_more_parts(items):
            raise ValueError(f"it has more than {MOST_PARTS:,} parts to compare")
        if not are_unique(items):
            raise ValueError("it has equal items")


def are_unique(items: Sequence[Any]) -> bool:
    if len(items) < 2:
        return True
    return len(set(map(_form(items), items))) == len(items)


def _form(items: Sequence[Any]) -> Callable[[Any], str]:
    """How the text of an item is made. Texts alone, and whole numbers alone, are quick."""
    kinds = set(map(type, items))
    return str if kinds == {str} else hex if kinds == {int} else _text


def _has_more_parts(items: Sequence[Any]) -> bool:
    left = MOST_PARTS
    waiting: list[Any] = [items]
    while waiting and left >= 0:
        one: Any = waiting.pop()
        left -= len(one)
        inside: Any = one.values() if isinstance(one, Mapping) else one  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        waiting += [part for part in inside if isinstance(part, list | tuple | dict)]
    return left < 0


def _text(value: Any) -> str:
    """The same for what JSON Schema calls equal: 1 and 1.0, and objects in whatever order; not for true and 1."""
    if isinstance(value, str):
        return f'"{len(value)}:{value}'
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return hex(value)  # not decimal, which takes quadratic time
    if isinstance(value, float):
        return hex(_whole(value)) if value.is_integer() else repr(value)
    if isinstance(value, Mapping):
        members = sorted(cast(Mapping[str, Any], value).items(), key=lambda member: member[0])
        return "{" + ",".join(f"{_text(name)}:{_text(part)}" for name, part in members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, cast(Sequence[Any], value))) + "]"
    return f"{type(value).__name__} {value}"


def _whole(value: float) -> int:
    """The integer that it is when written down: 1e30 is 10**30 in JSON, and something near that in Python."""
    if abs(value) < EXACT:
        return int(value)
    digits, _, exponent = repr(value).partition("e")
    whole, _, rest = digits.partition(".")
    return int(whole + rest) * 10 ** (int(exponent or 0) - len(rest)) if exponent else int(whole)
