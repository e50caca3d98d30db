"""Which JSON types a schema speaks of, and what else can be read from it without following anything."""

from collections.abc import Mapping
from typing import Any

MOST_VALUES_READ = 100  # to learn their types; more would cost much and teach nothing

KINDS = ("string", "number", "integer", "boolean", "object", "array", "null")

# A schema without a type speaks of the one that its keywords are about.
_KEYWORDS = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "string": ("pattern", "minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


def kinds_of(schema: Mapping[str, Any]) -> list[str]:
    """The types that the schema declares, or else shows by its values or keywords. None when it could be anything."""
    declared = schema.get("type")
    kinds = [kind for kind in (declared if isinstance(declared, list) else [declared]) if kind in KINDS]
    kinds = kinds or [kind_of(value) for value in values_of(schema)[:MOST_VALUES_READ]]
    kinds = kinds or [kind for kind, keywords in _KEYWORDS.items() if any(key in schema for key in keywords)]
    if "number" in kinds:
        kinds = [kind for kind in kinds if kind != "integer"]
    return list(dict.fromkeys(kinds))


def kind_of(value: Any) -> str:
    """The JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):  # before int: a bool is one in Python
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) else "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"


def values_of(schema: Mapping[str, Any]) -> list[Any]:
    """The values that a `const` or an `enum` leaves; empty when every value of the type may be."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else []


def branches_of(schema: Mapping[str, Any]) -> list[Any]:
    """What stands in `anyOf`, or else in `oneOf`, without what nothing can match."""
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return [branch for branch in schema[key] if not is_never(branch)]
    return []


def is_never(schema: Any) -> bool:
    """Whether no value matches. `{"not": {}}` is how some generators write an absent alternative."""
    return schema is False or (isinstance(schema, Mapping) and schema.get("not") in ({}, True))


def says_nothing(schema: Any) -> bool:
    """Whether every value matches."""
    return schema is True or schema == {}
