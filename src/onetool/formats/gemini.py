"""Reduces JSON Schema to the subset of OpenAPI 3.0 that Gemini accepts for parameters.

Gemini refuses a whole request for any violation:
- every schema has one `type`, or only `anyOf` ("it must be the only field set");
- an array has `items`, and `required` names only existing properties;
- `enum` is only for non-empty strings;
- `format` is `date-time` for strings, `float` or `double`, `int32` or `int64` for numbers;
- there is no `$ref`, `const`, `oneOf`, `allOf`, `not`, `additionalProperties`, `exclusiveMinimum`, nor deep nesting.

Other useful information goes into the description. Objects without properties used to be refused ("should be non-empty
for OBJECT type") and are accepted now. Adding a dummy property would not work, because the executor refuses unknown
arguments.
"""

import json
import math
from typing import Any

from onetool.formats.json_schema import (
    ObjectFolder,
    branches_of,
    is_never,
    kind_of,
    kinds_of,
    placeholder_schema,
    values_of,
)

MAX_NOTE_LENGTH = 300

_FORMATS = {"string": ("date-time",), "number": ("float", "double"), "integer": ("int32", "int64")}
_COUNTS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_WIDER = {"integer": "number"}
_BOUNDS = (("minimum", "exclusiveMinimum", max, "greater"), ("maximum", "exclusiveMaximum", min, "less"))


