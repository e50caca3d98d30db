"""Refuses harmful JSON Schemas: too large, too deep, with external references, or exponentially slow. Validators follow
`anyOf` and `$ref` for every alternative, so twenty small definitions can take minutes, and an attacker may control both
the schema (a server's tool) and the value (a model's call).

So `guard` bounds the cost of a schema before its first use: the number of checks for one value in the worst case.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from math import frexp
from typing import Any, cast

import msgspec

from onetool.core.errors import SchemaError
from onetool.core.schema_keywords import CONTAINER_KINDS, Schema, child_subschemas, in_place_subschemas, subschemas

MAX_BYTES = 512 * 1024
MAX_DEPTH = 100
MAX_NODES = 5_000
MAX_PATTERNS = 200
MAX_COST = 4_000
MAX_VALUE_DEPTH = 64
MAX_WORK = 100_000  # steps for computing the cost of a recursive schema

_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class Verdict(msgspec.Struct, frozen=True):
    """The cost of a schema: the maximum number of checks for one value, along the worst branch. For a recursive schema,
    `costs[d]` is the cost of values with `d` levels; errors in deeper values would take too long to explain.

    Other schemas have one cost. `slow` counts the checks that take about a microsecond: comparisons of numbers, and
    `uniqueItems`.
    """

    costs: tuple[int, ...]
    slow: tuple[int, ...] = (0,)
    compares_items: bool = False  # by `uniqueItems`: all parts count as slow, not only numbers
    recursive: bool = False


def guard(schema: Schema) -> Verdict:
    """Refuse a harmful schema and return the cost of a harmless one.

    Validation is fast at any depth, but listing the errors of a recursive schema is not.
    """
    check_size(schema)
    graph = _Graph(schema)
    costs = _Costs([node.weight for node in graph.nodes], graph)
    if not costs.recursive:
        cost = costs.of(0, MAX_DEPTH + 1)
        if cost > MAX_COST:
            raise SchemaError("its alternatives multiply: checking one value could take too long; use fewer anyOf/$ref")
        return Verdict((cost,), _slow_costs(graph, [MAX_DEPTH + 1]), graph.compares_items)
    by_depth: list[int] = []
    for depth in range(MAX_VALUE_DEPTH + 1):
        cost = costs.of(0, depth)
        if cost > MAX_COST or costs.work > MAX_WORK:
            break
        by_depth.append(cost)
    if not by_depth:
        raise SchemaError("its alternatives multiply: checking one value could take too long; use fewer anyOf/$ref")
    return Verdict(tuple(by_depth), _slow_costs(graph, range(len(by_depth))), graph.compares_items, recursive=True)


def _slow_costs(graph: "_Graph", depths: Iterable[int]) -> tuple[int, ...]:
    """Return the costs for at least one depth, and as many more as can be computed quickly."""
    weights = [node.slow for node in graph.nodes]
    if not any(weights):
        return (0,)
    costs, found = _Costs(weights, graph), list[int]()
    for depth in depths:
        found.append(costs.of(0, depth))
        if costs.work > MAX_WORK // 10:
            break
    return tuple(found)


def check_size(schema: Any) -> None:
    """Refuse a schema that is too large or too deep, before other functions walk over all of it."""
    _count(schema, {}, 0)
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SchemaError(f"not JSON: {error}") from None
    if size > MAX_BYTES:
        raise SchemaError(f"larger than {MAX_BYTES // 1024} KiB")


def _count(value: Any, seen: dict[int, int], depth: int) -> int:
    """Count the values in the written-out form. Shared values count each time, but are walked once."""
    if not isinstance(value, Mapping | list | tuple):
        return 1
    if depth > 2 * MAX_DEPTH:
        raise SchemaError(f"nested deeper than {MAX_DEPTH} levels")
    if id(cast(object, value)) in seen:
        return seen[id(cast(object, value))]
    children = cast(Schema, value).values() if isinstance(value, Mapping) else cast(list[Any], value)
    total = 1 + sum(_count(child, seen, depth + 1) for child in children)
    if total > MAX_BYTES:
        raise SchemaError(f"larger than {MAX_BYTES // 1024} KiB")
    seen[id(cast(object, value))] = total
    return total


class _Node(msgspec.Struct):
    """A sub-schema: its own cost, the sub-schemas for the same value (`again`), and those for the value's parts."""

    weight: int
    slow: int = 0
    again: list[int] = []
    parts: dict[str, dict[str, list[int]]] = {}


