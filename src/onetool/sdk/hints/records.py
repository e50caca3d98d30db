"""Classes with named fields, of whichever kind: an object in JSON, or an array where Python has a tuple."""

from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from onetool.sdk.docs import read_text
from onetool.sdk.hints.definitions import identifier
from onetool.sdk.hints.fields import Field, fields_of, is_positional, is_typed_dict
from onetool.sdk.hints.form import Form, Hints, NoForm, Schema, Wrong, hint_text
from onetool.sdk.hints.property import property_schema, with_default


class Part(msgspec.Struct, frozen=True):
    """A field that is ready."""

    name: str | None
    form: Form


def record(hints: Hints, hint: Any) -> Form:
    cls = get_origin(hint) or hint
    name = "_".join([cls.__name__, *map(hint_text, get_args(hint))])
    return hints.named(hint, identifier(name), lambda: _read(hints, hint, cls))


def _read(hints: Hints, hint: Any, cls: type) -> Form:
    variables = dict(zip(getattr(cls, "__parameters__", ()), get_args(hint), strict=False))
    try:
        fields = [*fields_of(cls, hints.outgoing)]
    except Exception as error:  # noqa: BLE001 - hints that are text are evaluated, so they may raise anything
        raise NoForm(hint, f"the hints of its fields can't be read: {error}") from None
    parts: dict[str, Part] = {}
    for field in fields:
        form = with_default(hints.form(_bound(field.hint, variables)), field.default)
        parts[field.key] = Part(field.name, form)
    if is_positional(cls):
        return _as_array(cls, fields, parts)
    return _as_object(cls, fields, parts, closed=not hints.outgoing)


def _as_object(cls: type, fields: list[Field], parts: dict[str, Part], closed: bool) -> Form:
    docs = read_text(_docstring(cls))
    required = [field.key for field in fields if field.required]
    properties = {
        field.key: property_schema(parts[field.key].form, docs.parameters.get(field.name or ""), field.default)
        for field in fields
    }
    schema: Schema = {"type": "object", "properties": properties}
    if docs.description:
        schema = {"description": docs.description, **schema}
    if required:
        schema["required"] = required
    if closed:
        schema["additionalProperties"] = False  # as for the arguments themselves: a misspelt key is told
    is_dict = is_typed_dict(cls)
    build = dict if is_dict else _constructor(cls)

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Wrong("object", value)
        if missing := [key for key in required if key not in value]:
            raise Wrong(f"object with {missing[0]}", value)
        return build(_values(parts, value.items()))

    return Form(schema, convert, as_is=is_dict and all(part.form.as_is for part in parts.values()))


def _as_array(cls: type, fields: list[Field], parts: dict[str, Part]) -> Form:
    """In JSON as in Python a tuple: its fields by their places. Their names are there for the reader."""
    least, most = sum(field.required for field in fields), len(fields)
    places = [{"title": field.key, **property_schema(parts[field.key].form, None, field.default)} for field in fields]
    schema: Schema = {"type": "array", "prefixItems": places, "items": False, "minItems": least, "maxItems": most}
    build = _constructor(cls)

    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple) or not least <= len(value) <= most:
            raise Wrong(f"array of {least}" if least == most else f"array of {least} to {most}", value)
        return build(_values(parts, zip(parts, value, strict=False)))

    return Form(schema, convert)


def _values(parts: dict[str, Part], items: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in items:
        part = parts.get(key)
        if part is None:
            raise Wrong("", said=f"unknown; known: {', '.join(parts)}", path=(key,))
        try:
            converted = part.form.convert(value)
        except Wrong as wrong:
            raise wrong.under(key) from None
        if part.name is not None:
            values[part.name] = converted
    return values


def _constructor(cls: type) -> Callable[[dict[str, Any]], Any]:
    def build(values: dict[str, Any]) -> Any:
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise Wrong(cls.__name__, said=str(error)) from None  # its own check, in its own words

    return build


def _bound(hint: Any, variables: dict[Any, Any]) -> Any:
    """A field's hint with the type variables of its class filled in."""
    if isinstance(hint, TypeVar):
        return variables.get(hint, hint)
    free = getattr(hint, "__parameters__", ())
    if not free or not variables or isinstance(hint, type):
        return hint
    return hint[tuple(variables.get(variable, variable) for variable in free)]


def _docstring(cls: type) -> str:
    """What the author wrote; dataclasses and named tuples without a docstring get their signature as one."""
    text = cls.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{cls.__name__}(") else text
