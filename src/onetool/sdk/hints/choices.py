"""Literal and Enum: one of a few values, in the author's order."""

from collections.abc import Iterable
from enum import Enum, Flag
from types import NoneType
from typing import Any, get_args

import msgspec

from onetool.sdk.hints.form import Form, Hints, NoForm, Wrong, made
from onetool.sdk.hints.scalars import INTEGER

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
_LISTED = 12  # members that a message names


def literal(hints: Hints, hint: Any) -> Form:
    return _choice(hint, [(_value(one), one) for one in get_args(hint)])


def enum(cls: type[Enum]) -> Form:
    """By value, as members look when they leave a tool."""
    if issubclass(cls, Flag):
        build = made(cls, "a sum of its flags")
        return Form(INTEGER.schema, lambda value: build(INTEGER.convert(value)))
    return _choice(cls, [(member.value, member) for member in cls])


def _value(member: Any) -> Any:
    return member.value if isinstance(member, Enum) else member


def _choice(hint: Any, pairs: Iterable[tuple[Any, Any]]) -> Form:
    members = {_key(value): member for value, member in pairs}
    values = [value for _, value in members]
    types = {type(value): _TYPES.get(type(value)) for value in values}
    if not values or None in types.values():
        raise NoForm(hint, "its values must be text, numbers, true, false or null")
    schema: dict[str, Any] = {"enum": values}
    if len(types) == 1:
        schema = {"type": next(iter(types.values())), **schema}

    def convert(value: Any) -> Any:
        try:
            return members[_key(value)]
        except (KeyError, TypeError):
            raise Wrong(_one_of(values), value) from None

    # 1.0 passes for 1, so that numbers are looked up; other values are themselves.
    as_is = types.keys() <= {str, bool, NoneType} and all(_value(member) is member for member in members.values())
    return Form(schema, convert, as_is=as_is)


def _key(value: Any) -> tuple[bool, Any]:
    """True and 1 are equal in Python, and two values in JSON."""
    return type(value) is bool, value


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _one_of(values: list[Any]) -> str:
    more = len(values) - _LISTED
    return f"one of {', '.join(map(_json, values[:_LISTED]))}" + (f" and {more} more" if more > 0 else "")
