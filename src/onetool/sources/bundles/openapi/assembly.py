"""Assemble a schema with its definitions, within limits of size and validation cost.

Definitions that are used once are inlined; others stay in `$defs`. If the schema is too large or too costly, the
references farthest from the root are cut first, then the deepest levels. The cut parts accept anything, so that the
schema is only less specific. Patterns that the validator rejects are left out.
"""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from onetool.core.errors import SchemaError
from onetool.core.schema import CHEAP, CompiledSchema
from onetool.core.schema_keywords import map_subschemas
from onetool.sources.bundles.openapi.schemas import Definition
from onetool.sources.bundles.validation import schema_cost


def without_bad(schema: Any, dropped: dict[str, None]) -> Any:
    """Return the schema without unusable parts; their reasons are added to `dropped`."""
    if not isinstance(schema, dict):
        return schema
    found = map_subschemas(schema, lambda one: without_bad(one, dropped))
    if isinstance(pattern := found.get("pattern"), str) and not _is_taken(pattern):
        dropped[found.pop("pattern")] = None
    if isinstance(named := found.get("patternProperties"), dict):
        bad = [one for one in named if not _is_taken(one)]
        dropped.update(dict.fromkeys(bad))
        found["patternProperties"] = {key: one for key, one in named.items() if key not in bad}
    return found


@lru_cache(maxsize=1000)
def _is_taken(pattern: str) -> bool:
    try:
        CompiledSchema({"properties": {"x": {"pattern": pattern}}})
    except SchemaError:
        return False
    return True


# Assembling a schema with its definitions


MAX_INPUT_BYTES = 64 * 1024
MAX_OUTPUT_BYTES = 16 * 1024
REACHES = (10, 4, 3, 2, 1, 0)  # numbers of references followed from the root
LEVELS = (4, 3, 2, 1)
MAX_DEFINITIONS = 500
INLINE = 3  # levels of inlined definitions

_SAID_BESIDE = frozenset(("$ref", "description", "default"))


class Assembled(NamedTuple):
    schema: dict[str, Any]
    outline: str | None = None  # why the schema is only an outline; None: complete
    dropped: tuple[str, ...] = ()  # patterns that are left out


