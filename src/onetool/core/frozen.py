"""JSON data that nobody can change: a tool's schemas are shared by every reader of a snapshot.

Subclasses of dict and list rather than proxies, so that every serialiser and validator takes them as they are.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NoReturn, Self, cast


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError("a tool's definition can't be changed; make a copy: copy.deepcopy(value)")


class FrozenDict(dict[str, Any]):
    __setitem__ = __delitem__ = __ior__ = _refuse  # pyright: ignore[reportAssignmentType]
    update = setdefault = pop = popitem = clear = _refuse  # pyright: ignore[reportAssignmentType]

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: deepcopy(value, memo) for key, value in self.items()}

    def copy(self) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (deepcopy(self),)


class FrozenList(list[Any]):
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse  # pyright: ignore[reportAssignmentType]
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse  # pyright: ignore[reportAssignmentType]

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [deepcopy(value, memo) for value in self]

    def copy(self) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (deepcopy(self),)


_LEAVES = frozenset((str, bool, int, float, type(None), FrozenDict, FrozenList))


def freeze(value: Any) -> Any:
    """The same data, all the way down, in containers that refuse to change. What is frozen is not walked again."""
    kind = cast(type[Any], type(value))
    if kind in _LEAVES:  # most of a schema, and quicker to tell than a mapping
        return value
    if kind is dict:
        items = cast(dict[str, Any], value).items()
        return FrozenDict({key: item if type(item) in _LEAVES else freeze(item) for key, item in items})
    if isinstance(value, FrozenDict | FrozenList):
        return value
    if isinstance(value, Mapping):
        items = cast(Mapping[str, Any], value).items()
        return FrozenDict({key: freeze(item) for key, item in items})
    if isinstance(value, list | tuple):
        return FrozenList([freeze(item) for item in cast(list[Any], value)])
    return value
