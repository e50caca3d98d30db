"""Data as JSON for the wire, whatever is in it."""

import json
from math import isfinite
from typing import Any

import msgspec

MOST_BITS = 14_000  # of a number: Python writes no longer ones in tens

_encoder = msgspec.json.Encoder()


def encode(message: Any) -> bytes:
    try:
        return _encoder.encode(message)
    except (ValueError, OverflowError, RecursionError, TypeError):
        # Half of a surrogate pair, a number of any length, odd keys: rare, and worth the slower way.
        return json.dumps(_with_numbers(message), default=str, skipkeys=True).encode()


def _with_numbers(value: Any) -> Any:
    """The same with nothing where JSON has no number for it, as the encoder does it."""
    if isinstance(value, dict):
        return {key: _with_numbers(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_numbers(one) for one in value]
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return hex(value)
    return None if isinstance(value, float) and not isfinite(value) else value
