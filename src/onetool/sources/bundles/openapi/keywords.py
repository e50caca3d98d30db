"""What of a schema in a document is taken over: keyword by keyword, each only with a value that it can have.

Documents are written by hand and by many programs: `required: true`, `type: file` and the like would make the whole
schema useless to a validator. What can't be is left out, and a schema that says less accepts more.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from onetool.sources.bundles.openapi.naming import clean

LONGEST_DESCRIPTION = 500
LARGEST_SAMPLE = 2_000  # bytes of JSON
MOST_SAMPLES = 3
LONGEST_TEXT = 1_000  # of a pattern or a format

TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
ONE = (
    *("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED = ("dependentSchemas", "patternProperties", "properties")


def plain_keywords(schema: dict[str, Any]) -> dict[str, Any]:
    """All but sub-schemas and references."""
    found = {name: value for name, fits in _FITS.items() if (value := schema.get(name)) is not None and fits(value)}
    if "const" in schema and is_small(schema["const"]):
        found["const"] = schema["const"]
    if types := _types(schema.get("type")):
        found["type"] = types
    if text := clean(schema.get("description"), LONGEST_DESCRIPTION):
        found["description"] = text
    if "default" in schema and is_small(schema["default"]):
        found["default"] = schema["default"]
    if isinstance(required := schema.get("required"), list):
        found["required"] = list(dict.fromkeys(name for name in required if isinstance(name, str)))
    if isinstance(values := schema.get("enum"), list) and values:
        found["enum"] = values
    if samples := samples_of(schema):
        found["examples"] = samples
    return found


def samples_of(thing: dict[str, Any]) -> list[Any]:
    """`example`, and `examples` as a list (of a schema) or as a map of `{value}` (of parameters and bodies)."""
    found = [thing["example"]] if "example" in thing else []
    more = thing.get("examples")
    if isinstance(more, list):
        found += more[:MOST_SAMPLES]
    elif isinstance(more, dict):
        few = list(more.values())[:MOST_SAMPLES]
        found += [one["value"] for one in few if isinstance(one, dict) and "value" in one]
    small = [one for one in found if is_small(one)]
    return [one for index, one in enumerate(small) if one not in small[:index]][:MOST_SAMPLES]


def is_small(value: Any) -> bool:
    try:
        return len(msgspec.json.encode(value)) <= LARGEST_SAMPLE
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


def _types(given: Any) -> Any:
    if isinstance(given, list):
        return list(dict.fromkeys(one for one in given if isinstance(one, str) and one in TYPES))
    return given if isinstance(given, str) and given in TYPES else None


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT


def _names_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in value.values()
    )


_FITS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("minimum", "maximum"), _number),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), lambda value: isinstance(value, int | float)),
    "multipleOf": lambda value: _number(value) and value > 0,
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _count),
    **dict.fromkeys(("minContains", "maxContains"), _count),
    **dict.fromkeys(("uniqueItems", "deprecated", "writeOnly"), lambda value: value is True),
    **dict.fromkeys(("pattern", "format", "contentEncoding"), _text),
    "dependentRequired": _names_by_name,
}
