"""Simplifies JSON Schema for providers: without `$ref` and `allOf`, and with a plain object at the top. OpenAI and
Anthropic refuse `oneOf`, `anyOf`, `allOf`, `enum`, `const` and `not` at the top of the parameters, and Gemini accepts
only an object there, so the properties of all alternatives are merged.

The simplified schema may be less strict, because the executor checks arguments against the full schema.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from onetool.core.schema_keywords import subschemas

MAX_VALUES_READ = 100  # values inspected for their types
KINDS = ("string", "number", "integer", "boolean", "object", "array", "null")

# Keywords imply the type of a schema without `type`.
_KEYWORDS = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "string": ("pattern", "minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


def kinds_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that the schema declares or implies by values or keywords; [] if unknown."""
    declared = schema.get("type")
    kinds = [kind for kind in (declared if isinstance(declared, list) else [declared]) if kind in KINDS]
    kinds = kinds or [kind_of(value) for value in values_of(schema)[:MAX_VALUES_READ]]
    kinds = kinds or [kind for kind, keywords in _KEYWORDS.items() if any(key in schema for key in keywords)]
    if "number" in kinds:
        kinds = [kind for kind in kinds if kind != "integer"]
    return list(dict.fromkeys(kinds))


def kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):  # before int, because bool is a subclass
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) else "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"


def values_of(schema: Mapping[str, Any]) -> list[Any]:
    """Return the values of `const` or `enum`; empty if the values are not restricted."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else []


def branches_of(schema: Mapping[str, Any]) -> list[Any]:
    """Return the alternatives in `anyOf`, or else in `oneOf`, without those that match no value."""
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return [branch for branch in schema[key] if not is_never(branch)]
    return []


def is_never(schema: Any) -> bool:
    """Return whether no value matches. Some generators write `{"not": {}}` for a missing alternative."""
    return schema is False or (isinstance(schema, Mapping) and schema.get("not") in ({}, True))


def matches_everything(schema: Any) -> bool:
    return schema is True or schema == {}


# The same schema without `$ref` and `allOf`, or a slightly less strict one; alternatives become one object

# References can double the size at each level. A larger schema would not help a model.
MAX_NODES = 2000
MAX_DEPTH = 16

_KEPT_IN_PLACEHOLDER = ("title", "description", "nullable")
_REFUSED = frozenset({"anyOf", "oneOf", "enum", "const", "not"})


class ObjectMembers(NamedTuple):
    """The properties and required names of an object."""

    properties: dict[str, list[Any]]  # by name: the alternative schemas, not simplified
    required: list[str]


NO_MEMBERS = ObjectMembers({}, [])


class ObjectFolder:
    """A converter that flattens the parts of one schema and merges them into plain objects, within a size limit."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.room = MAX_NODES
        self._known: dict[int, ObjectMembers | None] = {}

    def spend(self, amount: int) -> None:
        """Reduce the remaining budget, but not below zero: a deficit would reduce the budget for later parts."""
        self.room = max(0, self.room - amount)

    def flat(self, schema: Any, above: frozenset[str] = frozenset()) -> tuple[dict[str, Any], frozenset[str]]:
        """Return the schema as one mapping, and `above` plus the references that were followed.

        A recursive reference, whose target is in `above`, becomes a placeholder.
        """
        merged: dict[str, Any] = {}
        followed: set[str] = set()
        waiting = [schema]
        while waiting and (self.room > 0 or not merged):
            part = waiting.pop()
            if not isinstance(part, Mapping):
                continue
            self.spend(1)
            _merge(merged, part)
            if isinstance(part.get("allOf"), list):
                waiting += reversed(part["allOf"])
            ref = part.get("$ref")
            if isinstance(ref, str) and ref not in followed:
                followed.add(ref)
                target = resolve(self.root, ref)
                waiting.append(placeholder_schema(target) if ref in above else target)
        return merged, above | followed

    def folded(self, schema: Any) -> dict[str, Any]:
        """Return the schema as a plain object with the properties of all alternatives.

        Properties that all of them require are required.
        """
        flat, _ = self.flat(schema)
        members = self._members(flat, depth=0) or NO_MEMBERS
        plain = {key: value for key, value in flat.items() if key not in _REFUSED}
        plain["type"] = "object"
        plain["properties"] = {name: _one_schema(schemas) for name, schemas in members.properties.items()}
        if members.required or "required" in plain:
            plain["required"] = members.required
        return plain

    def _members(self, flat: dict[str, Any], depth: int) -> ObjectMembers | None:
        if "type" in flat and "object" not in kinds_of(flat):
            return None
        own = ObjectMembers(
            {name: [schema] for name, schema in flat.get("properties", {}).items()}, flat.get("required", [])
        )
        if depth >= MAX_DEPTH:
            return own
        own = _both(own, self._either(branches_of(flat), depth))
        conditional = [flat[key] for key in ("then", "else") if key in flat]
        return _both(own, self._either([*conditional, True], depth))  # True: perhaps neither branch requires anything

    def _either(self, schemas: Iterable[Any], depth: int) -> ObjectMembers:
        choices: list[ObjectMembers] = []
        for schema in schemas:
            if id(schema) not in self._known:  # each schema is processed once
                self._known[id(schema)] = NO_MEMBERS  # for recursive schemas
                self._known[id(schema)] = self._members(self.flat(schema)[0], depth + 1)
            if members := self._known[id(schema)]:
                choices.append(members)
        if not choices:
            return NO_MEMBERS
        properties: dict[str, list[Any]] = {}
        for choice in choices:
            for name, alternatives in choice.properties.items():
                known = properties.setdefault(name, [])
                known += [schema for schema in alternatives if schema not in known]
        required = [name for name in choices[0].required if all(name in choice.required for choice in choices)]
        return ObjectMembers(properties, required)


