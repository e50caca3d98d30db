"""The JSON Schema keywords that hold sub-schemas, and rewriting of older drafts to draft 2020-12.

Only keywords that draft 2020-12 would refuse or silently ignore are rewritten.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

Schema = Mapping[str, Any]

# Keywords whose sub-schemas apply to the same value.
_HERE_LIST = ("allOf", "anyOf", "oneOf")
_HERE_ONE = ("not", "if", "then", "else")
_HERE_MAP = ("dependentSchemas",)
# Keywords whose sub-schemas apply to a part of the value: by name, by pattern, or to any part.
_PARTS = {
    "object": ("properties", "patternProperties", ("additionalProperties", "unevaluatedProperties", "propertyNames")),
    "array": ("prefixItems", "", ("items", "contains", "unevaluatedItems")),
}
CONTAINER_KINDS = tuple(_PARTS)
_DEFINITIONS = ("$defs", "definitions")
_PART_KEYWORDS = frozenset(word for named, pattern, any_part in _PARTS.values() for word in (named, pattern, *any_part))
KEYWORDS_WITH_SUBSCHEMAS = _PART_KEYWORDS.union(_HERE_LIST, _HERE_ONE, _HERE_MAP, _DEFINITIONS) - {""}
_SHARED = tuple(f"#/{word}/" for word in _DEFINITIONS)
_ANCHORED = frozenset({"$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef"})


def in_place_subschemas(schema: Schema) -> Iterator[Any]:
    """Yield sub-schemas that apply to the same value (allOf, anyOf, if …)."""
    for name in _HERE_LIST:
        if isinstance(found := schema.get(name), list | tuple):
            yield from cast(list[Any], found)
    yield from (schema[name] for name in _HERE_ONE if name in schema)
    for name in _HERE_MAP:
        if isinstance(found := schema.get(name), Mapping):
            yield from cast(Schema, found).values()


def child_subschemas(schema: Schema, kind: str) -> Iterator[tuple[str, Any]]:
    """Yield sub-schemas for the parts of an object or array, each with a name or index, or "" for any part."""
    named, pattern, any_part = _PARTS[kind]
    found = schema.get(named)
    if isinstance(found, Mapping):
        yield from ((str(name), part) for name, part in cast(Schema, found).items())
    elif isinstance(found, list | tuple):
        yield from ((str(index), part) for index, part in enumerate(cast(list[Any], found)))
    if isinstance(found := schema.get(pattern), Mapping):
        yield from (("", part) for part in cast(Schema, found).values())
    yield from (("", schema[name]) for name in any_part if name in schema)


def definitions(schema: Schema) -> Iterator[Any]:
    for name in _DEFINITIONS:
        if isinstance(found := schema.get(name), Mapping):
            yield from cast(Schema, found).values()


def subschemas(schema: Schema) -> Iterator[Any]:
    """Yield the direct sub-schemas of a schema, including definitions."""
    yield from in_place_subschemas(schema)
    yield from definitions(schema)
    yield from (part for kind in CONTAINER_KINDS for _, part in child_subschemas(schema, kind))


def stands_alone(schema: Any) -> bool:
    """Return whether a schema refers only to its definitions, so that its parts can be moved."""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            known = cast(Schema, part)
            if not str(known.get("$ref", _SHARED[0])).startswith(_SHARED) or not _ANCHORED.isdisjoint(known):
                return False
            waiting += known.values()
        elif isinstance(part, list | tuple):
            waiting += cast(list[Any], part)
    return True


def map_subschemas(schema: Schema, change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a copy of the schema with a function applied to every direct sub-schema."""
    new = dict(schema)
    lists = (*_HERE_LIST, "prefixItems")
    maps = ("properties", "patternProperties", *_HERE_MAP, *_DEFINITIONS)
    ones = (*_HERE_ONE, *_PARTS["object"][2], *_PARTS["array"][2])
    for name in new.keys() & {*lists, *maps, *ones}:
        value = new[name]
        if name in lists and isinstance(value, list | tuple):
            new[name] = [change(item) for item in cast(list[Any], value)]
        elif name in maps and isinstance(value, Mapping):
            new[name] = {key: change(item) for key, item in cast(Schema, value).items()}
        elif name in ones:
            new[name] = change(value)
    return new


# Older drafts of JSON Schema


def upgrade(schema: Any) -> Any:
    """Rewrite a schema to draft 2020-12."""
    if not isinstance(schema, Mapping):
        return schema
    new = map_subschemas(cast(Mapping[str, Any], schema), upgrade)
    # `items: [a, b]` with `additionalItems` (to draft 2019-09) is `prefixItems` with `items`.
    if isinstance(new.get("items"), list | tuple):
        new["prefixItems"] = [upgrade(item) for item in new.pop("items")]
        if "additionalItems" in new:
            new["items"] = upgrade(new.pop("additionalItems"))
    # `minimum: 0, exclusiveMinimum: true` (draft 4) is `exclusiveMinimum: 0`.
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(new.get(exclusive), bool) and new.pop(exclusive) and bound in new:
            new[exclusive] = new.pop(bound)
    # `dependencies` (to draft 7) became two keywords: one for names, one for schemas.
    if isinstance(new.get("dependencies"), Mapping):
        for name, needs in cast(Mapping[str, Any], new.pop("dependencies")).items():
            keyword = "dependentRequired" if isinstance(needs, list | tuple) else "dependentSchemas"
            before = new.get(keyword)
            if before is None or isinstance(before, Mapping):  # else invalid; the compiler reports it
                new[keyword] = {**cast(Mapping[str, Any], before or {}), name: upgrade(needs)}
    return new
