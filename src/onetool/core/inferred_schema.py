"""Infers what a tool without a declared output schema returns, from the last value that a caller got from it.

The inferred schema is shown in help texts and never enforced. It contains types and field names, but no values, and
only the names that look like identifiers: an object with other keys, or with many, is a map.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import islice
from time import monotonic
from typing import Any, cast

from onetool.core.json_data import freeze
from onetool.core.principal import lasting_owner
from onetool.core.text import lazy_pattern

LEVELS = 2  # of objects whose fields are named
MAX_FIELDS = 20  # of one object; an object with more keys is a map
MAX_ITEMS = 20  # inspected at the start of an array
MAX_PARTS = 1_000  # of one value
MAX_CALLERS = 20  # of one tool; the first one is forgotten
PAUSE_S = 5.0  # between two results of one caller that are inspected
MAX_FIELD_NAME = 64  # characters

Schema = dict[str, Any]

_NAME = lazy_pattern(r"[@$]?[^\W\d][\w-]*")
_DATA = lazy_pattern(r"(?:\d\D*){4}|[0-9a-fA-F]{8}")  # an ID
_KINDS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_of(value: Any) -> Schema:
    """Return a JSON Schema (draft 2020-12) of one plain value; empty if nothing is known."""
    return _schema_of(value, LEVELS, [MAX_PARTS])


def _schema_of(value: Any, levels: int, left: list[int]) -> Schema:
    if kind := _KINDS.get(type(value)):
        return {"type": kind}
    left[0] -= 1
    if left[0] <= 0:
        return {}
    if isinstance(value, list | tuple):
        items = joined(_schema_of(one, levels, left) for one in cast(list[Any], value)[:MAX_ITEMS])
        return array_of(items)
    if not isinstance(value, dict):
        return {}
    members = cast(dict[str, Any], value)
    if levels == 0:
        return {"type": "object"}
    fields = {key: _schema_of(one, levels - 1, left) for key, one in islice(members.items(), MAX_FIELDS)}
    return object_of(fields) if len(members) == len(fields) else _map_of(fields.values())


def array_of(items: Schema) -> Schema:
    return {"type": "array", "items": items} if items else {"type": "array"}


def object_of(fields: Schema, required: Iterable[str] | None = None) -> Schema:
    """Return the schema of an object with these fields: a map, if their names are data."""
    if len(fields) > MAX_FIELDS or not all(map(is_name, fields)):
        return _map_of(fields.values())
    needed = [*(fields if required is None else required)]
    schema: Schema = {"type": "object", "properties": fields} if fields else {"type": "object"}
    return {**schema, "required": needed} if needed else schema


def _map_of(values: Iterable[Schema]) -> Schema:
    inner = joined(values)
    return {"type": "object", "additionalProperties": inner} if inner else {"type": "object"}


def is_name(key: str) -> bool:
    """Return whether a key looks like a field name."""
    return len(key) <= MAX_FIELD_NAME and bool(_NAME.fullmatch(key)) and not _DATA.search(key)


def joined(schemas: Iterable[Schema]) -> Schema:
    """Return the schema that covers all these values. Objects without a common field become a map."""
    return reduce(_join, schemas, {})


def _join(one: Schema, other: Schema) -> Schema:
    if not one or not other or one == other:
        return one or other
    kinds = [*dict.fromkeys((*_kinds(one), *_kinds(other)))]
    if "number" in kinds and "integer" in kinds:
        kinds.remove("integer")
    schema: Schema = {"type": kinds[0] if len(kinds) == 1 else kinds}
    if "items" in one or "items" in other:
        schema["items"] = _join(one.get("items", {}), other.get("items", {}))
    objects = [part for part in (one, other) if "object" in _kinds(part)]
    if not objects:
        return schema
    fields: Schema = {}
    for part in objects:
        for key, inner in part.get("properties", {}).items():
            fields[key] = _join(fields.get(key, {}), inner)
    shared = set(objects[0].get("required", ())).intersection(*(part.get("required", ()) for part in objects))
    others = [part["additionalProperties"] for part in objects if "additionalProperties" in part]
    if others or (len(objects) > 1 and not shared):
        return {**_map_of([*others, *fields.values()]), **schema}
    return {**object_of(fields, [key for key in fields if key in shared]), **schema}


def _kinds(schema: Schema) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else kinds


class LastResults:
    """The schemas of the last results that each caller of a tool has got. A caller sees only their own."""

    def __init__(self) -> None:
        self._schemas: dict[str, Mapping[str, Any] | None] = {}
        self._due: dict[str, float] = {}  # when the next result of an owner is inspected

    def learns_from(self, owner: str) -> bool:
        """Return whether a result of this owner would be inspected now."""
        return monotonic() >= self._due.get(owner, 0.0)

    def note(self, owner: str, value: Any) -> None:
        """Remember the types of a result that this owner got."""
        self._due[owner] = monotonic() + PAUSE_S
        if owner not in self._schemas and len(self._schemas) >= MAX_CALLERS:
            first = next(iter(self._schemas))
            del self._schemas[first], self._due[first]
        self._schemas[owner] = freeze(schema_of(value)) or None

    def schema(self) -> Mapping[str, Any] | None:
        """Return the schema for the current caller; None while nothing is known."""
        return self._schemas.get(lasting_owner())