def _merge(merged: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Add the keywords of a part of `allOf`. The first of several equal keywords wins, which makes the schema less
    strict.
    """
    for key, value in part.items():
        if key == "properties" and isinstance(value, Mapping):
            known = merged.setdefault(key, {})
            known |= {name: schema for name, schema in value.items() if matches_everything(known.get(name, True))}
        elif key == "required" and isinstance(value, list):
            names = [name for name in value if isinstance(name, str)]
            merged[key] = list(dict.fromkeys([*merged.get(key, []), *names]))
        elif key not in ("$ref", "allOf", "properties", "required"):
            merged.setdefault(key, value)


def placeholder_schema(schema: Any) -> dict[str, Any]:
    """Return a placeholder for a schema that is too deep: its type (object if unknown) and description."""
    if not isinstance(schema, Mapping):
        return {"type": "object"}
    branches = [branch for branch in branches_of(schema) if isinstance(branch, Mapping)]
    kinds = kinds_of(schema) or [kind for branch in branches for kind in kinds_of(branch)]
    return {"type": kinds or "object"} | {key: schema[key] for key in _KEPT_IN_PLACEHOLDER if key in schema}


def resolve(root: Any, ref: str) -> Any:
    """Resolve a local reference (`#`, `#/$defs/Name`). Return None for external and broken references."""
    if ref != "#" and not ref.startswith("#/"):
        return None
    target = root
    for step in unquote(ref).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping):
            target = target.get(key)
        elif isinstance(target, list) and key in map(str, range(len(target))):
            target = target[int(key)]
        else:
            return None
    return target


def _both(first: ObjectMembers, second: ObjectMembers) -> ObjectMembers:
    properties = dict(first.properties)
    for name, schemas in second.properties.items():
        if all(matches_everything(schema) for schema in properties.get(name, [])):
            properties[name] = schemas
    return ObjectMembers(properties, list(dict.fromkeys([*first.required, *second.required])))


def _one_schema(schemas: list[Any]) -> Any:
    """Return one schema for a property with several schemas: usually the one that discriminates the alternatives."""
    if len(schemas) == 1:
        return schemas[0]
    constants = [schema.get("const") if isinstance(schema, dict) else None for schema in schemas]
    if all(isinstance(constant, str) for constant in constants):
        return {"type": "string", "enum": constants}
    return {"anyOf": schemas}


# Parameters for providers that accept JSON Schema


def plain_parameters(schema: Any) -> dict[str, Any]:
    """Return the parameters for OpenAI, Ollama and Anthropic: a plain object at the top, JSON Schema below."""
    parameters = thaw(ObjectFolder(schema).folded(schema))
    waiting: list[Any] = [parameters]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        # OpenAI refuses arrays without `items`; JSON Schema 2020-12, required by Anthropic, refuses a list in `items`.
        declared, items = part.get("type"), part.get("items")
        if "array" in (declared if isinstance(declared, list) else [declared]):
            if isinstance(items, list):
                part["prefixItems"] = items
                items = part.pop("additionalItems", {})
            part["items"] = items if isinstance(items, dict) else {}
        # Ollama requires objects as properties, but `true` and `false` are schemas, too.
        if isinstance(properties := part.get("properties"), dict):
            for name, schema in properties.items():
                if isinstance(schema, bool):
                    properties[name] = {} if schema else {"not": {}}
        # Merging may remove the targets of references, and broken references are refused.
        if "$ref" in part and not isinstance(resolve(parameters, str(part["$ref"])), Mapping | bool):
            del part["$ref"]
        waiting += subschemas(part)
    return parameters


def thaw(value: Any) -> Any:
    """Return a copy of plain dicts and lists. Not recursive, because schemas may be nested too deep."""
    holder = [value]
    waiting: list[Any] = [holder]
    while waiting:
        container = waiting.pop()
        for key, item in list(container.items() if isinstance(container, dict) else enumerate(container)):
            if isinstance(item, Mapping | list | tuple):
                container[key] = dict(item) if isinstance(item, Mapping) else list(item)
                waiting.append(container[key])
    return holder[0]
