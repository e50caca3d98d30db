"""Forms of classes with named fields: dataclass, TypedDict, NamedTuple and msgspec.Struct.

They are objects in JSON, except that NamedTuples are arrays.
"""

from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from onetool.core.errors import ToolFailure
from onetool.core.json_data import plain
from onetool.core.mismatch import TYPES
from onetool.sdk.docs import read_text
from onetool.sdk.hints.form import (
    HintForms,
    HintMismatchError,
    JsonForm,
    Schema,
    UnsupportedHintError,
    hint_text,
    identifier,
)
from onetool.sdk.hints.values import or_null

NO_DEFAULT: Any = object()
"""Marks a missing default, because None is a valid one."""


def with_default(form: JsonForm, default: Any) -> JsonForm:
    """Return the form for a default: with `city: str = None`, null is valid, too."""
    return or_null(form) if default is None else form


def property_schema(form: JsonForm, description: str | None, default: Any = NO_DEFAULT) -> Schema:
    schema = form.schema
    if description:
        schema = {**schema, "description": description}
    if default is not NO_DEFAULT:
        data = as_data(default)
        if data is not NO_DEFAULT:
            schema = {**schema, "default": data}
    return schema


def as_data(value: Any) -> Any:
    """Return a value as JSON data; NO_DEFAULT for objects without a JSON form."""
    if isinstance(value, float) and not isfinite(value):
        return NO_DEFAULT
    try:
        return plain(value)
    except ToolFailure:
        return NO_DEFAULT


# Fields of classes

_QUALIFIERS = ("Required", "NotRequired", "ReadOnly", "Final")


class RecordField(msgspec.Struct, frozen=True):
    """A field: `key` is its name in JSON, `name` in Python (None for a Struct's tag)."""

    key: str
    name: str | None
    hint: Any
    required: bool = True
    default: Any = NO_DEFAULT


def is_record(cls: type) -> bool:
    return (
        hasattr(cls, "__dataclass_fields__")
        or hasattr(cls, "__struct_fields__")
        or is_typed_dict(cls)
        or _is_named_tuple(cls)
    )


def fields_of(cls: Any, is_output: bool = False) -> Iterator[RecordField]:
    if hasattr(cls, "__struct_fields__"):
        config = cls.__struct_config__
        if config.tag is not None:
            yield RecordField(config.tag_field, None, Literal[config.tag])
        for field in msgspec.structs.fields(cls):
            default = NO_DEFAULT if field.default is msgspec.NODEFAULT else field.default
            yield RecordField(field.encode_name, field.name, field.type, field.required, default)
        return
    types = get_type_hints(cls, include_extras=True)
    if hasattr(cls, "__dataclass_fields__"):
        from dataclasses import MISSING, fields

        for field in fields(cls):
            if field.init or is_output:
                default = NO_DEFAULT if field.default is MISSING else field.default
                required = default is NO_DEFAULT and field.default_factory is MISSING and field.init
                yield RecordField(field.name, field.name, _unqualified(types[field.name]), required, default)
    elif is_typed_dict(cls):
        for key, hint in types.items():
            # Check the hint first: hints written as text were not evaluated when the class was created.
            qualifier = _qualifier(hint)
            required = qualifier != "NotRequired" and (qualifier == "Required" or key in cls.__required_keys__)
            yield RecordField(key, key, _unqualified(hint), required)
    else:
        for key in cls._fields:
            default = cls._field_defaults.get(key, NO_DEFAULT)
            yield RecordField(key, key, types.get(key, Any), default is NO_DEFAULT, default)


def is_typed_dict(cls: type) -> bool:
    return hasattr(cls, "__required_keys__")  # for both typing and typing_extensions


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def _qualifier(hint: Any) -> str | None:
    return getattr(get_origin(hint), "_name", None)


def _unqualified(hint: Any) -> Any:
    while _qualifier(hint) in _QUALIFIERS:
        hint = get_args(hint)[0]
    return hint


# Records

FieldForm = tuple[str | None, JsonForm]  # the name in Python, and the form


