"""Describe the result of an operation: how the response is read, and a schema of its values.

APIs often differ from their documents, so these schemas only describe. Types, members and descriptions are copied; all
parts may be null, values of an enumeration are examples, nothing is required, and additional members are accepted.
Alternatives and parts (`anyOf`, `oneOf`, `allOf`) become one schema with the members of all of them, so that each
schema is cheap to check. Components are copied once for a document.
"""

from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

from onetool.sources.bundles.import_names import UniqueSlugs, printable
from onetool.sources.bundles.openapi.document import OpenApiDocument, UnresolvedError
from onetool.sources.bundles.openapi.schemas import (
    DEFINITIONS,
    MAX_DEPTH,
    TYPES,
    Definition,
    defined,
    definition_name,
    encoding_of,
    is_json,
    kind_of,
    known_media,
    outline,
    shallow,
    size_of,
    with_definitions,
)

MAX_MEDIA_TYPES = 4  # of a response
MAX_BYTES = 16 * 1024  # of a schema
MAX_REFERENCES = 10  # references followed from the root
MAX_EXAMPLES = 8  # of an enumeration
MAX_DESCRIPTION = 160  # characters
_ORDER = ("json", "sse", "text", "binary")

Schema = dict[str, Any]


class OperationResponse(NamedTuple):
    encoding: str | None  # None: nothing is stated
    schema: Schema
    accept: str | None = None  # the media type to ask for
    redirects: bool = False  # the only responses are redirects


