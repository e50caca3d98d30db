"""`$defs`: what has a name is written once, at the top of the schema, and referred to."""

from typing import Any

from onetool.sdk.hints.form import Schema

REF = "#/$defs/"


def reference(name: str) -> Schema:
    return {"$ref": REF + name}


def identifier(text: str) -> str:
    """A name that can stand in a reference as it is: `Page[int]` becomes `Page_int_`."""
    return "".join(char if char.isalnum() else "_" for char in text)


def free_name(definitions: dict[str, Schema], name: str, definition: Schema | None = None) -> str:
    """The name; with a number, if another definition has it already."""
    free, number = name, 1
    while free in definitions and (definition is None or definitions[free] != definition):
        number += 1
        free = f"{name}{number}"
    return free


def adopt(definitions: dict[str, Schema], name: str, schema: Schema) -> Schema:
    """A schema that somebody else made: its definitions join ours, and an object becomes one itself."""
    schema = dict(schema)
    own: dict[str, Schema] = dict(schema.pop("$defs", {}))
    if "properties" in schema:
        own[name] = schema
        schema = reference(name)
    names = {old: free_name(definitions, old, definition) for old, definition in own.items()}
    changed = {REF + old: REF + new for old, new in names.items() if old != new}
    for old, definition in own.items():
        definitions[names[old]] = _replaced(definition, changed) if changed else definition
    return _replaced(schema, changed) if changed else schema


def inlined(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """A whole schema. One that is only a reference becomes what it refers to: readers look for `type` at the top."""
    name = schema.get("$ref", "").removeprefix(REF)
    if name and not _refers(definitions, REF + name):
        schema = definitions[name]
        definitions = {other: definition for other, definition in definitions.items() if other != name}
    return {**schema, "$defs": definitions} if definitions else schema


def _refers(part: Any, ref: str) -> bool:
    if isinstance(part, dict):
        return any(_refers(value, ref) for value in part.values())
    return any(_refers(value, ref) for value in part) if isinstance(part, list) else part == ref


def _replaced(part: Any, changed: dict[str, str]) -> Any:
    if isinstance(part, dict):
        return {key: _replaced(value, changed) for key, value in part.items()}
    if isinstance(part, list):
        return [_replaced(value, changed) for value in part]
    return changed.get(part, part) if isinstance(part, str) else part
