"""Forms of single values, enums, unions and containers."""

import collections
from binascii import a2b_base64
from collections import abc
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from os import PathLike
from pathlib import Path, PurePath
from types import NoneType
from typing import Any, get_args, get_origin
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from onetool.core.mismatch import TYPES, either, one_of
from onetool.sdk.hints.form import (
    Convert,
    HintForms,
    HintMismatchError,
    JsonForm,
    Schema,
    UnsupportedHintError,
    constructor_form,
)

BuildContainer = Callable[[Any], Any]

FEW = 1_000  # fewer items are not checked
MAX_ALIKE = 100  # different items with the same hash

ARRAYS: dict[Any, BuildContainer] = {
    list: list,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Collection: list,
    abc.Iterable: list,
    set: set,
    abc.Set: set,
    abc.MutableSet: set,
    frozenset: frozenset,
}
MAPPINGS: dict[Any, BuildContainer] = {
    dict: dict,
    abc.Mapping: dict,
    abc.MutableMapping: dict,
    collections.OrderedDict: collections.OrderedDict,
    collections.defaultdict: lambda items: collections.defaultdict(None, items),
    collections.Counter: collections.Counter,
}


def array_form(hints: HintForms, hint: Any) -> JsonForm:
    """Return the form of an array with items of one type."""
    origin, args = get_origin(hint) or hint, get_args(hint)
    return _array_of(hints.form(args[0] if args else Any), ARRAYS[origin])


def tuple_form(hints: HintForms, hint: Any) -> JsonForm:
    """Return the form of a tuple: `tuple[int, ...]` is an array of one type, `tuple[int, str]` has a fixed length."""
    args = get_args(hint)
    if not args and hint != tuple[()]:
        return _array_of(hints.form(Any), tuple)
    if len(args) == 2 and args[1] is Ellipsis:
        return _array_of(hints.form(args[0]), tuple)
    forms = [hints.form(arg) for arg in args]
    size = len(forms)
    schema: Schema = {"type": "array", "prefixItems": [form.schema for form in forms], "items": False}
    if not forms:
        del schema["prefixItems"]  # must not be empty
    converts = [form.convert for form in forms]

    def convert(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) != size:
            raise HintMismatchError(f"a list of {size}", value)
        return tuple(_each(zip(converts, value, strict=True)))

    return JsonForm({**schema, "minItems": size, "maxItems": size}, convert)


def mapping_form(hints: HintForms, hint: Any) -> JsonForm:
    """Return the form of an object with any keys. Keys of other types become strings, as JSON requires."""
    origin, args = get_origin(hint) or hint, get_args(hint)
    key_hint, item_hint = (*args, int) if len(args) == 1 else args or (str, Any)  # a Counter's values are ints
    keys, items = hints.form(key_hint), hints.form(item_hint)
    if keys.schema.get("type") in ("array", "object", "null", "boolean") or "$ref" in keys.schema:
        raise UnsupportedHintError(hint, "keys in JSON are strings: use str, int, an Enum, a date … as keys")
    schema: Schema = {"type": "object"}
    if keys.schema.get("type") == "integer" and "enum" not in keys.schema:
        schema["propertyNames"] = {"pattern": r"^-?\d+$"}
    elif keys.schema.get("type") == "string" and len(keys.schema) > 1:
        schema["propertyNames"] = keys.schema
    if items.schema:
        schema["additionalProperties"] = items.schema
    build = MAPPINGS[origin]

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise HintMismatchError(TYPES["object"], value)
        names = [_convert_key(keys, key) for key in value]
        if not keys.as_is:
            _check_hashes(names)
        converted: dict[Any, Any] = {}
        for name, (key, item) in zip(names, value.items(), strict=True):
            try:
                converted[name] = items.convert(item)
            except HintMismatchError as mismatch:
                raise mismatch.under(key) from None
        return build(converted)

    return JsonForm(schema, convert, as_is=build is dict and keys.as_is and items.as_is)


def _array_of(item: JsonForm, build: BuildContainer) -> JsonForm:
    schema: Schema = {"type": "array"}
    if item.schema:
        schema["items"] = item.schema

    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise HintMismatchError(TYPES["array"], value)
        items = _each((item.convert, part) for part in value)
        try:
            if build in (set, frozenset):
                _check_hashes(items)
            return items if build is list else build(items)
        except TypeError:
            raise HintMismatchError("items that a set can hold", value) from None

    return JsonForm(schema, convert, as_is=build is list and item.as_is)


def _each(pairs: abc.Iterable[tuple[Callable[[Any], Any], Any]]) -> list[Any]:
    converted: list[Any] = []
    try:
        for convert, value in pairs:
            converted.append(convert(value))
    except HintMismatchError as wrong:
        raise wrong.under(len(converted)) from None
    return converted


