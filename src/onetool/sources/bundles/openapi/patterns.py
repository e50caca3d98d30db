"""Patterns that the validator does not take: too large for its engine, or none at all. They go, the schema stays."""

from functools import lru_cache
from typing import Any

from onetool.core.errors import SchemaError
from onetool.core.schema import CompiledSchema
from onetool.core.schema_parts import changed


def without_bad(schema: Any, dropped: dict[str, None]) -> Any:
    """The schema without them; `dropped` is told which."""
    if not isinstance(schema, dict):
        return schema
    found = changed(schema, lambda one: without_bad(one, dropped))
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
