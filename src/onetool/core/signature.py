"""A tool's signature in one line, for people and models: `fs.read_file(path: str, maxBytes: int = 204800)`."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from onetool.core.spec import ToolSpec
from onetool.core.spelling import spelled

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_LONGEST_DEFAULT = 40


def signature(spec: ToolSpec, name: str | None = None) -> str:
    """Required parameters come first and without a default; optional ones show theirs, or '...' where none is known.

    `name` is what code calls the tool, where that is not its own name.
    """
    properties = cast(Mapping[str, Any], spec.input_schema.get("properties") or {})
    required = cast(list[str], spec.input_schema.get("required") or [])
    parts = [_parameter(one, _resolved(properties[one], spec.input_schema), one in required) for one in spec.order]
    if spec.input_schema.get("additionalProperties"):
        parts.append("**more")
    returns = f" -> {type_name(_resolved(spec.output_schema, spec.output_schema))}" if spec.output_schema else ""
    return f"{name or spec.name}({', '.join(parts)}){returns}"


def _parameter(name: str, schema: Any, required: bool) -> str:
    text = f"{spelled(name)}: {type_name(schema)}"
    return text if required else f"{text} = {_default(schema)}"


def _resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """What a reference to a definition says, so that an array is not called an object."""
    if not isinstance(schema, Mapping):
        return None
    fields = cast(Mapping[str, Any], schema)
    ref = fields.get("$ref")
    if not isinstance(ref, str) or not ref.startswith("#/$defs/"):
        return fields
    found = cast(Mapping[str, Any], root.get("$defs") or {}).get(ref.removeprefix("#/$defs/"))
    beside = {key: value for key, value in fields.items() if key != "$ref"}
    return {**cast(Mapping[str, Any], found), **beside} if isinstance(found, Mapping) else fields


def _default(schema: Any) -> str:
    if isinstance(schema, Mapping) and "default" in schema:
        text = repr(cast(Mapping[str, Any], schema)["default"])
        if len(text) <= _LONGEST_DEFAULT:
            return text
    return "'...'"


def type_name(schema: Any) -> str:
    """A JSON Schema as the type hint that says about the same."""
    if not isinstance(schema, Mapping):
        return "Any"
    fields = cast(Mapping[str, Any], schema)
    if "enum" in fields:
        return f"Literal[{', '.join(map(repr, fields['enum']))}]" if len(fields["enum"]) <= 8 else "str"
    for word in ("anyOf", "oneOf"):
        if isinstance(fields.get(word), list):
            return _union(map(type_name, fields[word]))
    kind = fields.get("type")
    if isinstance(kind, list):
        return _union(type_name({**fields, "type": one}) for one in cast(list[str], kind))
    if kind == "array":
        return f"list[{type_name(fields['items'])}]" if fields.get("items") else "list"
    if kind == "object" or "$ref" in fields:  # what is worth a definition of its own is an object, near enough
        return "dict"
    return _TYPES.get(str(kind), "Any")


def _union(names: Iterable[str]) -> str:
    unique = dict.fromkeys(names)
    return "Any" if "Any" in unique else " | ".join(unique) or "Any"
