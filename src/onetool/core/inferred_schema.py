"""Infers the output schema of a tool without a declared one from the values that it returns.

The inferred schema is shown in help texts and never enforced. The schema contains types and field names, but no values.
If a key could be data (an ID, an e-mail address) or is missing in another result, the object becomes a map, for which
only the type of the values is kept. Items of an array may lack some fields. The depth, width and size of the inspected
part of a value are bounded.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial, reduce
from itertools import chain, islice
from threading import Lock
from typing import Annotated, Any, Literal, cast

import msgspec

from onetool.core.json_data import freeze
from onetool.core.text import lazy_pattern

MAX_DEPTH = 6  # nested objects and arrays
MAX_FIELDS = 20  # of one object; an object with more keys is a map
MAX_ITEMS = 20  # inspected at the start of an array
MAX_VALUE_PARTS = 1_000  # of one value
MAX_FIELD_NAME = 64  # characters

Kind = Literal["object", "array", "string", "integer", "number", "boolean", "null"]

_NAME = lazy_pattern(r"[@$]?[^\W\d][\w-]*")
_WORD = lazy_pattern(r"[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_a-zA-Z]+")
# IDs and tokens: many digits, a run of hex digits, digits among letters, more letters or consonants than in words.
_DATA = lazy_pattern(
    r"(?:\d\D*){4}|[0-9a-fA-F]{8}|\d[a-zA-Z].*\d[a-zA-Z]|[a-z]{21}|[A-Z]{21}"
    r"|(?=[a-z]*\d)[a-z\d]{16}|(?=[A-Z]*\d)[A-Z\d]{16}"
    r"|[bcdfghjklmnpqrstvwxz]{6}|[BCDFGHJKLMNPQRSTVWXZ]{8}"
)


class ValueShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """The kinds of values seen so far; without any kind, nothing is known."""

    kinds: frozenset[Kind] = frozenset()
    items: "ValueShape | None" = None  # the items of all arrays; None: unknown
    fields: dict[str, "ValueShape"] = {}  # the fields of all objects
    required: frozenset[str] = frozenset()  # fields that all objects have
    others: "ValueShape | None" = None  # the values of all objects, if one object was a map


NOTHING = ValueShape()
_SCALARS: dict[Any, ValueShape] = {
    str: ValueShape(frozenset({"string"})),
    int: ValueShape(frozenset({"integer"})),
    float: ValueShape(frozenset({"number"})),
    bool: ValueShape(frozenset({"boolean"})),
    type(None): ValueShape(frozenset({"null"})),
}
_ARRAY: frozenset[Kind] = frozenset({"array"})
_OBJECT: frozenset[Kind] = frozenset({"object"})


def shape_of(value: Any, levels: int = MAX_DEPTH, left: list[int] | None = None) -> ValueShape:
    """Return the shape of one plain value, down to `levels`. `left` is the remaining number of parts to read."""
    scalar = _SCALARS.get(type(value))
    if scalar is not None:
        return scalar
    left = [MAX_VALUE_PARTS] if left is None else left
    if left[0] <= 0:
        return NOTHING
    if isinstance(value, list | tuple):
        values = cast(list[Any], value)[:MAX_ITEMS]
        if levels == 0 or not values:
            return ValueShape(_ARRAY)
        left[0] -= len(values)
        return ValueShape(_ARRAY, items=join_items(shape_of(one, levels - 1, left) for one in values))
    if not isinstance(value, dict):
        return NOTHING
    members = cast(dict[str, Any], value)
    if levels == 0:
        return ValueShape(_OBJECT)
    left[0] -= min(len(members), MAX_FIELDS)
    fields = {key: shape_of(one, levels - 1, left) for key, one in islice(members.items(), MAX_FIELDS)}
    if len(members) <= MAX_FIELDS and _all_names(*fields):
        return ValueShape(_OBJECT, fields=fields, required=frozenset(fields))
    return ValueShape(_OBJECT, others=join_items(fields.values()))


def join_shapes(one: ValueShape, other: ValueShape, is_item: bool = False) -> ValueShape:
    """Return the smallest shape that covers both. Objects with different keys become maps, unless they are items of one
    array with some keys in common.
    """
    if one is other or other is NOTHING or one == other:
        return one
    if one is NOTHING:
        return other
    kinds = one.kinds | other.kinds
    items = _either(one.items, other.items)  # always merged as items
    if "object" not in kinds:
        return ValueShape(kinds, items)
    others, fields = _either(one.others, other.others), dict(one.fields)
    for key, shape in other.fields.items():
        fields[key] = join_shapes(fields[key], shape, is_item) if key in fields else shape
    both = "object" in one.kinds and "object" in other.kinds
    required = one.required & other.required if both else one.required | other.required
    differ = both and one.fields.keys() != other.fields.keys() and not (is_item and required)
    if others is not None or differ or len(fields) > MAX_FIELDS:
        every = (*one.fields.values(), *other.fields.values())
        return ValueShape(kinds, items, others=join_items(chain((others or NOTHING,), every)))
    return ValueShape(kinds, items, fields, required)


def _either(one: ValueShape | None, other: ValueShape | None) -> ValueShape | None:
    return join_shapes(one, other, is_item=True) if one is not None and other is not None else one or other


def join_items(shapes: Iterable[ValueShape]) -> ValueShape:
    """Return the smallest shape that covers the items of an array, or the values of a map."""
    return reduce(partial(join_shapes, is_item=True), shapes, NOTHING)


@lru_cache(maxsize=1024)
def _all_names(*keys: str) -> bool:
    return all(map(is_name, keys))


def is_name(key: str) -> bool:
    """Return whether a key looks like a field name: a guess, because names and tokens overlap."""
    if len(key) > MAX_FIELD_NAME or not _NAME.fullmatch(key) or _DATA.search(key):
        return False
    # Random strings such as `dQw4w9WgXcQ` often switch between kinds of characters.
    words = _WORD.findall(key)
    letters = sum(map(len, words))
    return letters < 8 or letters >= (2.5 if letters < 16 else 3) * len(words)


def _inside(shape: ValueShape) -> list[ValueShape]:
    return [*shape.fields.values(), *(one for one in (shape.items, shape.others) if one is not None)]


def cut_to_depth(shape: ValueShape, levels: int) -> ValueShape:
    if levels == 0:
        return ValueShape(shape.kinds)
    items, others = (None if one is None else cut_to_depth(one, levels - 1) for one in (shape.items, shape.others))
    fields = {key: cut_to_depth(one, levels - 1) for key, one in shape.fields.items()}
    return ValueShape(shape.kinds, items, fields, shape.required, others)


def is_within_bounds(shape: ValueShape, levels: int = MAX_DEPTH) -> bool:
    """Return whether a shape, for example from a file, is within all bounds."""
    if len(shape.fields) > MAX_FIELDS or not _all_names(*shape.fields) or not shape.required <= shape.fields.keys():
        return False
    inside = _inside(shape)
    return not inside or (levels > 0 and all(is_within_bounds(one, levels - 1) for one in inside))


def shared_shape(shapes: Sequence[ValueShape], own: ValueShape | None = None, is_item: bool = False) -> ValueShape:
    """Return the smallest shape that covers all shapes, with the field names that occur in `own` or in two shapes.

    An object without any remaining name becomes a map.
    """
    whole = reduce(partial(join_shapes, is_item=is_item), shapes, NOTHING)
    items = others = None
    if whole.items is not None:
        items = shared_shape(_present(one.items for one in shapes), own and own.items, is_item=True)
    fields: dict[str, ValueShape] = {}
    for name in whole.fields:
        found, mine = _present(one.fields.get(name) for one in shapes), own and own.fields.get(name)
        if mine is not None or len(found) > 1:
            fields[name] = shared_shape(found, mine, is_item)
    if whole.others is not None or (whole.fields and not fields):
        others = shared_shape([_values(one) for one in shapes], own and _values(own), is_item=True)
    return ValueShape(whole.kinds, items, fields, whole.required & fields.keys(), others)


def _values(shape: ValueShape) -> ValueShape:
    """Return the shape that covers the values of an object."""
    return join_items((*_present((shape.others,)), *shape.fields.values()))


def _present(shapes: Iterable[ValueShape | None]) -> list[ValueShape]:
    return [one for one in shapes if one is not None]


# Learning from values; the result is shown as inferred, and never enforced

MAX_RESULTS = 20  # results of a tool that are inspected
MAX_SHAPE_PARTS = 300  # of one tool's shape; the deepest levels are dropped first
MAX_ALTERNATIVES = 3  # kinds of values in one place, apart from null; with more, the schema says nothing
ALIKE = 8  # an object with this many fields of one shape is a map

_KINDS: tuple[Kind, ...] = ("object", "array", "string", "integer", "number", "boolean", "null")


class _StoredShape(msgspec.Struct, frozen=True):
    """The serialised form in a state file."""

    results: Annotated[int, msgspec.Meta(ge=0)]
    levels: Annotated[int, msgspec.Meta(ge=1, le=MAX_DEPTH)]
    shape: ValueShape


class ObservedValues:
    """The inferred shape of one tool's values. Thread-safe."""

    def __init__(self) -> None:
        self._results = 0
        self._known, self._levels = NOTHING, MAX_DEPTH
        self._schema: Mapping[str, Any] | None = None
        self._lock = Lock()

    @property
    def results(self) -> int:
        """The number of inspected results."""
        return self._results

    @property
    def shape(self) -> ValueShape:
        return self._known

    @property
    def is_full(self) -> bool:
        return self.results >= MAX_RESULTS

    def learns_from(self, owner: str) -> bool:
        """Return whether another result of this owner would be inspected."""
        return not self.is_full

    def note(self, value: Any) -> bool:
        """Learn from a result. Return whether the schema has changed."""
        with self._lock:
            if self.is_full:
                return False
            self._results += 1
            joined = join_shapes(self._known, shape_of(value, self._levels))
            return joined != self._known and self._learn(joined)

    def _learn(self, shape: ValueShape) -> bool:
        # Levels are dropped permanently, so that the schema does not keep changing.
        level, total = [shape], 1
        for levels in range(self._levels):
            level = [inner for one in level for inner in _inside(one)]
            total += len(level)
            if total > MAX_SHAPE_PARTS:
                self._levels = levels
                break
        self._known = cut_to_depth(shape, self._levels)
        before, self._schema = self._schema, freeze(schema_of(self._known)) or None
        return before != self._schema

    def schema(self) -> Mapping[str, Any] | None:
        """Return a JSON Schema (draft 2020-12) that all inspected values match; None while nothing is known."""
        return self._schema

    def dump(self) -> dict[str, Any]:
        return cast(dict[str, Any], msgspec.to_builtins(_StoredShape(self.results, self._levels, self._known)))

    def add(self, data: Any) -> None:
        """Learn from dumped results of the same tool. Invalid data is ignored."""
        try:
            kept = msgspec.convert(data, _StoredShape)
        except (msgspec.ValidationError, RecursionError):
            return
        if is_within_bounds(kept.shape, kept.levels):
            with self._lock:
                self._results = max(self._results, kept.results)
                self._levels = min(self._levels, kept.levels)
                self._learn(join_shapes(self._known, kept.shape))


