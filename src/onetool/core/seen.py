"""What the values of a tool have looked like, for a tool that does not say: told in help as inferred, never a check.

One holder for each tool: it learns from results, cheaply, and gives a JSON Schema of what it has seen. Neither that nor
what is kept of it contains any value; keys are there as far as they are names (see `shapes`).

The order of results does not matter, with two exceptions: once nothing new has come for a while, only one result in a
few is looked at; and a tool whose values vary beyond all bounds is known less deep from then on.
"""

from collections.abc import Mapping
from threading import Lock
from typing import Annotated, Any, Self, cast

import msgspec

from onetool.core.frozen import freeze
from onetool.core.shapes import (
    LEVELS,
    NOTHING,
    Kind,
    Shape,
    all_joined,
    cut_to,
    is_sound,
    joined,
    levels_within,
    shape_of,
)

STEADY = 20  # results in a row that brought nothing new: from then on
EVERY = 16  # only so many-th result is looked at
PARTS = 300  # of what is known of one tool; deeper levels go first
ARMS = 3  # kinds of values in one place, apart from null; with more than that nothing is worth saying
ALIKE = 8  # fields of one shape that make a map

_KINDS: tuple[Kind, ...] = ("object", "array", "string", "integer", "number", "boolean", "null")


class _Kept(msgspec.Struct, frozen=True):
    """What a state file holds of it."""

    results: Annotated[int, msgspec.Meta(ge=0)]
    levels: Annotated[int, msgspec.Meta(ge=1, le=LEVELS)]
    shape: Shape


class Seen:
    """What was learnt of one tool's values. Any thread may tell it of a result."""

    __slots__ = ("_known", "_levels", "_lock", "_schema", "_skipped", "_steady", "results")

    def __init__(self) -> None:
        self.results = 0  # that were looked at
        self._known, self._levels = NOTHING, LEVELS
        self._schema: Mapping[str, Any] | None = None
        self._steady = self._skipped = 0
        self._lock = Lock()

    def note(self, value: Any) -> bool:
        """Learn from one result. Whether that changed the schema."""
        if self._steady >= STEADY and self._skipped < EVERY - 1:
            self._skipped += 1
            return False
        self._skipped = 0
        self.results += 1
        brought = shape_of(value, self._levels)
        if joined(self._known, brought) == self._known:
            self._steady += 1
            return False
        with self._lock:
            return self._learn(joined(self._known, brought))

    def _learn(self, shape: Shape) -> bool:
        # Levels go for good: else what is known would come and go.
        self._levels = min(self._levels, levels_within(shape, PARTS))
        self._known, self._steady = cut_to(shape, self._levels), 0
        before, self._schema = self._schema, freeze(_schema(self._known)) or None
        return before != self._schema

    def schema(self) -> Mapping[str, Any] | None:
        """JSON Schema (draft 2020-12) that every value looked at fits; None while there is nothing to say."""
        return self._schema

    def dump(self) -> dict[str, Any]:
        """All of it as plain data."""
        return cast(dict[str, Any], msgspec.to_builtins(_Kept(self.results, self._levels, self._known)))

    @classmethod
    def load(cls, data: Any) -> Self:
        """What was dumped; empty where that is anything else."""
        seen = cls()
        try:
            kept = msgspec.convert(data, _Kept)
        except (msgspec.ValidationError, RecursionError):
            return seen
        if is_sound(kept.shape, kept.levels):
            seen.results, seen._levels = kept.results, kept.levels
            seen._learn(kept.shape)
        return seen


def _schema(shape: Shape) -> dict[str, Any]:
    kinds = [kind for kind in _KINDS if kind in shape.kinds]
    if "number" in kinds and "integer" in kinds:
        kinds.remove("integer")
    if not kinds or len([kind for kind in kinds if kind != "null"]) > ARMS:
        return {}
    schema: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
    if "object" in kinds:
        schema |= _members(shape)
    if shape.items is not None and (items := _schema(shape.items)):
        schema["items"] = items
    return schema


def _members(shape: Shape) -> dict[str, Any]:
    others = all_joined(shape.fields.values()) if _is_map(shape) else shape.others
    if others is not None:
        values = _schema(others)
        return {"additionalProperties": values} if values else {}
    members: dict[str, Any] = {}
    if shape.fields:
        members["properties"] = {name: _schema(one) for name, one in shape.fields.items()}
    if shape.required:
        members["required"] = [name for name in shape.fields if name in shape.required]
    return members


def _is_map(shape: Shape) -> bool:
    """Whether the fields look like entries: many that are alike, and either they come and go, or each is an object."""
    fields = [*shape.fields.values()]
    if len(fields) < ALIKE or any(one.kinds != fields[0].kinds for one in fields):
        return False
    if "object" not in fields[0].kinds:
        return len(shape.required) * 2 < len(fields)
    inner = {name for one in fields for name in one.fields}
    return sum(len(one.fields) for one in fields) * 2 > len(inner) * len(fields)
