"""The shape of plain values: which types stood where, under which names, and never a value.

Shapes are joined: the shape of two values is the least one that both have, in whatever order they came. All of it is
bounded: how deep, how wide and how far a value is looked into. What lies beyond was not looked at, and says nothing.

Keys are shown to others, so they must be names of fields. One key that could be data (an id, an e-mail address) makes
a map of its object: of a map only the shape of its values is known.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache, reduce
from itertools import chain, islice
from typing import Any, Literal, cast

import msgspec

LEVELS = 6  # of objects and arrays inside of each other
FIELDS = 64  # of one object; with more keys than that it is a map
ITEMS = 20  # of one array, from its beginning
PARTS = 1_000  # of one value
LONGEST_NAME = 40

Kind = Literal["object", "array", "string", "integer", "number", "boolean", "null"]

_NAME = re.compile(r"[@$]?[^\W\d][\w-]*")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_a-zA-Z]+")
# Ids and tokens: many digits, a run of hex digits, digits among letters, more letters or consonants than words have.
_DATA = re.compile(
    r"(?:\d\D*){4}|[0-9a-fA-F]{8}|\d[a-zA-Z].*\d[a-zA-Z]|[a-z]{21}|[A-Z]{21}"
    r"|(?=[a-z]*\d)[a-z\d]{16}|(?=[A-Z]*\d)[A-Z\d]{16}"
    r"|[bcdfghjklmnpqrstvwxz]{6}|[BCDFGHJKLMNPQRSTVWXZ]{8}"
)


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which kinds of values there were. One of no kind at all says nothing."""

    kinds: frozenset[Kind] = frozenset()
    items: "Shape | None" = None  # of all arrays; None: nothing is known of any
    fields: dict[str, "Shape"] = {}  # of all objects
    required: frozenset[str] = frozenset()  # the fields that every object had
    others: "Shape | None" = None  # the values of all objects, once one of them was a map


NOTHING = Shape()
_SCALARS: dict[Any, Shape] = {
    str: Shape(frozenset({"string"})),
    int: Shape(frozenset({"integer"})),
    float: Shape(frozenset({"number"})),
    bool: Shape(frozenset({"boolean"})),
    type(None): Shape(frozenset({"null"})),
}
_ARRAY: frozenset[Kind] = frozenset({"array"})
_OBJECT: frozenset[Kind] = frozenset({"object"})


def shape_of(value: Any, levels: int = LEVELS) -> Shape:
    """The shape of one plain value, so deep."""
    return _shape(value, levels, [PARTS])


def _shape(value: Any, levels: int, left: list[int]) -> Shape:
    scalar = _SCALARS.get(type(value))
    if scalar is not None:
        return scalar
    if left[0] <= 0:
        return NOTHING
    if isinstance(value, dict):
        return _object(cast(dict[str, Any], value), levels, left)
    return _array(cast(list[Any], value), levels, left) if isinstance(value, list | tuple) else NOTHING


def _array(values: list[Any] | tuple[Any, ...], levels: int, left: list[int]) -> Shape:
    if levels == 0 or not values:
        return Shape(_ARRAY)
    left[0] -= min(len(values), ITEMS)
    return Shape(_ARRAY, items=all_joined(_shape(value, levels - 1, left) for value in values[:ITEMS]))


def _object(values: dict[str, Any], levels: int, left: list[int]) -> Shape:
    if levels == 0:
        return Shape(_OBJECT)
    left[0] -= min(len(values), FIELDS)
    fields = {key: _shape(value, levels - 1, left) for key, value in islice(values.items(), FIELDS)}
    if len(values) <= FIELDS and _all_names(*fields):
        return Shape(_OBJECT, fields=fields, required=frozenset(fields))
    return Shape(_OBJECT, others=all_joined(fields.values()))


def joined(one: Shape, other: Shape) -> Shape:
    """The least shape that has both."""
    if one is other or other is NOTHING or one == other:
        return one
    if one is NOTHING:
        return other
    kinds = one.kinds | other.kinds
    items = _either(one.items, other.items)
    if "object" not in kinds:
        return Shape(kinds, items)
    fields, others = _together(one.fields, other.fields), _either(one.others, other.others)
    if others is not None or len(fields) > FIELDS:
        return Shape(kinds, items, others=all_joined(chain((others or NOTHING,), fields.values())))
    both = "object" in one.kinds and "object" in other.kinds
    return Shape(kinds, items, fields, one.required & other.required if both else one.required | other.required)


def _either(one: Shape | None, other: Shape | None) -> Shape | None:
    return joined(one, other) if one is not None and other is not None else one or other


def _together(one: Mapping[str, Shape], other: Mapping[str, Shape]) -> dict[str, Shape]:
    fields = dict(one)
    for key, shape in other.items():
        fields[key] = joined(fields[key], shape) if key in fields else shape
    return fields


def all_joined(shapes: Iterable[Shape]) -> Shape:
    return reduce(joined, shapes, NOTHING)


@lru_cache(maxsize=1024)
def _all_names(*keys: str) -> bool:
    return all(map(is_name, keys))


def is_name(key: str) -> bool:
    """Whether a key is what people call a field. A guess, where it is made of letters: names and tokens overlap."""
    if len(key) > LONGEST_NAME or not _NAME.fullmatch(key) or _DATA.search(key):
        return False
    # `dQw4w9WgXcQ`: what is made by chance changes its kind of character all the time.
    words = _WORD.findall(key)
    letters = sum(map(len, words))
    return letters < 8 or letters >= (2.5 if letters < 16 else 3) * len(words)


def levels_within(shape: Shape, most: int) -> int:
    """How many levels of it can be kept, if there may be so many shapes in all."""
    level, total = [shape], 1
    for levels in range(LEVELS):
        level = [inner for one in level for inner in _inside(one)]
        total += len(level)
        if total > most:
            return levels
    return LEVELS


def _inside(shape: Shape) -> list[Shape]:
    return [*shape.fields.values(), *(one for one in (shape.items, shape.others) if one is not None)]


def cut_to(shape: Shape, levels: int) -> Shape:
    """Without what is deeper than that."""
    if levels == 0:
        return Shape(shape.kinds)
    items, others = (None if one is None else cut_to(one, levels - 1) for one in (shape.items, shape.others))
    fields = {key: cut_to(one, levels - 1) for key, one in shape.fields.items()}
    return Shape(shape.kinds, items, fields, shape.required, others)


def is_sound(shape: Shape, levels: int = LEVELS) -> bool:
    """Whether it is within all bounds, as one that was made here; one that was read from a file need not be."""
    if len(shape.fields) > FIELDS or not _all_names(*shape.fields) or not shape.required <= shape.fields.keys():
        return False
    inside = _inside(shape)
    return not inside or (levels > 0 and all(is_sound(one, levels - 1) for one in inside))
