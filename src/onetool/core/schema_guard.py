"""Refuses JSON Schemas that could hurt: too large, too deep, reaching outside, or exponentially slow.

Validators walk `anyOf` and `$ref` again for every alternative, so that twenty small definitions can cost minutes, and
an attacker may send both the schema (a server's tool) and the value (a model's call). The cost of a schema is
bounded before it is ever used: `guard` counts how often, in the worst case, one value could be looked at.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec

from onetool.core.errors import SchemaError

MAX_BYTES = 512 * 1024
MAX_DEPTH = 100
MAX_NODES = 10_000
MAX_PATTERNS = 200
MAX_RECURSIVE_NODES = 2_000
MAX_COST = 4_000
MAX_VALUE_DEPTH = 64

Schema = Mapping[str, Any]

# Keywords whose sub-schemas look at the same value again.
_HERE_LIST = ("allOf", "anyOf", "oneOf")
_HERE_ONE = ("not", "if", "then", "else")
# Keywords whose sub-schemas look at a part of the value: those that name the part, those with patterns, those for any.
_PARTS = {
    "object": ("properties", "patternProperties", ("additionalProperties", "unevaluatedProperties", "propertyNames")),
    "array": ("prefixItems", "", ("items", "contains", "unevaluatedItems")),
}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DEFINITIONS = ("$defs", "definitions")


def guard(schema: Schema) -> int | None:
    """Refuse a harmful schema. Returns how deep a value may be to have its errors explained, None for any depth.

    Whether a value fits is quick to tell at any depth; it is the list of what is wrong that multiplies where a schema
    is recursive.
    """
    _check_size(schema)
    graph = _Graph(schema)
    if not graph.recursive:
        if graph.cost(schema, MAX_DEPTH + 1) > MAX_COST:
            raise SchemaError("its alternatives multiply: checking one value could take too long; use fewer anyOf/$ref")
        return None
    for depth in range(1, MAX_VALUE_DEPTH + 1):
        if graph.cost(schema, depth) > MAX_COST:
            return depth - 1
    return MAX_VALUE_DEPTH


def _check_size(schema: Schema) -> None:
    try:
        size = len(msgspec.json.encode(schema))
    except RecursionError:
        raise SchemaError(f"nested deeper than {MAX_DEPTH} levels") from None
    except (TypeError, ValueError) as error:
        raise SchemaError(f"not JSON: {error}") from None
    if size > MAX_BYTES:
        raise SchemaError(f"larger than {MAX_BYTES // 1024} KiB")


class _Graph:
    """A schema as a graph: each sub-schema, what looks at the same value again, and what looks at a part of it."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._anchors: dict[str, Any] = {}
        self._nodes = 0
        self._patterns = 0
        self._costs: dict[tuple[int, int, str], int] = {}
        self._collect(root, 0)
        self.recursive = self._has_cycle(root)
        if self.recursive and self._nodes > MAX_RECURSIVE_NODES:
            raise SchemaError(f"recursive and larger than {MAX_RECURSIVE_NODES} sub-schemas")

    def _collect(self, node: Any, depth: int) -> None:
        """Visit every sub-schema once: count, find the anchors, refuse what can't be followed."""
        self._nodes += 1
        if depth > MAX_DEPTH:
            raise SchemaError(f"nested deeper than {MAX_DEPTH} levels")
        if self._nodes > MAX_NODES:
            raise SchemaError(f"more than {MAX_NODES} sub-schemas")
        if not isinstance(node, Mapping):
            return
        schema = cast(Schema, node)
        self._refuse_foreign(schema, depth)
        self._count_patterns(schema)
        for name in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := schema.get(name), str):
                self._anchors[anchor] = schema
        for child in (*_here(schema), *_definitions(schema), *_all_parts(schema)):
            self._collect(child, depth + 1)

    def _refuse_foreign(self, schema: Schema, depth: int) -> None:
        for name in _REFERENCES:
            ref = schema.get(name)
            if isinstance(ref, str) and not ref.startswith("#"):
                raise SchemaError(f"refers to {ref!r}: only references inside the schema (#/…) are followed")
        if depth and "$id" in schema:
            raise SchemaError("an inner $id is not supported: use #/$defs/…")

    def _count_patterns(self, schema: Schema) -> None:
        """Compiling a pattern costs up to a millisecond."""
        self._patterns += ("pattern" in schema) + len(cast(Schema, schema.get("patternProperties") or ()))
        if self._patterns > MAX_PATTERNS:
            raise SchemaError(f"more than {MAX_PATTERNS} patterns")

    def _has_cycle(self, root: Schema) -> bool:
        done: set[int] = set()
        path: set[int] = set()

        def visit(node: Any) -> bool:
            key = id(node)
            if key in path:
                return True
            if key in done or not isinstance(node, Mapping):
                return False
            path.add(key)
            found = any(visit(child) for child in self._successors(cast(Schema, node)))
            path.discard(key)
            done.add(key)
            return found

        try:
            return visit(root)
        except RecursionError:
            raise SchemaError("its references make too long a chain") from None

    def _successors(self, schema: Schema) -> Iterator[Any]:
        yield from self._again(schema)
        yield from _all_parts(schema)

    def _again(self, schema: Schema) -> Iterator[Any]:
        """What looks at the same value again, references included."""
        yield from _here(schema)
        for name in _REFERENCES:
            if isinstance(ref := schema.get(name), str):
                yield self._resolve(ref)

    def _resolve(self, ref: str) -> Any:
        pointer = ref[1:]
        if pointer and not pointer.startswith("/"):
            if pointer not in self._anchors:
                raise SchemaError(f"{ref!r} points to nothing in the schema")
            return self._anchors[pointer]
        node: Any = self._root
        for step in pointer.split("/")[1:]:
            node = _step(node, step, ref)
        return node

    def cost(self, schema: Schema, depth: int) -> int:
        """How many checks a value `depth` levels deep may take, along its worst branch."""
        return max(self._cost(schema, depth, kind, frozenset()) for kind in ("object", "array"))

    def _cost(self, node: Any, depth: int, kind: str, path: frozenset[int]) -> int:
        if not isinstance(node, Mapping):
            return 1
        schema = cast(Schema, node)
        key = (id(schema), depth, kind)
        if key in self._costs:
            return self._costs[key]
        if id(schema) in path:
            raise SchemaError("refers to itself without looking at a part of the value: that would never end")
        path |= {id(schema)}
        total = 1 + sum(self._cost(child, depth, kind, path) for child in self._again(schema))
        if depth > 0:
            total += self._worst_part(schema, depth - 1, kind)
        self._costs[key] = min(total, MAX_COST + 1)
        return self._costs[key]

    def _worst_part(self, schema: Schema, depth: int, kind: str) -> int:
        """Different properties are different values: the costliest counts, with what looks at every one of them."""
        sums: dict[str, int] = {}
        for place, part in _parts(schema, kind):
            sums[place] = sums.get(place, 0) + self.cost(part, depth)
        every = sums.pop("", 0)
        return every + max(sums.values(), default=0)


