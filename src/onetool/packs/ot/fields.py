"""What the objects of a JSON Schema are made of, in a line: `list[{path: str, size?: int}]`.

A signature says `dict`; whoever writes a call needs the keys as well.
"""

from collections.abc import Mapping
from typing import Any

from onetool.core.failure import cut
from onetool.core.signature import type_name

LEVELS = 4  # of references, alternatives and arrays around an object
ALTERNATIVES = 4
LONGEST = 400


def fields(schema: Any, root: Mapping[str, Any], levels: int = LEVELS) -> str:
    """The fields of an object, or of the objects in an array; nothing where there are none to tell."""
    schema = _resolved(schema, root)
    if not isinstance(schema, Mapping) or levels == 0:
        return ""
    if isinstance(properties := schema.get("properties"), Mapping) and properties:
        return cut(_object(properties, schema.get("required") or (), root), LONGEST)
    if "items" in schema:
        inner = fields(schema["items"], root, levels - 1)
        return inner and f"list[{inner}]"
    alternatives = schema.get("anyOf") or schema.get("oneOf") or ()
    told = (fields(one, root, levels - 1) for one in alternatives[:ALTERNATIVES])
    return next(filter(None, told), "")


def _object(properties: Mapping[str, Any], required: Any, root: Mapping[str, Any]) -> str:
    parts = (
        f"{name}{'' if name in required else '?'}: {type_name(_resolved(part, root))}"
        for name, part in properties.items()
    )
    return f"{{{', '.join(parts)}}}"


def _resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """What a reference to a definition means."""
    ref = schema.get("$ref") if isinstance(schema, Mapping) else None
    if not isinstance(ref, str) or not ref.startswith(("#/$defs/", "#/definitions/")):
        return schema
    _, home, name = ref.split("/", 2)
    definitions = root.get(home)
    return definitions.get(name, schema) if isinstance(definitions, Mapping) else schema
