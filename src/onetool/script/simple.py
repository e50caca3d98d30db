"""Any value as one of the few types that YAML can write."""

from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType
from typing import Any

import msgspec

from onetool.core.errors import ToolFailure
from onetool.core.plain import plain

# What these types have of their own: a subclass could say anything.
_BASES = {str: str.__str__, int: int.__int__, float: float.__float__, bytes: bytes.__bytes__, list: list, tuple: list}
_AS_THEY_ARE = frozenset((str, int, float, bool, bytes, list, dict, NoneType))


def simple(value: Any) -> Any:
    """The value as a plain type of YAML. One level of it: its parts come when it is their turn."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if isinstance(value, Enum):
        return simple(value.value)
    for base, plainly in _BASES.items():
        if isinstance(value, base):
            return plainly(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return _ordered(value)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    try:
        return plain(value)
    except ToolFailure:
        return f"<{kind.__name__}>"


def _ordered(values: Set[Any]) -> list[Any]:
    """The same every time, where its members can be compared."""
    try:
        return sorted(values)
    except TypeError:
        return list(values)
