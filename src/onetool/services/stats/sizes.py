"""How large a value is, on its way to whoever reads it: the bytes of its JSON, or of a text. Never raises.

Measured where the call ends, and not later by somebody else: the encoder keeps the interpreter for itself while it
writes, in whichever thread; and who keeps a value to measure it later keeps its memory, and may find it changed.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

_NO_DATA = 4  # bytes of `null`: for what has no form in JSON
_DIGITS_PER_BIT = 0.30103


def size_of(value: Any) -> int:
    """Bytes of a text in UTF-8, or of the JSON of anything else."""
    if type(value) is str:
        return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
    try:
        return len(_encode(value))
    except Exception:  # noqa: BLE001 - half surrogates, numbers of any length, objects of any kind
        return _sum_of_parts(value)


def _form(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise TypeError


_encode = msgspec.json.Encoder(enc_hook=_form).encode


def _sum_of_parts(value: Any) -> int:
    """The same for what the encoder refuses: each part of it on its own. What contains itself ends."""
    try:
        total, met, left = 0, dict[int, Any](), [_bare(value)]
        while left:
            one = left.pop()
            parts = _parts(one)
            if parts is None or id(one) in met:
                total += _leaf(one)
                continue
            met[id(one)] = one  # held, so that nothing else gets its id
            total += 2 + max(0, len(one) - 1) + (len(one) if isinstance(one, Mapping) else 0)  # brackets and commas
            left.extend(parts)
    except Exception:  # noqa: BLE001 - it may even change while it is looked at
        return _NO_DATA
    return total


def _bare(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)  # an error of ours is a struct
    except Exception:  # noqa: BLE001 - then as it is
        return value


def _parts(value: Any) -> Iterable[Any] | None:
    if isinstance(value, Mapping):
        return [part for pair in value.items() for part in pair]  # pyright: ignore[reportUnknownVariableType]
    return value if isinstance(value, list | tuple | set | frozenset) else None  # pyright: ignore[reportUnknownVariableType]


def _leaf(value: Any) -> int:
    if isinstance(value, str):
        return len(_encode(value.encode("utf-8", "replace").decode()))
    try:
        return len(_encode(value))
    except Exception:  # noqa: BLE001 - no data, or a number that Python does not write out
        if isinstance(value, int):
            return int(value.bit_length() * _DIGITS_PER_BIT) + 1 + (value < 0)
        return _NO_DATA