class _Graph:
    """A schema as a graph of numbered sub-schemas."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._anchors: dict[str, Any] = {}
        self._patterns = 0
        self.compares_items = False
        self._numbers: dict[int, int] = {}
        self._schemas: list[Any] = []
        self.nodes: list[_Node] = []
        self._collect(root, 0)
        for schema in list(self._schemas):
            self.nodes.append(self._node(schema))

    def _collect(self, node: Any, depth: int) -> None:
        """Number every sub-schema, find the anchors, and refuse unsupported references."""
        if id(node) in self._numbers:
            return
        if depth > MAX_DEPTH:
            raise SchemaError(f"nested deeper than {MAX_DEPTH} levels")
        if len(self._schemas) >= MAX_NODES:
            raise SchemaError(f"more than {MAX_NODES} sub-schemas")
        self._numbers[id(node)] = len(self._schemas)
        self._schemas.append(node)
        if not isinstance(node, Mapping):
            return
        schema = cast(Schema, node)
        for name in _REFERENCES:
            ref = schema.get(name)
            if isinstance(ref, str) and not ref.startswith("#"):
                raise SchemaError(f"refers to {ref[:100]!r}: only references inside the schema (#/…) are followed")
        if depth and "$id" in schema:
            raise SchemaError("an inner $id is not supported: use #/$defs/…")
        found = schema.get("patternProperties")
        self._patterns += ("pattern" in schema) + (len(cast(Schema, found)) if isinstance(found, Mapping) else 0)
        if self._patterns > MAX_PATTERNS:  # compiling a pattern takes up to 1 ms
            raise SchemaError(f"more than {MAX_PATTERNS} patterns")
        for name in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := schema.get(name), str):
                self._anchors[anchor] = schema
        for child in subschemas(schema):
            self._collect(child, depth + 1)

    def _node(self, node: Any) -> _Node:
        if not isinstance(node, Mapping):
            return _Node(1)
        schema = cast(Schema, node)
        again = [self._number(child) for child in in_place_subschemas(schema)]
        again += [self._number(self._resolve(ref)) for name in _REFERENCES if isinstance(ref := schema.get(name), str)]
        places: dict[str, dict[str, list[int]]] = {}
        for kind in CONTAINER_KINDS:
            for place, part in child_subschemas(schema, kind):
                places.setdefault(kind, {}).setdefault(place, []).append(self._number(part))
        self.compares_items = self.compares_items or schema.get("uniqueItems") is True
        return _Node(_weight(schema), _slow(schema), again, places)

    def _number(self, node: Any) -> int:
        """Return the number of a sub-schema. Raises SchemaError if a schema is not allowed there."""
        if id(node) not in self._numbers:
            raise SchemaError("a reference leads to a place without a schema; put the schema under #/$defs/…")
        return self._numbers[id(node)]

    def _resolve(self, ref: str) -> Any:
        from urllib.parse import unquote  # only needed for references

        pointer = ref[1:]
        if pointer and not pointer.startswith("/"):
            if pointer not in self._anchors:
                raise SchemaError(f"{ref[:100]!r} points to nothing in the schema")
            return self._anchors[pointer]
        node: Any = self._root
        for step in pointer.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            is_index = name.isascii() and name.isdigit()
            if isinstance(node, Mapping) and name in cast(Schema, node):
                node = cast(Schema, node)[name]
            elif isinstance(node, list | tuple) and is_index and int(name) < len(cast(list[Any], node)):
                node = cast(list[Any], node)[int(name)]
            else:
                raise SchemaError(f"{ref[:100]!r} points to nothing in the schema")
        return node


class _Costs:
    """The costs of checking values of a given depth against each node of a graph."""

    def __init__(self, weights: list[int], graph: _Graph) -> None:
        self._weights = weights
        self._nodes = graph.nodes
        self._known: dict[tuple[int, int, str], int] = {}
        self.work = 0
        try:
            if _cyclic([node.again for node in self._nodes]):
                raise SchemaError("refers to itself for the same value: checking would never end")
            parts = [[one for places in node.parts.values() for one in chain(*places.values())] for node in self._nodes]
            self._heights = _heights([node.again for node in self._nodes], parts)
            self.recursive = any(height > MAX_NODES for height in self._heights)
        except RecursionError:
            raise SchemaError("its chain of references is too long") from None

    def of(self, number: int, depth: int) -> int:
        """Return the higher of a node's costs for an object and an array. The root is number 0."""
        depth = min(depth, self._heights[number])  # deeper values cost nothing more
        key = (number, depth, "")
        if key not in self._known:
            self._known[key] = max(self._of_kind(number, depth, kind) for kind in CONTAINER_KINDS)
        return self._known[key]

    def _of_kind(self, number: int, depth: int, kind: str) -> int:
        depth = min(depth, self._heights[number])
        key = (number, depth, kind)
        if key in self._known:
            return self._known[key]
        self.work += 1
        node = self._nodes[number]
        total = self._weights[number] + sum(self._of_kind(child, depth, kind) for child in node.again)
        if depth > 0 and total <= MAX_COST and kind in node.parts:
            # Properties are different values: count the costliest one, plus the schemas that apply to every property.
            sums = {place: sum(self.of(one, depth - 1) for one in ones) for place, ones in node.parts[kind].items()}
            total += sums.pop("", 0) + max(sums.values(), default=0)
        self._known[key] = min(total, MAX_COST + 1)
        return self._known[key]