def _here(schema: Schema) -> Iterator[Any]:
    for name in _HERE_LIST:
        if isinstance(found := schema.get(name), list | tuple):
            yield from cast(list[Any], found)
    for name in _HERE_ONE:
        if name in schema:
            yield schema[name]
    if isinstance(found := schema.get("dependentSchemas"), Mapping):
        yield from cast(Schema, found).values()


def _parts(schema: Schema, kind: str) -> Iterator[tuple[str, Any]]:
    """Sub-schemas for the parts of an object or an array, each with its place: a name or index, "" for any."""
    named, pattern, any_part = _PARTS[kind]
    found = schema.get(named)
    if isinstance(found, Mapping):
        yield from cast(Schema, found).items()
    elif isinstance(found, list | tuple):
        yield from ((str(index), part) for index, part in enumerate(cast(list[Any], found)))
    if isinstance(found := schema.get(pattern), Mapping):
        yield from (("", part) for part in cast(Schema, found).values())
    yield from (("", schema[name]) for name in any_part if name in schema)


def _all_parts(schema: Schema) -> Iterator[Any]:
    return (part for kind in _PARTS for _, part in _parts(schema, kind))


def _definitions(schema: Schema) -> Iterator[Any]:
    for name in _DEFINITIONS:
        if isinstance(found := schema.get(name), Mapping):
            yield from cast(Schema, found).values()


def _step(node: Any, step: str, ref: str) -> Any:
    from urllib.parse import unquote  # only where a schema has references

    name = unquote(step).replace("~1", "/").replace("~0", "~")
    if isinstance(node, Mapping) and name in cast(Schema, node):
        return cast(Schema, node)[name]
    if isinstance(node, list | tuple) and name.isdigit() and int(name) < len(cast(list[Any], node)):
        return cast(list[Any], node)[int(name)]
    raise SchemaError(f"{ref!r} points to nothing in the schema")


def sub_schemas(schema: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """The schema with every direct sub-schema changed: the one place that knows where sub-schemas stand."""
    lists = (*_HERE_LIST, "prefixItems")
    maps = ("properties", "patternProperties", "dependentSchemas", *_DEFINITIONS)
    ones = (*_HERE_ONE, *_PARTS["object"][2], *_PARTS["array"][2])
    for name in schema.keys() & {*lists, *maps, *ones}:
        value = schema[name]
        if name in lists and isinstance(value, list | tuple):
            schema[name] = [change(item) for item in cast(list[Any], value)]
        elif name in maps and isinstance(value, Mapping):
            schema[name] = {key: change(item) for key, item in cast(Schema, value).items()}
        elif name in ones:
            schema[name] = change(value)
    return schema
