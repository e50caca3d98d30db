"""What a shape would have taken at a place where something else stands: for the words about a mistake, nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import inspect

from onetool.core.failure import cut
from onetool.core.nearest import did_you_mean

LONGEST = 60  # of a wrong value in a message


def unknown_key(shape: type, data: Any, path: Sequence[str], key: str) -> str:
    """`path` leads to the object that has the key."""
    known = [name for kind in _structs(_at(shape, data, path)[0]) for name in _keys(kind)]
    near = did_you_mean(key, known) or (f"there are {', '.join(known)}" if known else None)
    return f"there is no such key; {near}" if near else "there is no such key"


def wrong_value(shape: type, data: Any, path: Sequence[str]) -> str | None:
    """Of a value that is none of those that are possible; None where there is no list of them."""
    kinds, value = _at(shape, data, path)
    values = [str(one) for kind in kinds if isinstance(kind, inspect.LiteralType) for one in kind.values]
    if path and not values:  # or it says which of several shapes the object around it has
        around = _structs(_at(shape, data, path[:-1])[0])
        values = [str(kind.tag) for kind in around if kind.tag_field == path[-1]]
    if not values:
        return None
    near = did_you_mean(value, values) if isinstance(value, str) else None
    told = f"{cut(repr(value), LONGEST)} is none of {', '.join(values)}"
    return f"{told}; {near}" if near else told


def _keys(kind: inspect.StructType) -> Iterator[str]:
    if kind.tag_field is not None:
        yield kind.tag_field
    yield from (field.encode_name for field in kind.fields)


def _at(shape: type, data: Any, path: Sequence[str]) -> tuple[list[inspect.Type], Any]:
    """The kinds that are possible at a place, and what stands there."""
    kinds = _kinds(inspect.type_info(shape), data)
    for step in path:
        data = _below(data, step)
        kinds = [one for kind in kinds for inner in _inner(kind, step) for one in _kinds(inner, data)]
    return kinds, data


def _kinds(kind: inspect.Type, data: Any) -> list[inspect.Type]:
    """Those that it stands for; where a tag says which one it is, that one alone."""
    if isinstance(kind, inspect.Metadata):
        return _kinds(kind.type, data)
    if not isinstance(kind, inspect.UnionType):
        return [kind]
    found = [one for each in kind.types for one in _kinds(each, data)]
    said: list[inspect.Type] = [one for one in _structs(found) if _says(data, one)]
    return said or found


def _structs(kinds: list[inspect.Type]) -> list[inspect.StructType]:
    return [kind for kind in kinds if isinstance(kind, inspect.StructType)]


def _says(data: Any, kind: inspect.StructType) -> bool:
    return isinstance(data, Mapping) and kind.tag is not None and data.get(kind.tag_field) == kind.tag


def _inner(kind: inspect.Type, step: str) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        yield from (field.type for field in kind.fields if field.encode_name == step)
    elif isinstance(kind, inspect.DictType):
        yield kind.value_type
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
        yield kind.item_type


def _below(data: Any, step: str) -> Any:
    if isinstance(data, Mapping):
        return data.get(step)
    if isinstance(data, Sequence) and not isinstance(data, str) and step.isdigit() and int(step) < len(data):
        return data[int(step)]
    return None
