"""Formats the types of JSON Schemas as Python hints, and the shapes of tools' return values."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, cast

import msgspec

from onetool.core.errors import cut
from onetool.core.inferred_schema import LastResults
from onetool.core.spec import ToolSpec
from onetool.core.text import lazy_pattern

MAX_DEPTH = 6  # nested arrays, alternatives, objects and references
MAX_NODES = 500  # inspected nodes of a schema
MAX_OBJECT_DEPTH = 3  # nested objects whose fields are shown
MAX_TYPE_TEXT = 400  # characters
MAX_VALUES, MAX_VALUES_TEXT = 8, 200  # of an enumeration

MAX_FIELD_NAME = 64  # characters, in the short form

_PLAIN = lazy_pattern(rf"[\w$@.-]{{1,{MAX_FIELD_NAME}}}")
_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_VALUES: dict[Any, str] = {str: "str", int: "int", float: "float", bool: "bool", type(None): "None"}
_REFERENCES = 4  # length of a chain of references


def type_name(schema: Any, root: Mapping[str, Any] | None = None) -> str:
    """Return the type hint of a schema. `root` has the definitions that the schema may refer to."""
    return _Namer(root or {}).name(schema, MAX_DEPTH, 0)


def type_with_fields(schema: Any, root: Mapping[str, Any]) -> str:
    """Return the type hint of a schema with the fields of its objects; empty if no fields are known.

    Nested objects are included as deep as MAX_TYPE_TEXT allows.
    """
    text = ""
    for objects in range(MAX_OBJECT_DEPTH, 0, -1):
        namer = _Namer(root)
        text = namer.name(schema, MAX_DEPTH, objects)
        if not namer.has_fields:
            return ""
        if len(text) <= MAX_TYPE_TEXT:
            break
    return cut(text, MAX_TYPE_TEXT)


def resolve_definition(schema: Any, root: Mapping[str, Any]) -> Any:
    """Resolve a reference to a definition, and merge it with the keywords next to the reference."""
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


def types_of(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """Return the types that a schema accepts, including alternatives; empty if unknown."""
    found, schemas = set[str](), [schema]
    for one in islice(schemas, MAX_NODES):  # alternatives, which may refer to each other, are added meanwhile
        part = resolve_definition(one, root)
        if not isinstance(part, Mapping):
            continue
        known = cast(Mapping[str, Any], part)
        kinds = known.get("type")
        found.update(cast(list[str], kinds) if isinstance(kinds, list) else [kinds] if isinstance(kinds, str) else [])
        for word in ("anyOf", "oneOf"):
            if isinstance(arms := known.get(word), list):
                schemas.extend(cast(list[Any], arms[:MAX_NODES]))
    return found


class _Namer:
    """A formatter for the types of one schema, with a limit on the inspected nodes.

    With `max_fields`, the form is short: string fields have no type, and objects are cut to that many fields.
    """

    def __init__(self, root: Mapping[str, Any], max_fields: int | None = None) -> None:
        self._root = root
        self._max_fields = max_fields
        self._left = MAX_NODES
        self.has_fields = False

    def name(self, schema: Any, levels: int, objects: int) -> str:
        self._left -= 1
        schema = resolve_definition(schema, self._root)
        if not isinstance(schema, Mapping) or levels == 0 or self._left < 0:
            return "Any"
        parts = cast(Mapping[str, Any], schema)
        if "const" in parts:
            return self._literal([parts["const"]])
        if isinstance(values := parts.get("enum"), list):
            return self._literal(cast(list[Any], values))
        for word in ("anyOf", "oneOf"):
            if isinstance(arms := parts.get(word), list):
                # Constants among the alternatives are the values of an enumeration.
                constants: list[Any] = []
                names: list[str] = []
                for arm in cast(list[Any], arms):
                    if isinstance(arm, Mapping) and "const" in arm:
                        constants.append(cast(Mapping[str, Any], arm)["const"])
                    else:
                        names.append(self.name(arm, levels - 1, objects))
                return _union([self._literal(constants), *names] if constants else names)
        if isinstance(kinds := parts.get("type"), list):
            return _union(self._kind(kind, parts, levels, objects) for kind in cast(list[Any], kinds))
        return self._kind(kinds, parts, levels, objects)

    def _kind(self, kind: Any, schema: Mapping[str, Any], levels: int, objects: int) -> str:
        if kind == "array":
            items = self.name(schema["items"], levels - 1, objects) if schema.get("items") else ""
            is_short = self._max_fields is not None and items.startswith(("{", "["))
            return f"[{items}]" if is_short else f"list[{items}]" if items else "list"
        # Treat references as objects: separate definitions usually are.
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
            if name == "Any":
                return "dict"
            return f"dict[str, {name}]" if self._max_fields is None else f"{{str: {name}}}"
        self.has_fields = True
        required = cast(Any, schema.get("required") or ())
        names = cast(Mapping[str, Any], properties)
        parts: list[str] = []
        for name in islice(names, self._max_fields):
            kind = self.name(names[name], levels - 1, objects - 1)
            shown = name if self._max_fields is None or _PLAIN.fullmatch(name) else repr(cut(name, MAX_FIELD_NAME))
            mark = "" if name in required else "?"
            parts.append(f"{shown}{mark}" if self._max_fields and kind in ("str", "Any") else f"{shown}{mark}: {kind}")
        return f"{{{', '.join(parts)}{', …' if len(parts) < len(names) else ''}}}"

    def _literal(self, values: list[Any]) -> str:
        text = ", ".join(map(repr, values[:MAX_VALUES]))
        if self._max_fields is None and len(values) <= MAX_VALUES and len(text) <= MAX_VALUES_TEXT:
            return f"Literal[{text}]"
        return _union(_VALUES.get(type(value), "Any") for value in values)


def _union(names: Iterable[str]) -> str:
    unique = dict.fromkeys(names)
    return "Any" if "Any" in unique else " | ".join(unique) or "Any"


# What a tool returns

MAX_SHAPE = 160  # characters
# Levels of nested objects and fields of each, tried until the text is short enough.
_SHAPES = ((3, 20), (3, 12), (2, 12), (2, 6), (1, 12), (1, 6), (1, 3), (0, 0))


def return_shape(spec: ToolSpec) -> str:
    """Return the short shape of a tool's value; empty if unknown.

    An example is `{items: [{id, name}], total: int}`. A field without a type is a string, or its type is unknown; a
    field with `?` may be missing. Long shapes are truncated between fields.
    """
    schema = return_schema(spec)
    text = "Any"
    for objects, fields in _SHAPES if schema else ():
        text = _Namer(schema or {}, fields).name(schema, MAX_DEPTH, objects)
        if len(text) <= MAX_SHAPE:
            break
    return "" if text == "Any" else text


def return_schema(spec: ToolSpec) -> Mapping[str, Any] | None:
    """Return the schema of a tool's values from the first source that names fields: the declaration or hint, the
    docstring or source code, the results.
    """
    first = spec.output_schema
    if first and not is_vague(first, first):
        return first
    described = None if spec.documented_schema is None else spec.documented_schema()
    if described and not is_vague(described, described):
        return described
    seen = None if spec.observed is None else spec.observed.schema()
    return seen if seen and (not first or not is_vague(seen, seen)) else first or described


def is_vague(schema: Any, root: Mapping[str, Any]) -> bool:
    """Return whether a schema has no types, or objects without known fields: `dict`, `list[dict]`.

    So is a schema with too many parts: a hostile one refers to the same part thousands of times.
    """
    left = MAX_NODES

    def has_no_types(schema: Any, levels: int) -> bool:
        nonlocal left
        left -= 1
        part = None if levels == 0 or left < 0 else resolve_definition(schema, root)
        if not isinstance(part, Mapping):
            return True
        known = cast(Mapping[str, Any], part)
        if "const" in known or "enum" in known:
            return False
        for word in ("anyOf", "oneOf", "allOf"):
            if isinstance(arms := known.get(word), list):
                return all(has_no_types(arm, levels - 1) for arm in cast(list[Any], arms))
        kinds = types_of(known, root) - {"null"}
        if "object" in kinds or (not kinds and "properties" in known):
            values = known.get("additionalProperties")
            return not known.get("properties") and (not isinstance(values, Mapping) or has_no_types(values, levels - 1))
        if "array" in kinds:
            return has_no_types(known.get("items"), levels - 1)
        return not kinds

    return has_no_types(schema, MAX_DEPTH)


def returned_type(spec: ToolSpec) -> str | None:
    """Return the description or type of a tool's values; None if unknown."""
    schema = spec.output_schema
    if schema is None:
        return inferred_type(spec)
    words = schema.get("description")
    if is_vague(schema, schema) and (inferred := inferred_type(spec)):
        return f"{words} {inferred}" if words else inferred
    return words or type_with_fields(schema, schema) or type_name(schema, schema)


def inferred_type(spec: ToolSpec) -> str | None:
    """Return the type of the caller's last result with a note: `{id: str, title?: str} (as in the last result)`."""
    schema = None if spec.observed is None else spec.observed.schema()
    return (
        None if schema is None else f"{type_with_fields(schema, schema) or type_name(schema)} (as in the last result)"
    )


def learn_returns(spec: ToolSpec) -> None:
    """Begin to learn the types of a tool's results, if it doesn't declare them."""
    if (
        spec.observed is None
        and not spec.hidden
        and (not spec.output_schema or is_vague(spec.output_schema, spec.output_schema))
    ):
        msgspec.structs.force_setattr(spec, "observed", LastResults())
