"""Schemas of a document -> JSON Schema of today, one for what goes in and a lenient one for what comes out.

Each schema is converted once. A reference becomes one into `$defs`, which also keeps those that go in circles;
`assembly` makes a whole of a schema and the definitions that it needs.

What comes out is described, hardly checked: an answer that differs from its description is still the answer, and APIs
differ from their documents all the time. So of an answer only the types and places of things are kept; nothing is
required, everything may be null, values of an enumeration are examples, and further members are no fault.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from onetool.core.schema_upgrade import upgrade
from onetool.sources.bundles.openapi.document import Document, Unresolved
from onetool.sources.bundles.openapi.keywords import MANY, NAMED, ONE, plain_keywords
from onetool.sources.bundles.openapi.naming import clean

DEEPEST = 40  # sub-schemas inside of each other; what is deeper may be anything
MOST_EXAMPLES = 8  # of an enumeration
LONGEST_OUT = 160  # characters of a description of what comes out

Way = Literal["in", "out"]
_KEPT_OUT = ("type", "format", "description", "examples")


class Definition(NamedTuple):
    """A schema that others refer to."""

    schema: Any
    uses: tuple[str, ...]  # definitions that it refers to, as often as it does


class Schemas:
    """All schemas of one document, as they are asked for."""

    def __init__(self, document: Document, note: Callable[[str], None]) -> None:
        self._document = document
        self._note = note
        self._names: dict[tuple[Way, str], str] = {}
        self._taken: set[str] = set()
        self._known: dict[tuple[Way, int], tuple[Any, Definition]] = {}  # with what has that id, so that it keeps it
        self._waiting: list[tuple[Way, str]] = []
        self.definitions: dict[str, Definition] = {}

    def read(self, schema: Any, way: Way) -> Definition:
        """The schema in today's words, and what it refers to; everything behind that is in `definitions`."""
        key = (way, id(schema))
        if key not in self._known:
            self._known[key] = (schema, self._made(schema, way))
            while self._waiting:
                way_there, ref = self._waiting.pop()
                self._define(way_there, ref)
        return self._known[key][1]

    def _made(self, schema: Any, way: Way) -> Definition:
        converted = upgrade(_Conversion(self._document, way, self._reference).of(schema, 0))
        return Definition(converted, tuple(references(converted)))

    def _define(self, way: Way, ref: str) -> None:
        name = self._names[way, ref]
        try:
            target = self._document.at(ref)
        except Unresolved as error:
            self._note(f"{error}; anything is taken in its place")
            target = {}
        self.definitions[name] = self._made(target, way)

    def _reference(self, way: Way, ref: str) -> str:
        """The name of the definition that a reference means."""
        key = (way, ref)
        if key not in self._names:
            last = ref.rpartition("/")[2].replace("~1", "-")
            plain = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "_.-") else "-" for sign in last)
            name = base = plain[:60] or "schema"
            number = 1
            while name in self._taken:
                number += 1
                name = f"{base}-{number}"
            self._taken.add(name)
            self._names[key] = name
            self._waiting.append(key)
        return self._names[key]


class _Conversion:
    """Of one schema, one way."""

    def __init__(self, document: Document, way: Way, reference: Callable[[Way, str], str]) -> None:
        self._document = document
        self._way: Way = way
        self._reference = reference

    def of(self, schema: Any, depth: int) -> Any:
        if not isinstance(schema, dict) or depth > DEEPEST:
            return schema if isinstance(schema, bool) and self._way == "in" else {}
        ref = schema.get("$ref")
        if isinstance(ref, str):
            return self._referring(schema, ref)
        found = plain_keywords(schema)
        self._sub_schemas(schema, found, depth)
        if self._way == "out":
            return _lenient(found)
        if schema.get("nullable") is True:
            found = _nullable(found)
        return found

    def _referring(self, schema: dict[str, Any], ref: str) -> dict[str, Any]:
        """With what is said beside it, as 3.1 has it. In 3.0 only words count there."""
        found: dict[str, Any] = {"$ref": f"#/$defs/{self._reference(self._way, ref)}"}
        if text := clean(schema.get("description"), LONGEST_OUT if self._way == "out" else 500):
            found["description"] = text
        if self._way == "in" and "default" in schema:
            found["default"] = schema["default"]
        return {"anyOf": [found, {"type": "null"}]} if schema.get("nullable") is True and self._way == "in" else found

    def _sub_schemas(self, schema: dict[str, Any], found: dict[str, Any], depth: int) -> None:
        for name in ONE:
            if isinstance(schema.get(name), dict | bool):
                found[name] = self.of(schema[name], depth + 1)
        for name in MANY:
            if isinstance(schema.get(name), list) and schema[name]:
                found[name] = [self.of(one, depth + 1) for one in schema[name]]
        for name in NAMED:
            if isinstance(schema.get(name), dict):
                found[name] = {key: self.of(one, depth + 1) for key, one in schema[name].items()}
        if isinstance(properties := schema.get("properties"), dict):
            self._one_way_only(properties, found)
        if isinstance(schema.get("items"), list):  # of older drafts
            found["items"] = [self.of(one, depth + 1) for one in schema["items"]]

    def _one_way_only(self, properties: dict[str, Any], found: dict[str, Any]) -> None:
        """Members that only answers have are not asked for, and those that only requests have not promised."""
        mark = "readOnly" if self._way == "in" else "writeOnly"
        gone = {name for name, one in properties.items() if self._has(one, mark)}
        if gone:
            found["properties"] = {name: one for name, one in found["properties"].items() if name not in gone}
            if "required" in found:
                found["required"] = [name for name in found["required"] if name not in gone]

    def _has(self, schema: Any, mark: str) -> bool:
        try:
            return self._document.object(schema).get(mark) is True
        except Unresolved:
            return False


def references(schema: Any) -> Iterator[str]:
    """The definitions that a converted schema refers to, as often as it does."""
    from onetool.core.schema_parts import inside

    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if isinstance(ref := one.get("$ref"), str):
                yield ref.removeprefix("#/$defs/")
            waiting.extend(inside(one))


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """3.0 says `nullable: true` where JSON Schema has a type of its own for it."""
    types = schema.get("type")
    if types is None:
        about = {key: schema.pop(key) for key in ("description", "default", "examples") if key in schema}
        return {"anyOf": [schema, {"type": "null"}], **about} if schema else about
    types = types if isinstance(types, list) else [types]
    schema["type"] = [*types, "null"] if "null" not in types else types
    if "enum" in schema and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    return schema


def _lenient(schema: dict[str, Any]) -> dict[str, Any]:
    found = {key: schema[key] for key in _KEPT_OUT if key in schema}
    if "description" in found:
        found["description"] = clean(found["description"], LONGEST_OUT)
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    found.pop("examples", None)
    if values:
        found["examples"] = values[:MOST_EXAMPLES]
    if schema.get("properties"):
        found["properties"] = schema["properties"]
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict) and schema[key]:
            found[key] = schema[key]
    if "allOf" in schema:
        found["allOf"] = schema["allOf"]
    if arms := [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        found["anyOf"] = arms
    if "type" in found:
        types = found["type"] if isinstance(found["type"], list) else [found["type"]]
        found["type"] = [*types, "null"] if "null" not in types else types
    return found