def _check_hashes(items: list[Any]) -> None:
    """Refuse items with colliding hashes. Hashes of numbers are predictable: a hundred thousand colliding numbers would
    keep a set, and so the whole process, busy for minutes.
    """
    if len(items) <= FEW:
        return
    by_hash: dict[int, list[Any]] = {}
    for item in items:
        alike = by_hash.setdefault(hash(item), [])
        if item not in alike:
            alike.append(item)
            if len(alike) > MAX_ALIKE:
                raise HintMismatchError(f"at most {MAX_ALIKE} numbers with the same hash", items)


def _convert_key(form: JsonForm, key: str) -> Any:
    """Convert a key from text, or from the number in the text."""
    try:
        return form.convert(key)
    except HintMismatchError as wrong:
        try:
            return form.convert(msgspec.json.decode(key))
        except (HintMismatchError, msgspec.DecodeError, AttributeError):
            raise HintMismatchError(f"keys that are {wrong.expected}", key) from None


# Scalars


def _only(expected: str, *types: type) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, types) and (type(value) is not bool or bool in types):  # in Python, True is an int
            return value
        raise HintMismatchError(expected, value)

    return convert


def _integer(value: Any) -> int:
    """Convert an integer. In JSON Schema, 5.0 is an integer, too, and some callers send it."""
    if isinstance(value, int) and type(value) is not bool:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise HintMismatchError(TYPES["integer"], value)


def _decimal(value: Any) -> Decimal:
    """Convert a string or number to a decimal. 0.1 is the decimal 0.1, not the closest binary fraction."""
    if type(value) is bool or not isinstance(value, str | int | float):
        raise ValueError
    number = Decimal(str(value))
    if not number.is_finite():
        raise ValueError
    return number


def _decode_base64(value: str) -> bytes:
    return a2b_base64(value, strict_mode=True)


def _text_form(build: Callable[[str], Any], expected: str, **keywords: str) -> JsonForm:
    convert = constructor_form(build, expected)

    def from_text(value: Any) -> Any:
        if isinstance(value, str):
            return convert(value)
        raise HintMismatchError(expected, value)

    return JsonForm({"type": "string", **keywords}, from_text)


ANYTHING = JsonForm({}, lambda value: value, as_is=True)
TEXT = JsonForm({"type": "string"}, _only(TYPES["string"], str), as_is=True)
INTEGER = JsonForm({"type": "integer"}, _integer, exact=int)
# An int is a valid float, in Python's type system and in JSON.
NUMBER = JsonForm({"type": "number"}, _only(TYPES["number"], float, int), as_is=True)
NULL = JsonForm({"type": "null"}, _only(TYPES["null"], NoneType), as_is=True)
_DECIMAL_TEXT = {"type": "string", "format": "decimal"}

SCALARS: dict[Any, JsonForm] = {
    Any: ANYTHING,
    object: ANYTHING,
    str: TEXT,
    int: INTEGER,
    float: NUMBER,
    bool: JsonForm({"type": "boolean"}, _only(TYPES["boolean"], bool), as_is=True),
    None: NULL,
    NoneType: NULL,
    datetime: _text_form(datetime.fromisoformat, "a date and time like 2026-01-31T12:00:00Z", format="date-time"),
    date: _text_form(date.fromisoformat, "a date like 2026-01-31", format="date"),
    time: _text_form(time.fromisoformat, "a time like 12:30:00", format="time"),
    timedelta: _text_form(
        lambda value: msgspec.convert(value, timedelta),
        "a duration in days, hours, minutes and seconds like P1DT2H30M",
        format="duration",
    ),
    UUID: _text_form(UUID, "a UUID", format="uuid"),
    bytes: _text_form(_decode_base64, "bytes in base64", contentEncoding="base64"),
    bytearray: _text_form(lambda value: bytearray(_decode_base64(value)), "bytes in base64", contentEncoding="base64"),
    Decimal: JsonForm(
        {"anyOf": [{"type": "number"}, _DECIMAL_TEXT]}, constructor_form(_decimal, "a decimal number like 12.50")
    ),
    PathLike: _text_form(Path, "a path"),
}

# Types that `core.plain` converts in only one way: decimals become strings, so that no digit is lost.
OUTGOING: dict[Any, JsonForm] = {**SCALARS, Decimal: JsonForm(_DECIMAL_TEXT, SCALARS[Decimal].convert)}


