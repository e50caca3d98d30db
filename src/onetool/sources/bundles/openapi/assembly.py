"""Assemble the schema of arguments with its definitions, within limits of size and validation cost.

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
from onetool.core.schema import CompiledSchema
from onetool.core.schema_keywords import map_subschemas
from onetool.sources.bundles.openapi.schemas import Definition, outline, shallow
from onetool.sources.bundles.validation import schema_cost


def without_bad(schema: Any, dropped: dict[str, None]) -> Any:
    """Return the schema without unusable patterns, which are added to `dropped`."""
    if not isinstance(schema, dict):
        return schema
    result = map_subschemas(schema, lambda inner: without_bad(inner, dropped))
    if isinstance(pattern := result.get("pattern"), str) and not _is_valid_pattern(pattern):
        dropped[result.pop("pattern")] = None
    if isinstance(patterns := result.get("patternProperties"), dict):
        bad = [pattern for pattern in patterns if not _is_valid_pattern(pattern)]
        dropped.update(dict.fromkeys(bad))
        result["patternProperties"] = {key: inner for key, inner in patterns.items() if key not in bad}
    return result


@lru_cache(maxsize=1000)
def _is_valid_pattern(pattern: str) -> bool:
    try:
        CompiledSchema({"properties": {"x": {"pattern": pattern}}})
    except SchemaError:
        return False
    return True


# Assembling a schema with its definitions

MAX_BYTES = 64 * 1024
REACHES = (10, 4, 3, 2, 1, 0)  # numbers of references followed from the root
LEVELS = (4, 3, 2, 1)
MAX_DEFINITIONS = 500
INLINE = 3  # levels of inlined definitions

_INLINE_SIBLINGS = frozenset(("$ref", "description", "default"))


class Assembled(NamedTuple):
    schema: dict[str, Any]
    outline: str | None = None  # why the schema is only an outline; None: complete
    dropped: tuple[str, ...] = ()  # patterns that are left out


class SchemaAssembler:
    """An assembler of schemas with the definitions of one document."""

    def __init__(self, definitions: Mapping[str, Definition]) -> None:
        self._definitions = definitions
        self._sizes: dict[str, int] = {}

    def assemble(self, root: Definition) -> Assembled | None:
        """Return the best schema within the limits, or None if not even its outline is accepted."""
        own = _size(root.schema)
        before: frozenset[str] | None = None
        why: str | None = None  # keep the first reason: later attempts are partial
        for reach in REACHES:
            near, is_complete = self._near(root, reach)
            if not is_complete:
                why = why or f"it continues after {reach} references, or has more than {MAX_DEFINITIONS} definitions"
            if near != before:
                size = own + sum(self._size(name) for name in near)
                if size > MAX_BYTES:
                    why = why or f"it is too large ({size // 1024:,} KiB; the limit is {MAX_BYTES // 1024} KiB)"
                else:
                    schema, dropped = self._with_definitions(root, near), dict[str, None]()
                    refused = _refused(schema)
                    if refused is not None:
                        schema = without_bad(schema, dropped)
                        refused = _refused(schema) if dropped else refused
                    if refused is None:
                        return Assembled(schema, why, tuple(dropped))
                    why = why or refused
            before = near
        for levels in LEVELS:
            schema = shallow(root.schema, levels)
            if _size(schema) <= MAX_BYTES and _refused(schema) is None:
                return Assembled(schema, why)
        return None

    def _near(self, root: Definition, reach: int) -> tuple[frozenset[str], bool]:
        """Return the definitions within `reach` references, and whether these are all."""
        near: set[str] = set()
        edge = set(root.uses)
        for _ in range(reach):
            near |= edge
            if not edge or len(near) > MAX_DEFINITIONS:
                break
            edge = {used for name in edge for used in self._definitions[name].uses} - near
        return frozenset(near), not edge

    def _size(self, name: str) -> int:
        if name not in self._sizes:
            self._sizes[name] = _size(self._definitions[name].schema)
        return self._sizes[name]

    def _with_definitions(self, root: Definition, near: frozenset[str]) -> dict[str, Any]:
        uses = Counter(root.uses)
        for name in near:
            uses.update(self._definitions[name].uses)
        inliner = _Inliner(self._definitions, near, uses)
        schema = inliner.inline(root.schema, 0)
        kept: dict[str, Any] = {}
        while pending := [name for name in inliner.needed if name not in kept]:
            for name in pending:
                kept[name] = None
                kept[name] = inliner.inline(self._definitions[name].schema, 0)
        return {**schema, "$defs": kept} if kept else schema


class _Inliner:
    """A transformation that inlines definitions used once, and drops definitions that are too far away."""

    def __init__(self, definitions: Mapping[str, Definition], near: frozenset[str], uses: Counter[str]) -> None:
        self._definitions = definitions
        self._near = near
        self._uses = uses
        self.needed: dict[str, None] = {}

    def inline(self, schema: Any, inlined: int) -> Any:
        if not isinstance(schema, dict):
            return schema
        ref = schema.get("$ref")
        if not isinstance(ref, str):
            return map_subschemas(schema, lambda inner: self.inline(inner, inlined))
        name = ref.removeprefix("#/$defs/")
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        if name not in self._near:
            return {**outline(self._definitions[name].schema), **beside}
        target = self._definitions[name].schema
        is_allowed = isinstance(target, dict) and inlined < INLINE and "$ref" not in target
        # A plain string or number is shorter than a reference.
        kind = target.get("type") if is_allowed else None
        is_simple = isinstance(kind, str) and kind not in ("object", "array") and _size(target) < 200
        if is_allowed and (self._uses[name] == 1 or is_simple) and schema.keys() <= _INLINE_SIBLINGS:
            return {**self.inline(target, inlined + 1), **beside}
        self.needed[name] = None
        return schema


def _refused(schema: dict[str, Any]) -> str | None:
    """Return why a schema can't be used, or None."""
    try:
        schema_cost(schema, closed=True)
    except SchemaError as error:
        return str(error)
    return None


def _size(schema: Any) -> int:
    return len(msgspec.json.encode(schema))
