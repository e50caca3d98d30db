"""What a schema says of values of one type, as Gemini can be told: limits, formats, values, and notes for the rest."""

import json
import math
from typing import Any

from onetool.formats.kinds import kind_of, values_of

LONGEST_NOTE = 300

_FORMATS = {"string": ("date-time",), "number": ("float", "double"), "integer": ("int32", "int64")}
_COUNTS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_WIDER = {"integer": "number"}
_BOUNDS = (("minimum", "exclusiveMinimum", max, "greater"), ("maximum", "exclusiveMaximum", min, "less"))


def leaf(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of that type without anything inside; what has no field is told in its description."""
    node: dict[str, Any] = {"type": kind}
    notes = [*_add_format(node, schema), *_add_values(node, schema), *_add_bounds(node, schema)]
    for key in _COUNTS.get(kind, ()):
        if (size := _count(schema.get(key))) is not None:
            node[key] = size
    if kind == "string" and isinstance(schema.get("pattern"), str):
        node["pattern"] = schema["pattern"]
    if kind == "object" and not schema.get("properties"):
        notes += _free_keys(schema)
    if notes:
        node["description"] = " ".join(notes)
    return node


def _add_format(node: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    name = schema.get("format")
    if name in _FORMATS.get(node["type"], ()):
        node["format"] = name
    elif node["type"] == "string" and isinstance(name, str) and name != "enum":
        return [_note("Format", name)]
    return []


def _add_values(node: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    kind = node["type"]
    values = [value for value in values_of(schema) if kind in (kind_of(value), _WIDER.get(kind_of(value)))]
    if kind == "string" and values and all(values):
        node["enum"] = list(dict.fromkeys(values))
        return []
    return [_note("One of", ", ".join(json.dumps(value, ensure_ascii=False) for value in values))] if values else []


def _add_bounds(node: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    if node["type"] not in ("integer", "number"):
        return []
    notes: list[str] = []
    for key, open_key, tighter, word in _BOUNDS:
        closed, beyond = _number(schema.get(key)), schema.get(open_key)
        beyond = closed if beyond is True else _number(beyond)  # true is how drafts up to 4 said it
        if beyond is not None and node["type"] == "integer":
            beyond = math.floor(beyond) + 1 if tighter is max else math.ceil(beyond) - 1
        elif beyond is not None:
            notes.append(f"Must be {word} than {beyond}.")
        if bounds := [bound for bound in (closed, beyond) if bound is not None]:
            node[key] = tighter(bounds)
    return notes


def _free_keys(schema: dict[str, Any]) -> list[str]:
    """Without this a model takes an object of free keys, like HTTP headers, for one that is always empty."""
    values = schema.get("additionalProperties")
    kind = values.get("type") if isinstance(values, dict) else None
    return [f"Any keys, with values of type {kind}."] if isinstance(kind, str) else []


def _note(label: str, text: str) -> str:
    return f"{label}: {text}." if len(text) <= LONGEST_NOTE else f"{label}: {text[:LONGEST_NOTE]}…"


def _count(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 2**63 and number == int(number) else None


def _number(value: Any) -> int | float | None:
    """The value if it is a number that fits in a double, as these fields are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def is_plain_value(value: Any) -> bool:
    """Whether the value is a text, a truth value or a number that JSON can write."""
    return isinstance(value, str | bool) or _number(value) is not None