def scalar_class(cls: type) -> JsonForm | None:
    """Return the form of a subclass of a path, text or number type."""
    if issubclass(cls, PurePath):
        return _text_form(cls, "a path")
    base = next((base for base in (str, int, float) if issubclass(cls, base)), None)
    if base is None:
        return None
    inner = SCALARS[base]

    def convert(value: Any) -> Any:
        value = inner.convert(value)
        try:
            return cls(value)
        except (TypeError, ValueError) as error:
            raise HintMismatchError(cls.__name__, value, message=str(error)) from None

    return JsonForm(inner.schema, convert)


# Literal and Enum

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def literal_form(hints: HintForms, hint: Any) -> JsonForm:
    return _choice(hint, [(_member_value(member), member) for member in get_args(hint)])


def enum_form(cls: type[Enum]) -> JsonForm:
    """Return the form of an enum by its values, like members in results."""
    if issubclass(cls, Flag):
        build = constructor_form(cls, "a sum of its flags")
        return JsonForm(INTEGER.schema, lambda value: build(INTEGER.convert(value)))
    return _choice(cls, [(member.value, member) for member in cls])


def _member_value(member: Any) -> Any:
    return member.value if isinstance(member, Enum) else member


def _choice(hint: Any, pairs: Iterable[tuple[Any, Any]]) -> JsonForm:
    members = {_choice_key(value): member for value, member in pairs}
    values = [value for _, value in members]
    types = {type(value): _TYPES.get(type(value)) for value in values}
    if not values or None in types.values():
        raise UnsupportedHintError(hint, "its values must be text, numbers, true, false or null")
    schema: dict[str, Any] = {"enum": values}
    if len(types) == 1:
        schema = {"type": next(iter(types.values())), **schema}

    def convert(value: Any) -> Any:
        try:
            return members[_choice_key(value)]
        except (KeyError, TypeError):
            raise HintMismatchError(one_of(values), value) from None

    # Numbers are looked up, because 1.0 equals 1; other values need no conversion.
    as_is = types.keys() <= {str, bool, NoneType} and all(
        _member_value(member) is member for member in members.values()
    )
    return JsonForm(schema, convert, as_is=as_is)


def _choice_key(value: Any) -> tuple[bool, Any]:
    """Return a key that distinguishes True from 1, which are equal in Python, but not in JSON."""
    return type(value) is bool, value


# Unions

_ABSENT = (UnsetType, UNSET)  # msgspec's marker for a missing field; no JSON value represents it
_DESCRIBING = ("title", "description", "examples")


def union_form(hints: HintForms, hint: Any) -> JsonForm:
    alternatives = [arg for arg in get_args(hint) if arg not in _ABSENT]
    forms = [NULL if arg is NoneType else hints.form(arg) for arg in alternatives]
    if len(forms) == 1:
        return forms[0]
    return JsonForm(_any_of(forms), _first_of(forms), as_is=all(form.as_is for form in forms))


def or_null(form: JsonForm) -> JsonForm:
    """Return the form with null as an alternative, for parameters with the default None."""
    if not form.schema or form.schema == NULL.schema or NULL.schema in form.schema.get("anyOf", ()):
        return form
    return JsonForm(_any_of([form, NULL]), _first_of([form, NULL]), as_is=form.as_is)


def _any_of(forms: list[JsonForm]) -> Schema:
    """Return the schema of a union. Equal alternatives, such as text and path, and nested unions are merged."""
    schemas: list[Schema] = []
    for form in forms:
        inner = form.schema["anyOf"] if form.schema.keys() == {"anyOf"} else [form.schema]
        schemas += [schema for schema in inner if schema not in schemas]
    if {} in schemas:
        return {}
    if len(schemas) == 2 and NULL.schema in schemas:
        # Move descriptions of a nullable value to the top, where readers expect them.
        descriptions = {key: schema[key] for schema in schemas for key in _DESCRIBING if key in schema}
        plain = [{key: schema[key] for key in schema if key not in _DESCRIBING} for schema in schemas]
        return {"anyOf": plain, **descriptions}
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _first_of(forms: list[JsonForm]) -> Convert:
    nullable = any(form is NULL for form in forms)
    converts = [form.convert for form in forms if form is not NULL]

    def convert(value: Any) -> Any:
        if value is None and nullable:
            return None
        mismatches: list[HintMismatchError] = []
        for alternative in converts:
            try:
                return alternative(value)
            except HintMismatchError as mismatch:
                mismatches.append(mismatch)
        # Report the closest alternative; if none is close, all expected values.
        deepest = max(mismatches, key=lambda mismatch: len(mismatch.path))
        expected = dict.fromkeys(mismatch.expected for mismatch in mismatches if mismatch.expected)
        if deepest.path or len(mismatches) == 1 or not expected:
            raise deepest
        raise HintMismatchError(either(expected), value)

    return convert
