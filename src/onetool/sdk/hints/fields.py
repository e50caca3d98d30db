"""The fields of a class: dataclass, TypedDict, NamedTuple and msgspec.Struct name them in their own ways."""

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from onetool.sdk.hints.property import NOTHING

_QUALIFIERS = ("Required", "NotRequired", "ReadOnly", "Final")


class Field(msgspec.Struct, frozen=True):
    """One field: `key` is its name in JSON, `name` in Python; a Struct's tag has none there."""

    key: str
    name: str | None
    hint: Any
    required: bool = True
    default: Any = NOTHING


def is_record(cls: type) -> bool:
    return (
        hasattr(cls, "__dataclass_fields__")
        or hasattr(cls, "__struct_fields__")
        or is_typed_dict(cls)
        or _is_named_tuple(cls)
    )


def fields_of(cls: Any, outgoing: bool = False) -> Iterator[Field]:
    if hasattr(cls, "__struct_fields__"):
        return _struct_fields(cls)
    types = get_type_hints(cls, include_extras=True)
    if hasattr(cls, "__dataclass_fields__"):
        return _dataclass_fields(cls, types, outgoing)
    return _typed_dict_fields(cls, types) if is_typed_dict(cls) else _tuple_fields(cls, types)


def _struct_fields(cls: Any) -> Iterator[Field]:
    config = cls.__struct_config__
    if config.tag is not None:
        yield Field(config.tag_field, None, Literal[config.tag])
    for field in msgspec.structs.fields(cls):
        default = NOTHING if field.default is msgspec.NODEFAULT else field.default
        yield Field(field.encode_name, field.name, field.type, field.required, default)


def _dataclass_fields(cls: Any, types: dict[str, Any], outgoing: bool) -> Iterator[Field]:
    from dataclasses import MISSING, fields

    for field in fields(cls):
        if field.init or outgoing:
            default = NOTHING if field.default is MISSING else field.default
            required = default is NOTHING and field.default_factory is MISSING and field.init
            yield Field(field.name, field.name, _unqualified(types[field.name]), required, default)


def _typed_dict_fields(cls: Any, types: dict[str, Any]) -> Iterator[Field]:
    for key, hint in types.items():
        # Asked of the hint first: hints that were written as text were not understood when the class was made.
        word = _word(hint)
        required = word != "NotRequired" and (word == "Required" or key in cls.__required_keys__)
        yield Field(key, key, _unqualified(hint), required)


def _tuple_fields(cls: Any, types: dict[str, Any]) -> Iterator[Field]:
    for key in cls._fields:
        default = cls._field_defaults.get(key, NOTHING)
        yield Field(key, key, types.get(key, Any), default is NOTHING, default)


def is_typed_dict(cls: type) -> bool:
    return hasattr(cls, "__required_keys__")  # of typing's as of typing_extensions'


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_positional(cls: Any) -> bool:
    return _is_named_tuple(cls) or (hasattr(cls, "__struct_config__") and cls.__struct_config__.array_like)


def _word(hint: Any) -> str | None:
    return getattr(get_origin(hint), "_name", None)


def _unqualified(hint: Any) -> Any:
    while _word(hint) in _QUALIFIERS:
        hint = get_args(hint)[0]
    return hint
