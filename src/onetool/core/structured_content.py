"""Wraps values for MCP's structured content, which has to be an object, and unwraps those of servers.

A value that is not an object is sent as {"result": value}, as the common SDKs do it. Code gets the value itself and its
schema; a text in the wrapper that is JSON is parsed.
"""

from collections.abc import Mapping
from typing import Any, cast

from onetool.core.schema_keywords import stands_alone
from onetool.core.type_names import MAX_DEPTH, resolve_definition, types_of

RESULT = "result"
HANDLE = "handle"  # stands in a wrapper of ours in place of a value that is too large
MARK = "x-fastmcp-wrap-result"
DEFINITIONS = ("$defs", "definitions")
ABOUT = frozenset({"title", "description", "default", "examples"})
SMALL = frozenset({"integer", "number", "boolean", "null"})
TEXT = frozenset({"string", "null"})
OBJECT, ARRAY = {"type": "object"}, {"type": "array"}
KEPT = {"type": "string", "description": "of a result that is too large to be sent: where it is kept"}

Schema = Mapping[str, Any]


def is_wrapper(schema: Any) -> bool:
    """Return whether an output schema says that the object is a wrapper, and nothing that the tool is about."""
    if not isinstance(schema, Mapping):
        return False
    parts = cast(Schema, schema)
    properties = parts.get("properties")
    is_alone = isinstance(properties, Mapping) and list(cast(Schema, properties)) == [RESULT]
    return parts.get(MARK) is True or (is_alone and str(parts.get("title")).endswith("Output"))


def inner_schema(schema: Schema) -> Schema | None:
    """Return the schema of the value in a wrapper, as code gets it; None if it means nothing outside."""
    properties: Any = schema.get("properties") or {}
    inner: Any = properties.get(RESULT, {})
    if not isinstance(inner, Mapping) or not stands_alone(schema) or any(word in inner for word in DEFINITIONS):
        return None
    part, shared = cast(Schema, inner), _shared(schema)
    if "string" in types_of(part, schema) and "enum" not in part and "const" not in part:
        return {"anyOf": [part, OBJECT, ARRAY], **shared}  # what a text may be when it is read as JSON
    return {"anyOf": [part, OBJECT], **shared} if HANDLE in properties else {**part, **shared}


def wrapped_schema(schema: Any) -> dict[str, Any] | None:
    """Return the schema of the wrapper around a value of ours; None for plain text, and for values of unknown type."""
    if not isinstance(schema, Mapping) or not stands_alone(schema):
        return None
    inner = {word: part for word, part in cast(Schema, schema).items() if word not in DEFINITIONS}
    kinds = types_of(inner, cast(Schema, schema))
    if kinds <= TEXT:
        return None
    around = {"type": "object", MARK: True, **_shared(cast(Schema, schema))}
    if kinds <= SMALL:
        return {**around, "properties": {RESULT: inner}, "required": [RESULT]}
    return {**around, "properties": {RESULT: inner, HANDLE: KEPT}}  # one of them, or content that is not data


def may_be_content(schema: Any, root: Schema | None = None, levels: int = MAX_DEPTH) -> bool:
    """Return whether the schema allows a content block, alone or in a list: objects without named members do."""
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
