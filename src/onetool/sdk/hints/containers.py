"""Lists, tuples, sets, dicts, and what stands for them: Sequence, Iterable, Mapping."""

import collections
from collections import abc
from collections.abc import Callable
from typing import Any, get_args, get_origin

import msgspec

from onetool.sdk.hints.form import Form, Hints, NoForm, Schema, Wrong

Build = Callable[[Any], Any]

FEW = 1_000  # items that may have what hashes they like
MOST_ALIKE = 100  # different ones with the same hash

ARRAYS: dict[Any, Build] = {
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
MAPPINGS: dict[Any, Build] = {
    dict: dict,
    abc.Mapping: dict,
    abc.MutableMapping: dict,
    collections.OrderedDict: collections.OrderedDict,
    collections.defaultdict: lambda items: collections.defaultdict(None, items),
    collections.Counter: collections.Counter,
}


def array(hints: Hints, hint: Any) -> Form:
    """Any number of items of one kind."""
    origin, args = get_origin(hint) or hint, get_args(hint)
    return _array(hints.form(args[0] if args else Any), ARRAYS[origin])


def tuple_(hints: Hints, hint: Any) -> Form:
    """`tuple[int, ...]` is an array of one kind, `tuple[int, str]` has a fixed length and a kind for each place."""
    args = get_args(hint)
    if not args and hint != tuple[()]:
        return _array(hints.form(Any), tuple)
    if len(args) == 2 and args[1] is Ellipsis:
        return _array(hints.form(args[0]), tuple)
    forms = [hints.form(arg) for arg in args]
    size = len(forms)
    schema: Schema = {"type": "array", "prefixItems": [form.schema for form in forms], "items": False}
    if not forms:
        del schema["prefixItems"]  # it may not be empty
    converts = [form.convert for form in forms]

    def convert(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) != size:
            raise Wrong(f"array of {size}", value)
        return tuple(_each(zip(converts, value, strict=True)))

    return Form({**schema, "minItems": size, "maxItems": size}, convert)


def mapping(hints: Hints, hint: Any) -> Form:
    """An object with any keys. What is not text in Python is text here: JSON has no other keys."""
    origin, args = get_origin(hint) or hint, get_args(hint)
    key_hint, item_hint = (*args, int) if len(args) == 1 else args or (str, Any)  # a Counter counts with int
    keys, items = hints.form(key_hint), hints.form(item_hint)
    if keys.schema.get("type") in ("array", "object", "null", "boolean") or "$ref" in keys.schema:
        raise NoForm(hint, "an object's keys are text: use str, int, an Enum, a date … as keys")
    schema: Schema = {"type": "object"}
    if names := _property_names(keys.schema):
        schema["propertyNames"] = names
    if items.schema:
        schema["additionalProperties"] = items.schema
    build = MAPPINGS[origin]

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Wrong("object", value)
        names = [_key(keys, key) for key in value]
        if not keys.as_is:
            _check_hashes(names)
        return build(dict(zip(names, (_item(items, key, item) for key, item in value.items()), strict=True)))

    return Form(schema, convert, as_is=build is dict and keys.as_is and items.as_is)


def _array(item: Form, build: Build) -> Form:
    schema: Schema = {"type": "array"}
    if item.schema:
        schema["items"] = item.schema

    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise Wrong("array", value)
        items = _each((item.convert, one) for one in value)
        try:
            if build in (set, frozenset):
                _check_hashes(items)
            return items if build is list else build(items)
        except TypeError:
            raise Wrong("items that a set can hold", value) from None

    return Form(schema, convert, as_is=build is list and item.as_is)


def _each(pairs: abc.Iterable[tuple[Callable[[Any], Any], Any]]) -> list[Any]:
    converted: list[Any] = []
    try:
        for convert, value in pairs:
            converted.append(convert(value))
    except Wrong as wrong:
        raise wrong.under(len(converted)) from None
    return converted


def _check_hashes(items: list[Any]) -> None:
    """Hashes of numbers are no secret: a hundred thousand that were made to collide keep a set busy for minutes, and
    nothing else of the process runs meanwhile."""
    if len(items) <= FEW:
        return
    by_hash: dict[int, list[Any]] = {}
    for item in items:
        alike = by_hash.setdefault(hash(item), [])
        if item not in alike:
            alike.append(item)
            if len(alike) > MOST_ALIKE:
                raise Wrong(f"at most {MOST_ALIKE} numbers with the same hash", items)


def _item(form: Form, key: str, value: Any) -> Any:
    try:
        return form.convert(value)
    except Wrong as wrong:
        raise wrong.under(key) from None


def _key(form: Form, key: str) -> Any:
    """A key as text, or as the number that the text is."""
    try:
        return form.convert(key)
    except Wrong as wrong:
        try:
            return form.convert(msgspec.json.decode(key))
        except (Wrong, msgspec.DecodeError, AttributeError):
            raise Wrong(f"keys that are {wrong.expected}", key) from None


def _property_names(schema: Schema) -> Schema | None:
    kind = schema.get("type")
    if kind == "integer" and "enum" not in schema:
        return {"pattern": r"^-?\d+$"}
    return schema if kind == "string" and len(schema) > 1 else None