def record_form(hints: HintForms, hint: Any) -> JsonForm:
    cls = get_origin(hint) or hint
    name = "_".join([cls.__name__, *map(hint_text, get_args(hint))])

    def read() -> JsonForm:
        variables = dict(zip(getattr(cls, "__parameters__", ()), get_args(hint), strict=False))
        try:
            fields = [*fields_of(cls, hints.is_output)]
        except Exception as error:  # noqa: BLE001 - evaluating hints may raise anything
            raise UnsupportedHintError(hint, f"the hints of its fields can't be read: {error}") from None
        parts: dict[str, FieldForm] = {}
        for field in fields:
            form = with_default(hints.form(_bind_type_variables(field.hint, variables)), field.default)
            parts[field.key] = field.name, form
        if _is_named_tuple(cls) or (hasattr(cls, "__struct_config__") and cls.__struct_config__.array_like):
            return _as_array(cls, fields, parts)
        return _as_object(cls, fields, parts, closed=not hints.is_output)

    return hints.named(hint, identifier(name), read)


def _as_object(cls: type, fields: list[RecordField], parts: dict[str, FieldForm], closed: bool) -> JsonForm:
    text = cls.__dict__.get("__doc__") or ""
    docs = read_text("" if text.startswith(f"{cls.__name__}(") else text)  # a generated signature
    required = [field.key for field in fields if field.required]
    properties = {
        field.key: property_schema(parts[field.key][1], docs.parameters.get(field.name or ""), field.default)
        for field in fields
    }
    schema: Schema = {"type": "object", "properties": properties}
    if docs.description:
        schema = {"description": docs.description, **schema}
    if required:
        schema["required"] = required
    if closed:
        schema["additionalProperties"] = False  # as for arguments: misspelt keys are errors
    is_dict = is_typed_dict(cls)
    build = dict if is_dict else _constructor(cls)

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise HintMismatchError(TYPES["object"], value)
        if missing := [key for key in required if key not in value]:
            raise HintMismatchError(f"{TYPES['object']} with {missing[0]}", value)
        return build(_values(parts, value.items()))

    return JsonForm(schema, convert, as_is=is_dict and all(form.as_is for _, form in parts.values()))


def _as_array(cls: type, fields: list[RecordField], parts: dict[str, FieldForm]) -> JsonForm:
    """Return the form of a record as an array of its fields. The names are only titles."""
    low, high = sum(field.required for field in fields), len(fields)
    items = [{"title": field.key, **property_schema(parts[field.key][1], None, field.default)} for field in fields]
    schema: Schema = {"type": "array", "prefixItems": items, "items": False, "minItems": low, "maxItems": high}
    build = _constructor(cls)

    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple) or not low <= len(value) <= high:
            raise HintMismatchError(f"a list of {low}" if low == high else f"a list of {low} to {high}", value)
        return build(_values(parts, zip(parts, value, strict=False)))

    return JsonForm(schema, convert)


def _values(parts: dict[str, FieldForm], items: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in items:
        if key not in parts:
            raise HintMismatchError("", message=f"unknown; known: {', '.join(parts)}", path=(key,))
        name, form = parts[key]
        try:
            converted = form.convert(value)
        except HintMismatchError as wrong:
            raise wrong.under(key) from None
        if name is not None:
            values[name] = converted
    return values


def _constructor(cls: type) -> Callable[[dict[str, Any]], Any]:
    def build(values: dict[str, Any]) -> Any:
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise HintMismatchError(cls.__name__, message=str(error)) from None  # the message of the class's own check

    return build


def _bind_type_variables(hint: Any, variables: dict[Any, Any]) -> Any:
    """Return a field's hint with the type variables of its class replaced."""
    if isinstance(hint, TypeVar):
        return variables.get(hint, hint)
    free = getattr(hint, "__parameters__", ())
    if not free or not variables or isinstance(hint, type):
        return hint
    return hint[tuple(variables.get(variable, variable) for variable in free)]