def _cyclic(edges: list[list[int]]) -> bool:
    state = [0] * len(edges)  # 0 unseen, 1 on the path, 2 done

    def visit(number: int) -> bool:
        if state[number]:
            return state[number] == 1
        state[number] = 1
        found = any(visit(child) for child in edges[number])
        state[number] = 2
        return found

    return any(visit(number) for number in range(len(edges)))


def _heights(again: list[list[int]], parts: list[list[int]]) -> list[int]:
    """Return the levels of parts below each node; more than MAX_NODES where they never end."""
    heights: dict[int, int] = {}

    def height(number: int) -> int:
        if number not in heights:
            heights[number] = MAX_NODES + 1  # if met again, the levels never end
            inner = max(map(height, parts[number]), default=-1) + 1
            heights[number] = max(inner, *map(height, again[number]), 0)
        return heights[number]

    return [height(number) for number in range(len(parts))]


def _weight(schema: Schema) -> int:
    """Return the cost of a sub-schema without its parts: 1 plus the number of possible errors and compared values."""
    required, enum = schema.get("required"), schema.get("enum")
    names = len(cast(list[Any], required)) if isinstance(required, list | tuple) else 0
    options = cast(list[Any], enum) if isinstance(enum, list | tuple) else []
    # Strings are hashed; numbers and structures are compared one by one, which is slow.
    return 1 + names + len(options) // 100 + sum(4 for option in options if not isinstance(option, str))


def _slow(schema: Schema) -> int:
    limits = sum(_number_cost(schema[name]) for name in _NUMBERS if name in schema)
    limits += 2 * isinstance(schema.get("multipleOf"), float)  # divides fractions
    enum = schema.get("enum")
    options = [*cast(list[Any], enum)] if isinstance(enum, list | tuple) else []
    options += [schema["const"]] if "const" in schema else []
    return limits + sum(map(_option_cost, options)) + (schema.get("uniqueItems") is True)


def _option_cost(option: Any) -> int:
    """Return the cost of a comparison with this option: 0 if it contains no number."""
    if isinstance(option, Mapping | list | tuple):
        children = cast(Schema, option).values() if isinstance(option, Mapping) else cast(list[Any], option)
        return max(map(_option_cost, children), default=0)
    return 1 + _number_cost(option) if _number_cost(option) else 0


def _number_cost(number: Any) -> int:
    """Return the cost of a comparison with a number, which grows with the number of digits."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return 0
    if isinstance(number, int):
        return 1 + number.bit_length() // 256
    return 2 + abs(frexp(number)[1]) // 64
