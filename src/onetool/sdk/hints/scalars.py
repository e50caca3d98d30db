"""Single values: what JSON has, and what it writes as text."""

from binascii import a2b_base64
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from os import PathLike
from pathlib import Path, PurePath
from types import NoneType
from typing import Any
from uuid import UUID

import msgspec

from onetool.sdk.hints.form import Convert, Form, Wrong, made


def _only(expected: str, *types: type) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, types) and (type(value) is not bool or bool in types):  # True is an int in Python only
            return value
        raise Wrong(expected, value)

    return convert


def _integer(value: Any) -> int:
    """JSON Schema calls 5.0 an integer too, and some callers write it so."""
    if isinstance(value, int) and type(value) is not bool:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise Wrong("integer", value)


def _decimal(value: Any) -> Decimal:
    """From text or a number. 0.1 means the decimal 0.1, not the binary fraction next to it."""
    if type(value) is bool or not isinstance(value, str | int | float):
        raise ValueError
    number = Decimal(str(value))
    if not number.is_finite():
        raise ValueError
    return number


def _bytes(value: str) -> bytes:
    return a2b_base64(value, strict_mode=True)


def _duration(value: str) -> timedelta:
    return msgspec.convert(value, timedelta)


def _text(build: Callable[[str], Any], expected: str, **keywords: str) -> Form:
    convert = made(build, expected)

    def from_text(value: Any) -> Any:
        if isinstance(value, str):
            return convert(value)
        raise Wrong(expected, value)

    return Form({"type": "string", **keywords}, from_text)


ANYTHING = Form({}, lambda value: value, as_is=True)
TEXT = Form({"type": "string"}, _only("string", str), as_is=True)
INTEGER = Form({"type": "integer"}, _integer)
# An int may stand where a float is asked for, in Python's type system as in JSON.
NUMBER = Form({"type": "number"}, _only("number", float, int), as_is=True)
NULL = Form({"type": "null"}, _only("null", NoneType), as_is=True)
_DECIMAL_TEXT = {"type": "string", "format": "decimal"}

SCALARS: dict[Any, Form] = {
    Any: ANYTHING,
    object: ANYTHING,
    str: TEXT,
    int: INTEGER,
    float: NUMBER,
    bool: Form({"type": "boolean"}, _only("boolean", bool), as_is=True),
    None: NULL,
    NoneType: NULL,
    datetime: _text(datetime.fromisoformat, "a date and time like 2026-01-31T12:00:00Z", format="date-time"),
    date: _text(date.fromisoformat, "a date like 2026-01-31", format="date"),
    time: _text(time.fromisoformat, "a time like 12:30:00", format="time"),
    timedelta: _text(_duration, "a duration in days, hours, minutes and seconds like P1DT2H30M", format="duration"),
    UUID: _text(UUID, "a UUID", format="uuid"),
    bytes: _text(_bytes, "bytes in base64", contentEncoding="base64"),
    bytearray: _text(lambda value: bytearray(_bytes(value)), "bytes in base64", contentEncoding="base64"),
    Decimal: Form({"anyOf": [{"type": "number"}, _DECIMAL_TEXT]}, made(_decimal, "a decimal number like 12.50")),
    PathLike: _text(Path, "a path"),
}

# What `core.plain` writes otherwise than a caller may: a decimal always leaves as text, so that no digit is lost.
OUTGOING: dict[Any, Form] = {**SCALARS, Decimal: Form(_DECIMAL_TEXT, SCALARS[Decimal].convert)}


def scalar_class(cls: type) -> Form | None:
    """A class of the author's that is a path, text or number: made of one."""
    if issubclass(cls, PurePath):
        return _text(cls, "a path")
    base = next((base for base in (str, int, float) if issubclass(cls, base)), None)
    if base is None:
        return None
    inner = SCALARS[base]

    def convert(value: Any) -> Any:
        value = inner.convert(value)
        try:
            return cls(value)
        except (TypeError, ValueError) as error:
            raise Wrong(cls.__name__, value, said=str(error)) from None

    return Form(inner.schema, convert)