class Results:
    """The results of the operations of one document."""

    def __init__(self, document: OpenApiDocument) -> None:
        self._document = document
        self._copies: dict[int, Schema] = {}  # of components, by id
        self._names: dict[str, str] = {}  # of definitions, by reference
        self._refs: dict[str, str] = {}  # the reverse
        self._definitions: dict[str, Definition] = {}
        self._taken = UniqueSlugs()

    def of(self, responses: Any) -> OperationResponse:
        """Return the expected response of an operation: a successful response, JSON first."""
        responses = responses if isinstance(responses, dict) else {}
        codes = [code for code in responses if str(code)[:1] == "2"] or [
            code for code in responses if code == "default"
        ]
        successful: list[dict[str, Any]] = []
        for code in codes[:MAX_MEDIA_TYPES]:
            with suppress(UnresolvedError):
                successful.append(self._document.object(responses[code]))
        by_encoding: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        for response in successful:
            content = response.get("content")
            for media_type, media in (content if isinstance(content, dict) else {}).items():
                if known_media(media_type) and isinstance(media, dict):
                    by_encoding.setdefault(encoding_of(media_type), []).append((media_type, media))
        encoding = next((encoding for encoding in _ORDER if encoding in by_encoding), None)
        if encoding is None:
            redirects = not successful and any(str(code)[:1] == "3" for code in responses)
            return OperationResponse(None, {}, redirects=redirects)
        types = [known_media(media_type) for media_type, _ in by_encoding[encoding]]
        accept = "application/json" if "application/json" in types else types[0]
        if encoding == "json":
            media = [media.get("schema") for media_type, media in by_encoding["json"] if is_json(media_type)]
            return OperationResponse("json", self._schema(media[:MAX_MEDIA_TYPES]), accept)
        return OperationResponse(encoding, {"type": "string"} if encoding == "text" else {}, accept)

    def _schema(self, alternatives: list[Any]) -> Schema:
        """Return the schema of a whole result, with the definitions within reach that aren't too large."""
        root = self._joined([*map(self._content, alternatives)], is_union=True)
        if isinstance(types := root.get("type"), list):  # only parts of a result may be null
            known = [one for one in types if one != "null"]
            root["type"] = known[0] if len(known) == 1 else known or "null"
        whole = defined(root)
        if whole.size > MAX_BYTES:
            smaller = (shallow(root, levels) for levels in range(4, 0, -1))
            return next((schema for schema in smaller if size_of(schema) <= MAX_BYTES), outline(root))
        return with_definitions(whole, self._definition, MAX_BYTES, MAX_REFERENCES)[0]

    def _definition(self, name: str) -> Definition:
        if name not in self._definitions:
            self._definitions[name] = defined(self._content({"$ref": self._refs[name]}))
        return self._definitions[name]

    def _content(self, schema: Any, depth: int = 0) -> Schema:
        """Return the copy of a schema, or of the component that it refers to."""
        try:
            found = self._document.object(schema)
        except UnresolvedError:
            return {}
        if found is schema:
            return self._copied(found, depth)
        if id(found) not in self._copies:
            self._copies[id(found)] = {}  # for parts that refer to the whole
            self._copies[id(found)] = self._copied(found, depth)
        return self._copies[id(found)]

    def _copied(self, schema: Any, depth: int, is_inside: bool = False) -> Schema:
        """Copy a schema. Components are only joined with a whole one: inside, they would multiply."""
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return {}
        about = {"description": text} if (text := printable(schema.get("description"), MAX_DESCRIPTION)) else {}
        if isinstance(ref := schema.get("$ref"), str):
            if ref not in self._names:
                self._names[ref] = self._taken.take([definition_name(ref)])
                self._refs[self._names[ref]] = ref
            return {"$ref": f"{DEFINITIONS}{self._names[ref]}", **about}
        parts = [self._own(schema, depth)]
        for word in ("allOf", "anyOf", "oneOf"):
            if isinstance(found := schema.get(word), list):
                copies = (
                    self._copied(one, depth + 1, True) if is_inside else self._content(one, depth + 1) for one in found
                )
                parts.append(self._joined([*copies], word != "allOf"))
        return {**self._joined(parts, is_union=False), **about}

    def _joined(self, parts: list[Schema], is_union: bool) -> Schema:
        """Join the parts. A reference stays if nothing else says more than a type."""
        given = [part for part in parts if (part.get("type") != ["null"] if is_union else part)]
        if not any("$ref" in part for part in given):
            return _joined(given, is_union)
        if not is_union:
            given = [part for part in given if part.keys() - {"type", "description"}]
        if len(given) > 1:
            given = [self._type(part["$ref"]) if "$ref" in part else part for part in given]
        return _joined(given, is_union)

    def _type(self, ref: str) -> Schema:
        try:
            kind = kind_of(self._document.object({"$ref": self._refs[ref.removeprefix(DEFINITIONS)]}))
        except UnresolvedError:
            return {}
        return {"type": [kind, "null"]} if kind in TYPES else {}

    def _own(self, schema: dict[str, Any], depth: int) -> Schema:
        """Return a copy of the keywords that describe a value, without alternatives and parts."""
        given = schema.get("type")
        types = [
            one for one in (given if isinstance(given, list) else [given]) if isinstance(one, str) and one in TYPES
        ]
        copied: Schema = {"type": list(dict.fromkeys((*types, "null")))} if types else {}
        if isinstance(word := schema.get("format"), str):
            copied["format"] = word[:MAX_DESCRIPTION]
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(values, list) and values:
            copied["examples"] = values[:MAX_EXAMPLES]
        if isinstance(members := schema.get("properties"), dict):
            copied["properties"] = {
                name: self._copied(member, depth + 1, True)
                for name, member in members.items()
                if not (isinstance(member, dict) and member.get("writeOnly") is True)
            }
        for key in ("items", "additionalProperties"):
            if isinstance(schema.get(key), dict):
                copied[key] = self._copied(schema[key], depth + 1, True)
        return copied


def _joined(given: list[Schema], is_union: bool) -> Schema:
    """Return one schema with the members of all parts: for values of any of them, or of all of them."""
    if len(given) < 2 or not all(given):
        return dict(given[0]) if len(given) == 1 else {}
    joined: Schema = {}
    types: list[Any] = [part.get("type") for part in given]
    if not is_union:
        for part in reversed(given):
            joined |= {key: part[key] for key in ("type", "format", "description", "examples") if key in part}
    elif all(types):
        joined["type"] = list(dict.fromkeys(chain.from_iterable(types)))
    members: dict[str, Schema] = {}
    for part in given:
        for name, schema in part.get("properties", {}).items():
            members[name] = _either(members[name], schema) if name in members else schema
        for key in ("items",) if is_union else ("items", "additionalProperties"):
            if key in part:
                joined[key] = _either(joined.get(key, part[key]), part[key])
    return joined | {"properties": members} if members else joined


def _either(one: Schema, other: Schema) -> Schema:
    """Return a schema for values of both: the same schema, or what is the same in both."""
    if one == other:
        return one
    return {key: one[key] for key in ("$ref", "type") if key in one and one[key] == other.get(key)}
