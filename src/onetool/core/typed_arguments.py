"""Reads arguments that somebody typed as texts: JSON where the tool's schema wants data, else the text itself."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from onetool.core.spec import ToolSpec

DEEPEST = 10  # references in a schema that are followed


def is_text(key: str, spec: "ToolSpec") -> bool | None:
    """Whether an argument is a text; None where it may be one or something else, and both are tried."""
    properties: Mapping[str, Any] = spec.input_schema.get("properties") or {}
    kinds = _kinds(properties.get(key), spec.input_schema, DEEPEST)
    if kinds is None:
        return None
    kinds -= {"null"}
    return "string" in kinds if len(kinds) == 1 or "string" not in kinds else None


def takes_others(spec: "ToolSpec") -> bool:
    """Whether it may have arguments that its schema does not name."""
    schema = spec.input_schema
    further = schema.get("additionalProperties", spec.source != "local")  # a server says itself what it does not take
    if further or spec.prepare is not None:  # code of its own may make others of them
        return True
    return any(word in schema for word in ("patternProperties", "allOf", "anyOf", "oneOf", "$ref"))


def named_values(key: str, spec: "ToolSpec") -> list[str]:
    """The values that the schema lists for an argument, as they are typed."""
    properties: Mapping[str, Any] = spec.input_schema.get("properties") or {}
    field = properties.get(key)
    if not isinstance(field, Mapping):
        return []
    fields = cast(Mapping[str, Any], field)
    if fields.get("type") == "boolean":
        return ["true", "false"]
    values = fields.get("enum") or ()
    return [value if isinstance(value, str) else json.dumps(value) for value in values]


def _kinds(schema: Any, root: Mapping[str, Any], depth: int) -> set[str] | None:
    """The types that a schema names; None where it names none."""
    if not isinstance(schema, Mapping) or not depth:
        return None
    fields = cast(Mapping[str, Any], schema)
    named = fields.get("type")
    if named is not None:
        return {named} if isinstance(named, str) else set(named)
    if isinstance(target := fields.get("$ref"), str):
        return _kinds(_pointed(target, root), root, depth - 1)
    if "const" in fields or "enum" in fields:
        values = fields["enum"] if "enum" in fields else [fields["const"]]
        return {"string" if isinstance(value, str) else "null" if value is None else "other" for value in values}
    parts = [_kinds(part, root, depth - 1) for word in ("anyOf", "oneOf") for part in fields.get(word, ())]
    return None if not parts or None in parts else set[str]().union(*(part for part in parts if part))


def _pointed(target: str, root: Mapping[str, Any]) -> Any:
    """Where a reference into the same schema leads."""
    found: Any = root
    for step in target.removeprefix("#/").split("/"):
        found = cast(Mapping[str, Any], found).get(step) if isinstance(found, Mapping) else None
    return found