def leaf_schema(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of this type without nested schemas. Keywords without a Gemini field go into the description."""
    node: dict[str, Any] = {"type": kind}
    notes: list[str] = []
    name = schema.get("format")
    if name in _FORMATS.get(kind, ()):
        node["format"] = name
    elif kind == "string" and isinstance(name, str) and name != "enum":
        notes.append(_note("Format", name))
    values = [value for value in values_of(schema) if kind in (kind_of(value), _WIDER.get(kind_of(value)))]
    if kind == "string" and values and all(values):
        node["enum"] = list(dict.fromkeys(values))
    elif values:
        notes.append(_note("One of", ", ".join(json.dumps(value, ensure_ascii=False) for value in values)))
    for key, open_key, tighter, word in _BOUNDS if kind in ("integer", "number") else ():
        closed, beyond = _number(schema.get(key)), schema.get(open_key)
        beyond = closed if beyond is True else _number(beyond)  # true in drafts up to 4
        if beyond is not None and kind == "integer":
            beyond = math.floor(beyond) + 1 if tighter is max else math.ceil(beyond) - 1
        elif beyond is not None:
            notes.append(f"Must be {word} than {beyond}.")
        if bounds := [bound for bound in (closed, beyond) if bound is not None]:
            node[key] = tighter(bounds)
    for key in _COUNTS.get(kind, ()):
        count = _number(schema.get(key))
        if count is not None and 0 <= count < 2**63 and count == int(count):
            node[key] = int(count)
    if kind == "string" and isinstance(schema.get("pattern"), str):
        node["pattern"] = schema["pattern"]
    if kind == "object" and not schema.get("properties"):
        # Otherwise models assume that an object with free keys, such as HTTP headers, is always empty.
        free = schema.get("additionalProperties")
        if isinstance(free, dict) and isinstance(free.get("type"), str):
            notes.append(f"Any keys, with values of type {free['type']}.")
    if notes:
        node["description"] = " ".join(notes)
    return node


def _note(label: str, text: str) -> str:
    return f"{label}: {text}." if len(text) <= MAX_NOTE_LENGTH else f"{label}: {text[:MAX_NOTE_LENGTH]}…"


def _number(value: Any) -> int | float | None:
    """Return the value if it is a number in the range of a double, the type of these fields."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


# Parameters for Gemini

Node = dict[str, Any]

MAX_DEPTH = 10
CHARACTERS_PER_NODE = 100  # of strings, which count towards the size limit

_ANYTHING = ("string", "number", "boolean", "object", "array")
_TYPE_KEYWORDS = ("type", "enum", "const", "properties")


def gemini_parameters(schema: Any) -> Node:
    """Return the parameters of a function: always an object with `properties`, even if empty."""
    reducer = _Reducer(schema)
    parameters = reducer.node(reducer.folded(schema), depth=0, above=frozenset({"#"}))
    parameters.setdefault("properties", {})
    return parameters


class _Reducer(ObjectFolder):
    """A reducer for the parts of one schema, within a size limit."""

    def node(self, schema: Any, depth: int, above: frozenset[str]) -> Node:
        """Convert any JSON Schema to one that Gemini accepts. `above` are the references that led here."""
        nodes, nullable = self._choices(schema, depth, above)
        first, *others = nodes or [{"type": "string"}]  # only null is allowed: Gemini has no such type
        if nullable or not nodes:
            first["nullable"] = True
        return {"anyOf": [first, *others]} if others else first

    def _choices(self, schema: Any, depth: int, above: frozenset[str]) -> tuple[list[Node], bool]:
        """Return the alternatives, each of one type, and whether null is also allowed."""
        flat, above = self.flat(schema, above)
        if depth > MAX_DEPTH or self.room == 0:
            flat = placeholder_schema(flat)
        branches = branches_of(flat)
        if branches and not any(key in flat for key in _TYPE_KEYWORDS):
            nodes: list[Node] = []
            nullable = False
            for branch in branches:
                if nodes and self.room == 0:
                    break
                more, null = self._choices(branch, depth + 1, above)
                nodes += [node for node in more if node not in nodes]
                nullable = nullable or null
            enums = [node for node in nodes if node.keys() == {"type", "enum"}]
            if len(enums) > 1:  # several alternatives that only list values: merge them
                values = dict.fromkeys(value for node in enums for value in node["enum"])
                nodes = [{"type": "string", "enum": [*values]}, *(node for node in nodes if node not in enums)]
        else:
            kinds = kinds_of(flat) or list(_ANYTHING)
            nullable = "null" in kinds
            kinds = [kind for kind in kinds if kind != "null"]
            if kinds == ["object"] and branches:
                flat = self.folded(flat)  # merge alternatives of members; drop those that refine other types
            inside = depth + 1 if len(kinds) == 1 else depth + 2  # `anyOf` adds a level
            nodes = [self._typed(kind, flat, inside, above) for kind in kinds]
        self._describe(nodes, flat)
        return nodes, nullable or flat.get("nullable") is True

    def _typed(self, kind: str, flat: Node, inside: int, above: frozenset[str]) -> Node:
        """Return the schema for values of one type. Nested schemas have the depth `inside`."""
        node = leaf_schema(kind, flat)
        self.spend(sum(map(len, (node.get("pattern", ""), *node.get("enum", ())))) // CHARACTERS_PER_NODE)
        if kind == "array":
            node["items"] = self._items(flat, inside, above)
        if kind != "object":
            return node
        schemas = {name: schema for name, schema in flat.get("properties", {}).items() if not is_never(schema)}
        properties: dict[str, Node] = {}
        for name, schema in schemas.items():
            if self.room == 0:
                break
            # A large property must leave room for the following ones.
            reserved = min(len(schemas) - len(properties), self.room) - 1
            self.room -= reserved
            properties[name] = self.node(schema, inside, above)
            self.room += reserved
        if properties:
            node["properties"] = properties
            if required := [name for name in flat.get("required", ()) if name in properties]:
                node["required"] = required
        return node

    def _items(self, flat: Node, depth: int, above: frozenset[str]) -> Node:
        items = flat.get("items")
        by_index = flat.get("prefixItems", items)  # older drafts use a list in `items`
        if isinstance(by_index, list):
            items = {"anyOf": [*by_index, items] if isinstance(items, dict) else by_index}
        if isinstance(items, dict) and items and depth <= MAX_DEPTH:
            return self.node(items, depth, above)
        # Any value. An array in turn needs items, so stop here.
        *others, array = ({"type": kind} for kind in _ANYTHING)
        return {"anyOf": [*others, {**array, "items": {"type": "string"}}]}

    def _describe(self, nodes: list[Node], flat: Node) -> None:
        """Add title, description and default. Of several alternatives, only the first gets the description."""
        limit = None if self.room else MAX_NOTE_LENGTH
        texts: Node = {key: flat[key][:limit] for key in ("title", "description") if isinstance(flat.get(key), str)}
        default = flat.get("default")
        if self.room and (isinstance(default, str | bool) or _number(default) is not None):
            texts["default"] = default
        self.spend(sum(len(str(text)) for text in texts.values()) // CHARACTERS_PER_NODE)
        if not nodes:
            return
        notes = nodes[0].get("description")
        if notes and "description" in texts:
            texts["description"] += f" {notes}"
        nodes[0].update({key: text for key, text in texts.items() if len(nodes) == 1 or key == "description"})