class SchemaAssembler:
    """An assembler of schemas with the definitions of one document."""

    def __init__(self, definitions: Mapping[str, Definition]) -> None:
        self._definitions = definitions
        self._sizes: dict[str, int] = {}
        self._done: dict[tuple[bool, bytes], str | None] = {}

    def input(self, root: Definition) -> Assembled | None:
        """Assemble a schema for arguments, or return None if not even its outline is accepted."""
        return self._best(root, MAX_INPUT_BYTES, is_input=True)

    def output(self, root: Definition) -> Assembled | None:
        """Assemble a schema for a value. The schema must be cheap, because a costly one would refuse large values."""
        return self._best(root, MAX_OUTPUT_BYTES, is_input=False)

    def _best(self, root: Definition, most: int, is_input: bool) -> Assembled | None:
        own = _size(root.schema)
        before: frozenset[str] | None = None
        why: str | None = None  # keep the first reason: later attempts are partial
        for reach in REACHES:
            near, whole = self._near(root, reach)
            if not whole:
                why = why or f"it continues after {reach} references, or has more than {MAX_DEFINITIONS} definitions"
            if near != before:
                size = own + sum(self._size(name) for name in near)
                if size > most:
                    why = why or f"it is too large ({size // 1024:,} KiB; the limit is {most // 1024} KiB)"
                else:
                    schema, refused, dropped = self._taken(self._whole(root, near), is_input)
                    if refused is None:
                        return Assembled(schema, why, dropped)
                    why = why or refused
            before = near
        for levels in LEVELS:
            schema = _shallow(root.schema, levels)
            if _size(schema) <= most and self._refused(schema, is_input) is None:
                return Assembled(schema, why)
        return None

    def _taken(self, schema: dict[str, Any], is_input: bool) -> tuple[dict[str, Any], str | None, tuple[str, ...]]:
        """Return the schema, if needed without unusable patterns, the reason if it can't be used, and the patterns."""
        refused = self._refused(schema, is_input)
        if refused is None:
            return schema, None, ()
        dropped: dict[str, None] = {}
        plain = without_bad(schema, dropped)
        if dropped:
            refused = self._refused(plain, is_input)
        return plain, refused, tuple(dropped)

    def _refused(self, schema: dict[str, Any], is_input: bool) -> str | None:
        """Return why a schema can't be used, or None."""
        key = is_input, msgspec.json.encode(schema)
        if key not in self._done:
            try:
                is_cheap = schema_cost(schema, closed=is_input) <= CHEAP
                self._done[key] = None if is_input or is_cheap else "it is too costly to check"
            except SchemaError as error:
                self._done[key] = str(error)
        return self._done[key]

    def _near(self, root: Definition, reach: int) -> tuple[frozenset[str], bool]:
        """Return the definitions within so many references, and whether these are all."""
        found: set[str] = set()
        edge = set(root.uses)
        for _ in range(reach):
            found |= edge
            if not edge or len(found) > MAX_DEFINITIONS:
                break
            edge = {name for one in edge for name in self._definitions[one].uses} - found
        return frozenset(found), not edge

    def _size(self, name: str) -> int:
        if name not in self._sizes:
            self._sizes[name] = _size(self._definitions[name].schema)
        return self._sizes[name]

    def _whole(self, root: Definition, near: frozenset[str]) -> dict[str, Any]:
        uses = Counter(root.uses)
        for name in near:
            uses.update(self._definitions[name].uses)
        maker = _Inliner(self._definitions, near, uses)
        schema = maker.placed(root.schema, 0)
        kept: dict[str, Any] = {}
        while waiting := [name for name in maker.wanted if name not in kept]:
            for name in waiting:
                kept[name] = None
                kept[name] = maker.placed(self._definitions[name].schema, 0)
        return {**schema, "$defs": kept} if kept else schema


class _Inliner:
    """A transformation that inlines definitions used once, and drops definitions that are too far away."""

    def __init__(self, definitions: Mapping[str, Definition], near: frozenset[str], uses: Counter[str]) -> None:
        self._definitions = definitions
        self._near = near
        self._uses = uses
        self.wanted: dict[str, None] = {}

    def placed(self, schema: Any, inlined: int) -> Any:
        if not isinstance(schema, dict):
            return schema
        ref = schema.get("$ref")
        if not isinstance(ref, str):
            return map_subschemas(schema, lambda one: self.placed(one, inlined))
        name = ref.removeprefix("#/$defs/")
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        if name not in self._near:
            return {**_outline(self._definitions[name].schema), **beside}
        target = self._definitions[name].schema
        is_allowed = isinstance(target, dict) and inlined < INLINE and "$ref" not in target
        if is_allowed and (self._uses[name] == 1 or _is_simple(target)) and schema.keys() <= _SAID_BESIDE:
            return {**self.placed(target, inlined + 1), **beside}
        self.wanted[name] = None
        return schema


def _is_simple(schema: dict[str, Any]) -> bool:
    """Return whether the schema is a plain text or number, which is shorter than a reference."""
    return isinstance(schema.get("type"), str) and schema["type"] not in ("object", "array") and _size(schema) < 200


def _outline(schema: Any) -> dict[str, Any]:
    """Return the schema's own type without its members."""
    if not isinstance(schema, dict):
        return {}
    return {key: schema[key] for key in ("type", "description") if key in schema}


def _shallow(schema: Any, levels: int) -> Any:
    if not isinstance(schema, dict):
        return schema
    if levels == 0 or "$ref" in schema:
        return _outline(schema)
    small = {key: value for key, value in schema.items() if key not in ("enum", "pattern", "examples", "default")}
    return map_subschemas(small, lambda one: _shallow(one, levels - 1))


def _size(schema: Any) -> int:
    return len(msgspec.json.encode(schema))
