"""Infers the output schema of a tool that declares none from the values that it has returned.

The inferred schema is shown in help texts and never checked. It holds types and field names, no values: a key that
could be data (an id, an e-mail address), or that another result doesn't have, makes a map of its object, of which only
the type of the values is kept. The items of an array may lack some fields. All of it is bounded: how deep, how wide and
how far a value is read.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial, reduce
from itertools import chain, islice
from threading import Lock
from typing import Annotated, Any, Literal, cast

import msgspec

from onetool.core.json_data import freeze
from onetool.core.text import lazy_pattern

MAX_DEPTH = 6  # of objects and arrays inside of each other
MAX_FIELDS = 20  # of one object; with more keys than that it is a map
MAX_ITEMS = 20  # of one array, from its beginning
MAX_VALUE_PARTS = 1_000  # of one value
MAX_FIELD_NAME = 64  # characters

Kind = Literal["object", "array", "string", "integer", "number", "boolean", "null"]

_NAME = lazy_pattern(r"[@$]?[^\W\d][\w-]*")
_WORD = lazy_pattern(r"[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_a-zA-Z]+")
# Ids and tokens: many digits, a run of hex digits, digits among letters, more letters or consonants than words have.
_DATA = lazy_pattern(
    r"(?:\d\D*){4}|[0-9a-fA-F]{8}|\d[a-zA-Z].*\d[a-zA-Z]|[a-z]{21}|[A-Z]{21}"
    r"|(?=[a-z]*\d)[a-z\d]{16}|(?=[A-Z]*\d)[A-Z\d]{16}"
    r"|[bcdfghjklmnpqrstvwxz]{6}|[BCDFGHJKLMNPQRSTVWXZ]{8}"
)


class ValueShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which kinds of values there were. One of no kind at all says nothing."""

    kinds: frozenset[Kind] = frozenset()
    items: "ValueShape | None" = None  # of all arrays; None: nothing is known of any
    fields: dict[str, "ValueShape"] = {}  # of all objects
    required: frozenset[str] = frozenset()  # the fields that every object had
    others: "ValueShape | None" = None  # the values of all objects, once one of them was a map


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
    """Return the shape of one plain value, down to so many levels. `left` counts the parts that are still looked at."""
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
    """Return the smallest shape that covers both. Objects with different keys are maps, unless they are items of one
    array that have some keys in common.
    """
    if one is other or other is NOTHING or one == other:
        return one
    if one is NOTHING:
        return other
    kinds = one.kinds | other.kinds
    items = _either(one.items, other.items)  # which are items in any case
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
    """Return whether a key is what people call a field: a guess, because names and tokens overlap."""
    if len(key) > MAX_FIELD_NAME or not _NAME.fullmatch(key) or _DATA.search(key):
        return False
    # `dQw4w9WgXcQ`: what is made by chance changes its kind of character all the time.
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
    """Return whether a shape, which may come from a file, is within all bounds."""
    if len(shape.fields) > MAX_FIELDS or not _all_names(*shape.fields) or not shape.required <= shape.fields.keys():
        return False
    inside = _inside(shape)
    return not inside or (levels > 0 and all(is_within_bounds(one, levels - 1) for one in inside))


def shared_shape(shapes: Sequence[ValueShape], own: ValueShape | None = None, is_item: bool = False) -> ValueShape:
    """Return the smallest shape that covers all of these, with the field names that `own` or two of them have.

    An object of which no name is left is a map.
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
    """Return the shape of the values of all objects."""
    return join_items((*_present((shape.others,)), *shape.fields.values()))


def _present(shapes: Iterable[ValueShape | None]) -> list[ValueShape]:
    return [one for one in shapes if one is not None]


# Learning from values; the result is shown as inferred, and never enforced

MAX_RESULTS = 20  # that are looked at
MAX_SHAPE_PARTS = 300  # of what is known of one tool; deeper levels go first
MAX_ALTERNATIVES = 3  # kinds of values in one place, apart from null; with more than that nothing is worth saying
ALIKE = 8  # fields of one shape that make a map

_KINDS: tuple[Kind, ...] = ("object", "array", "string", "integer", "number", "boolean", "null")


class _StoredShape(msgspec.Struct, frozen=True):
    """What a state file holds of it."""

    results: Annotated[int, msgspec.Meta(ge=0)]
    levels: Annotated[int, msgspec.Meta(ge=1, le=MAX_DEPTH)]
    shape: ValueShape


class ObservedValues:
    """What was learnt of one tool's values. Any thread may tell it of a result."""

    def __init__(self) -> None:
        self._results = 0
        self._known, self._levels = NOTHING, MAX_DEPTH
        self._schema: Mapping[str, Any] | None = None
        self._lock = Lock()

    @property
    def results(self) -> int:
        """The number of results that were looked at."""
        return self._results

    @property
    def shape(self) -> ValueShape:
        return self._known

    @property
    def is_full(self) -> bool:
        return self.results >= MAX_RESULTS

    def learns_from(self, owner: str) -> bool:
        """Return whether a further result is looked at, if it is that of this owner."""
        return not self.is_full

    def note(self, value: Any) -> bool:
        """Learn from one of the first results. Return whether the schema has changed."""
        with self._lock:
            if self.is_full:
                return False
            self._results += 1
            joined = join_shapes(self._known, shape_of(value, self._levels))
            return joined != self._known and self._learn(joined)

    def _learn(self, shape: ValueShape) -> bool:
        # Levels go for good: else what is known would come and go.
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
        """Return a JSON Schema (draft 2020-12) that every value looked at fits; None while there is nothing to say."""
        return self._schema

    def dump(self) -> dict[str, Any]:
        return cast(dict[str, Any], msgspec.to_builtins(_StoredShape(self.results, self._levels, self._known)))

    def add(self, data: Any) -> None:
        """Learn what was dumped of other results of the same tool. Anything else is ignored."""
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
    """Return a JSON Schema (draft 2020-12) of the shape; empty if there is nothing to say."""
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
    """Return whether the fields look like entries: many, alike, and either they come and go, or each is an object."""
    fields = [*shape.fields.values()]
    if len(fields) < ALIKE or any(one.kinds != fields[0].kinds for one in fields):
        return False
    if "object" not in fields[0].kinds:
        return len(shape.required) * 2 < len(fields)
    inner = {name for one in fields for name in one.fields}
    return sum(len(one.fields) for one in fields) * 2 > len(inner) * len(fields)
