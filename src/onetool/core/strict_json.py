"""Strict JSON: a decoder that refuses what Python's takes and other programs refuse, or read in another way."""

import json
from collections.abc import Callable
from math import isfinite
from typing import Any, Literal, NoReturn

_WORDS = {
    "duplicate": "has {!r} twice; only one of them could be meant",
    "constant": "has {}, which is not in JSON",
    "range": "has {}, which is too large for a number",
}


class StrictJsonError(ValueError):
    """Why it is refused, and the key or number. The message continues a sentence about the JSON."""

    def __init__(self, kind: Literal["duplicate", "constant", "range"], text: str) -> None:
        super().__init__(_WORDS[kind].format(text))
        self.kind = kind
        self.text = text


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook`: each key stands once in an object."""
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        raise StrictJsonError("duplicate", next(key for key, _ in pairs if key in seen or seen.add(key)))
    return found


def finite(text: str) -> float:
    """A `parse_float`: 1e999 would become infinity, which JSON does not have."""
    if not isfinite(value := float(text)):
        raise StrictJsonError("range", text)
    return value


def no_constant(text: str) -> NoReturn:
    """A `parse_constant`: NaN, Infinity and -Infinity."""
    raise StrictJsonError("constant", text)


def strict_decoder(parse_float: Callable[[str], float] = finite) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=unique, parse_float=parse_float, parse_constant=no_constant)
