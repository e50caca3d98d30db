"""Older spellings of JSON Schema, written as draft 2020-12 says them.

Real tools come with keywords of drafts 4 to 7 and no word about it. Only spellings that draft 2020-12 would refuse
or silently ignore are changed; everything else stays as it is.
"""

from collections.abc import Mapping
from typing import Any, cast

from onetool.core.schema_parts import changed


def upgrade(schema: Any) -> Any:
    """The same schema in today's words."""
    if not isinstance(schema, Mapping):
        return schema
    new = changed(cast(Mapping[str, Any], schema), upgrade)
    _tuple_items(new)
    _boolean_bounds(new)
    _dependencies(new)
    return new


def _tuple_items(schema: dict[str, Any]) -> None:
    """`items: [a, b]` with `additionalItems` (to draft 2019-09) is `prefixItems` with `items`."""
    if isinstance(schema.get("items"), list | tuple):
        schema["prefixItems"] = [upgrade(item) for item in schema.pop("items")]
        if "additionalItems" in schema:
            schema["items"] = upgrade(schema.pop("additionalItems"))


def _boolean_bounds(schema: dict[str, Any]) -> None:
    """`minimum: 0, exclusiveMinimum: true` (draft 4) is `exclusiveMinimum: 0`."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)


def _dependencies(schema: dict[str, Any]) -> None:
    """`dependencies` (to draft 7) became two keywords: one for names, one for schemas."""
    found = schema.get("dependencies")
    if not isinstance(found, Mapping):
        return
    del schema["dependencies"]
    for name, needs in cast(Mapping[str, Any], found).items():
        keyword = "dependentRequired" if isinstance(needs, list | tuple) else "dependentSchemas"
        before = schema.get(keyword)
        if before is None or isinstance(before, Mapping):  # else it is wrong, and the compiler says so
            schema[keyword] = {**cast(Mapping[str, Any], before or {}), name: upgrade(needs)}
