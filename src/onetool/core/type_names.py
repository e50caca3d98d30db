"""Names the types of JSON Schemas as Python hints, for people and models, and what tools return."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from onetool.core.errors import cut
from onetool.core.spec import ToolSpec

MAX_TYPE_LEVELS = 6  # of arrays, alternatives, objects and references inside of each other
MAX_TYPE_PARTS = 500  # of a schema that are looked at
MAX_FIELD_LEVELS = 3  # objects inside of each other whose fields are told
MAX_FIELDS = 400  # characters that fields may take
MAX_VALUES, MAX_VALUES_TEXT = 8, 200  # of an enumeration

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_VALUES: dict[Any, str] = {str: "str", int: "int", float: "float", bool: "bool", type(None): "None"}
_REFERENCES = 4  # from one to the next


def type_name(schema: Any, root: Mapping[str, Any] | None = None) -> str:
    """Return the type hint of a schema. `root` has the definitions that the schema may refer to."""
    return _Namer(root or {}).name(schema, MAX_TYPE_LEVELS, 0)


def type_with_fields(schema: Any, root: Mapping[str, Any]) -> str:
    """Return the same with the fields of its objects, as deep as there is room; empty if no fields are known."""
    text = ""
    for objects in range(MAX_FIELD_LEVELS, 0, -1):
        namer = _Namer(root)
        text = namer.name(schema, MAX_TYPE_LEVELS, objects)
        if not namer.has_fields:
            return ""
        if len(text) <= MAX_FIELDS:
            break
    return cut(text, MAX_FIELDS)


def resolve_definition(schema: Any, root: Mapping[str, Any]) -> Any:
    """Return what a reference to a definition means, with what is said beside it."""
    for _ in range(_REFERENCES):
        ref = cast(Mapping[str, Any], schema).get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(ref, str) or not ref.startswith(("#/$defs/", "#/definitions/")):
            break
        _, home, name = ref.split("/", 2)
        definitions = root.get(home)
        found = cast(Mapping[str, Any], definitions).get(name) if isinstance(definitions, Mapping) else None
        if not isinstance(found, Mapping):
            break
        beside = {key: value for key, value in cast(Mapping[str, Any], schema).items() if key != "$ref"}
        schema = {**cast(Mapping[str, Any], found), **beside}
    return cast(Any, schema)


def kinds_of(schema: Any, root: Mapping[str, Any], levels: int = MAX_TYPE_LEVELS) -> set[str]:
    """Return the types that a schema takes, alternatives included; none if it doesn't say."""
    part = resolve_definition(schema, root)
    if levels == 0 or not isinstance(part, Mapping):
        return set()
    known = cast(Mapping[str, Any], part)
    kinds = known.get("type")
    found = (
        set(cast(list[str], kinds)) if isinstance(kinds, list) else {kinds} if isinstance(kinds, str) else set[str]()
    )
    for word in ("anyOf", "oneOf"):
        if isinstance(arms := known.get(word), list):
            found = found.union(*(kinds_of(arm, root, levels - 1) for arm in cast(list[Any], arms)))
    return found


class _Namer:
    """Names the types of one schema, and counts how much of it was looked at."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = MAX_TYPE_PARTS
        self.has_fields = False

    def name(self, schema: Any, levels: int, objects: int) -> str:
        self._left -= 1
        schema = resolve_definition(schema, self._root)
        if not isinstance(schema, Mapping) or levels == 0 or self._left < 0:
            return "Any"
        parts = cast(Mapping[str, Any], schema)
        if "const" in parts:
            return _literal([parts["const"]])
        if isinstance(values := parts.get("enum"), list):
            return _literal(cast(list[Any], values))
        for word in ("anyOf", "oneOf"):
            if isinstance(arms := parts.get(word), list):
                return self._arms(cast(list[Any], arms), levels, objects)
        if isinstance(kinds := parts.get("type"), list):
            return _union(self._kind(kind, parts, levels, objects) for kind in cast(list[Any], kinds))
        return self._kind(kinds, parts, levels, objects)

    def _arms(self, arms: list[Any], levels: int, objects: int) -> str:
        """Name alternatives. Constants among them are the values of an enumeration."""
        constants: list[Any] = []
        names: list[str] = []
        for arm in arms:
            if isinstance(arm, Mapping) and "const" in arm:
                constants.append(cast(Mapping[str, Any], arm)["const"])
            else:
                names.append(self.name(arm, levels - 1, objects))
        return _union([_literal(constants), *names] if constants else names)

    def _kind(self, kind: Any, schema: Mapping[str, Any], levels: int, objects: int) -> str:
        if kind == "array":
            return f"list[{self.name(schema['items'], levels - 1, objects)}]" if schema.get("items") else "list"
        # What is worth a definition of its own is an object, near enough.
        if kind == "object" or (kind is None and ("properties" in schema or "$ref" in schema)):
            return self._object(schema, levels, objects)
        if kind is None and isinstance(alone := schema.get("allOf"), list) and len(cast(list[Any], alone)) == 1:
            return self.name(alone[0], levels - 1, objects)
        return _TYPES.get(str(kind), "Any")

    def _object(self, schema: Mapping[str, Any], levels: int, objects: int) -> str:
        properties, values = schema.get("properties"), schema.get("additionalProperties")
        if objects == 0 or not (properties or values):
            return "dict"
        if not isinstance(properties, Mapping) or not properties:
            name = self.name(values, levels - 1, objects)
            self.has_fields = self.has_fields or name != "Any"
            return "dict" if name == "Any" else f"dict[str, {name}]"
        self.has_fields = True
        required = cast(Any, schema.get("required") or ())
        parts = (
            f"{name}{'' if name in required else '?'}: {self.name(part, levels - 1, objects - 1)}"
            for name, part in cast(Mapping[str, Any], properties).items()
        )
        return f"{{{', '.join(parts)}}}"


def _literal(values: list[Any]) -> str:
    text = ", ".join(map(repr, values[:MAX_VALUES]))
    if len(values) <= MAX_VALUES and len(text) <= MAX_VALUES_TEXT:
        return f"Literal[{text}]"
    return _union(_VALUES.get(type(value), "Any") for value in values)


def _union(names: Iterable[str]) -> str:
    unique = dict.fromkeys(names)
    return "Any" if "Any" in unique else " | ".join(unique) or "Any"


# Return types


def returned_type(spec: ToolSpec) -> str | None:
    """Return the type of a tool's values; None if nothing is known."""
    if spec.output_schema is None:
        return inferred_type(spec)
    schema = spec.output_schema
    return schema.get("description") or type_with_fields(schema, schema) or type_name(schema, schema)


def inferred_type(spec: ToolSpec) -> str | None:
    """Return the type of its values so far, marked: `{id: str, title?: str} (inferred from 12 results)`."""
    schema = None if spec.seen is None else spec.seen.schema()
    if spec.seen is None or schema is None:
        return None
    count = spec.seen.results
    what = type_with_fields(schema, schema) or type_name(schema)
    return f"{what} (inferred from {count} result{'' if count == 1 else 's'})"
