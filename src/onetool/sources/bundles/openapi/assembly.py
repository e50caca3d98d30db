"""Assemble the schema of arguments with its definitions, within limits of size and validation cost.

If the schema is too large or too costly, the references farthest from the root are cut first, then the deepest levels.
The cut parts accept anything, so that the schema is only less specific. Patterns that the validator rejects are left
out.
"""

from functools import lru_cache
from typing import Any, NamedTuple

from onetool.core.errors import SchemaError
from onetool.core.schema import CompiledSchema
from onetool.core.schema_keywords import map_subschemas
from onetool.sources.bundles.openapi.schemas import Definition, Schemas, shallow, size_of, with_definitions
from onetool.sources.bundles.validation import schema_cost

MAX_BYTES = 64 * 1024
REACHES = (10, 4, 3, 2, 1, 0)  # numbers of references followed from the root
LEVELS = (4, 3, 2, 1)


class Assembled(NamedTuple):
    schema: dict[str, Any]
    outline: str | None = None  # why the schema is only an outline; None: complete
    dropped: tuple[str, ...] = ()  # patterns that are left out


def assemble(root: Definition, schemas: Schemas) -> Assembled | None:
    """Return the best schema within the limits, or None if not even its outline is accepted."""
    why: str | None = None  # keep the first reason: later attempts are partial
    for reach in REACHES if root.size <= MAX_BYTES else ():
        schema, cut = with_definitions(root, schemas.definition, MAX_BYTES, reach)
        why, dropped = why or cut, dict[str, None]()
        refused = _refused(schema)
        if refused is not None:
            schema = without_bad(schema, dropped)
            refused = _refused(schema) if dropped else refused
        if refused is None:
            return Assembled(schema, why, tuple(dropped))
        why = why or refused
    why = why or f"it is too large ({root.size // 1024:,} KiB; the limit is {MAX_BYTES // 1024} KiB)"
    for levels in LEVELS:
        schema = shallow(root.schema, levels)
        if size_of(schema) <= MAX_BYTES and _refused(schema) is None:
            return Assembled(schema, why)
    return None


def _refused(schema: dict[str, Any]) -> str | None:
    """Return why a schema can't be used, or None."""
    try:
        schema_cost(schema, closed=True)
    except SchemaError as error:
        return str(error)
    return None


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
