"""Where the sub-schemas of a JSON Schema stand: the one place that knows the keywords."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

Schema = Mapping[str, Any]

# Keywords whose sub-schemas look at the same value again.
_HERE_LIST = ("allOf", "anyOf", "oneOf")
_HERE_ONE = ("not", "if", "then", "else")
_HERE_MAP = ("dependentSchemas",)
# Keywords whose sub-schemas look at a part of the value: those that name the part, those with patterns, those for any.
_PARTS = {
    "object": ("properties", "patternProperties", ("additionalProperties", "unevaluatedProperties", "propertyNames")),
    "array": ("prefixItems", "", ("items", "contains", "unevaluatedItems")),
}
KINDS = tuple(_PARTS)
_DEFINITIONS = ("$defs", "definitions")
_SHARED = tuple(f"#/{word}/" for word in _DEFINITIONS)
_ANCHORED = frozenset({"$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef"})


def here(schema: Schema) -> Iterator[Any]:
    """Sub-schemas that look at the same value again."""
    for name in _HERE_LIST:
        if isinstance(found := schema.get(name), list | tuple):
            yield from cast(list[Any], found)
    yield from (schema[name] for name in _HERE_ONE if name in schema)
    for name in _HERE_MAP:
        if isinstance(found := schema.get(name), Mapping):
            yield from cast(Schema, found).values()


def parts(schema: Schema, kind: str) -> Iterator[tuple[str, Any]]:
    """Sub-schemas for the parts of an object or an array, each with its place: a name or index, "" for any."""
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


def inside(schema: Schema) -> Iterator[Any]:
    """Every sub-schema that stands directly in a schema, definitions included."""
    yield from here(schema)
    yield from definitions(schema)
    yield from (part for kind in KINDS for _, part in parts(schema, kind))


def stands_alone(schema: Any) -> bool:
    """Whether a part of it means the same elsewhere, where the definitions are: it refers to nothing but these."""
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


def changed(schema: Schema, change: Callable[[Any], Any]) -> dict[str, Any]:
    """A copy of the schema with every direct sub-schema changed."""
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