def schema_of(shape: ValueShape) -> dict[str, Any]:
    """Return a JSON Schema (draft 2020-12) of the shape; empty if nothing is known."""
    kinds = [kind for kind in _KINDS if kind in shape.kinds]
    if "number" in kinds and "integer" in kinds:
        kinds.remove("integer")
    if not kinds or len([kind for kind in kinds if kind != "null"]) > MAX_ALTERNATIVES:
        return {}
    schema: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
    if "object" in kinds:
        schema |= _members(shape)
    if shape.items is not None and (items := schema_of(shape.items)):
        schema["items"] = items
    return schema


def _members(shape: ValueShape) -> dict[str, Any]:
    others = join_items(shape.fields.values()) if _is_map(shape) else shape.others
    if others is not None:
        values = schema_of(others)
        return {"additionalProperties": values} if values else {}
    members: dict[str, Any] = {}
    if shape.fields:
        members["properties"] = {name: schema_of(one) for name, one in shape.fields.items()}
    if shape.required:
        members["required"] = [name for name in shape.fields if name in shape.required]
    return members


def _is_map(shape: ValueShape) -> bool:
    """Return whether the fields look like map entries: many, of one kind, and either all objects or some optional."""
    fields = [*shape.fields.values()]
    if len(fields) < ALIKE or any(one.kinds != fields[0].kinds for one in fields):
        return False
    if "object" not in fields[0].kinds:
        return len(shape.required) * 2 < len(fields)
    inner = {name for one in fields for name in one.fields}
    return sum(len(one.fields) for one in fields) * 2 > len(inner) * len(fields)
