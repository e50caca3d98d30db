"""Wraps values for MCP's structured content, which has to be an object, and unwraps values from servers.

Values that are not objects are sent as {"result": value}, like in the common SDKs. Code gets the value itself and its
schema; JSON strings in the wrapper are decoded.
"""

from collections.abc import Mapping
from typing import Any, cast

from onetool.core.schema_keywords import stands_alone
from onetool.core.type_names import MAX_DEPTH, resolve_definition, types_of

RESULT = "result"
HANDLE = "handle"  # replaces a too large value in the wrapper
MARK = "x-fastmcp-wrap-result"
DEFINITIONS = ("$defs", "definitions")
ABOUT = frozenset({"title", "description", "default", "examples"})
SMALL = frozenset({"integer", "number", "boolean", "null"})
TEXT = frozenset({"string", "null"})
OBJECT, ARRAY = {"type": "object"}, {"type": "array"}
KEPT = {"type": "string", "description": "The handle of a stored result, if the result is too large to send"}

Schema = Mapping[str, Any]


def is_wrapper(schema: Any) -> bool:
    """Return whether an output schema describes a wrapper around the tool's actual value."""
    if not isinstance(schema, Mapping):
        return False
    parts = cast(Schema, schema)
    properties = parts.get("properties")
    is_alone = isinstance(properties, Mapping) and list(cast(Schema, properties)) == [RESULT]
    return parts.get(MARK) is True or (is_alone and str(parts.get("title")).endswith("Output"))


def inner_schema(schema: Schema) -> Schema | None:
    """Return the schema of the value in a wrapper, as code gets it; None if it depends on the wrapper's schema."""
    properties: Any = schema.get("properties") or {}
    inner: Any = properties.get(RESULT, {})
    if not isinstance(inner, Mapping) or not stands_alone(schema) or any(word in inner for word in DEFINITIONS):
        return None
    part, shared = cast(Schema, inner), _shared(schema)
    if "string" in types_of(part, schema) and "enum" not in part and "const" not in part:
        return {"anyOf": [part, OBJECT, ARRAY], **shared}  # the text may be JSON
    return {"anyOf": [part, OBJECT], **shared} if HANDLE in properties else {**part, **shared}


def wrapped_schema(schema: Any) -> dict[str, Any] | None:
    """Return the schema of the wrapper for a local tool's value; None for plain text and values of unknown type."""
    if not isinstance(schema, Mapping) or not stands_alone(schema):
        return None
    inner = {word: part for word, part in cast(Schema, schema).items() if word not in DEFINITIONS}
    kinds = types_of(inner, cast(Schema, schema))
    if kinds <= TEXT:
        return None
    around = {"type": "object", MARK: True, **_shared(cast(Schema, schema))}
    if kinds <= SMALL:
        return {**around, "properties": {RESULT: inner}, "required": [RESULT]}
    return {**around, "properties": {RESULT: inner, HANDLE: KEPT}}  # one of the two, or content blocks


def may_be_content(schema: Any, root: Schema | None = None, levels: int = MAX_DEPTH) -> bool:
    """Return whether the schema allows content blocks, alone or in a list, as objects without named members do."""
    root = cast(Schema, schema) if root is None and isinstance(schema, Mapping) else root or {}
    part = resolve_definition(schema, root)
    if not isinstance(part, Mapping):
        return part is True
    known = cast(Schema, part)
    if levels == 0 or "enum" in known or "const" in known:
        return False
    if arms := [arm for word in ("anyOf", "oneOf") for arm in known.get(word) or ()]:
        return any(may_be_content(arm, root, levels - 1) for arm in arms)
    kinds = types_of(known, root)
    items = (*known.get("prefixItems", ()), known.get("items", True))
    if "array" in kinds and any(may_be_content(item, root, levels - 1) for item in items):
        return True
    members = known.get("additionalProperties", True)
    member_kinds = types_of(members, root)
    takes_text = members is not False and (not member_kinds or "string" in member_kinds)
    return ("object" in kinds and takes_text and not known.get("properties")) or known.keys() <= ABOUT


def _shared(schema: Schema) -> dict[str, Any]:
    return {word: schema[word] for word in DEFINITIONS if word in schema}
