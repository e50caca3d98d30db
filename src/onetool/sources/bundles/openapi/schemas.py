"""Convert the schemas of arguments into current JSON Schema.

Each schema is converted once. References, including recursive ones, become references into `$defs`; `assembly` joins a
schema with its definitions. Keywords with invalid values are dropped: documents contain `required: true`, `type: file`
and the like, and a less specific schema accepts more.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from onetool.core.schema_keywords import map_subschemas, subschemas, upgrade
from onetool.http.body import is_text_type
from onetool.sources.bundles.import_names import UniqueSlugs, printable
from onetool.sources.bundles.openapi.document import OpenApiDocument, UnresolvedError

_OVER_ESCAPED = re.compile(r"\\\\[dDsSwWpP]")  # a pattern that was escaped twice allows backslashes instead of a class
_MEDIA = re.compile(r"[a-z0-9!#$&^_.+*-]{1,60}/[a-z0-9!#$&^_.+*-]{1,80}")


def known_media(text: str) -> str:
    """Return a media type without its parameters, in lower case. "*/*" counts as JSON."""
    media = text.partition(";")[0].strip().lower()
    if not _MEDIA.fullmatch(media):
        return ""
    return "application/json" if media in ("*/*", "application/*", "text/json", "json") else media


def is_json(text: str) -> bool:
    media = known_media(text)
    return media == "application/json" or media.endswith("+json")


def is_multipart(text: str) -> bool:
    return known_media(text).startswith("multipart/")


def encoding_of(text: str) -> str:
    """Return the encoding for reading a response of this media type."""
    media = known_media(text)
    if is_json(media):
        return "json"
    if media == "text/event-stream":
        return "sse"
    return "text" if is_text_type(media) else "binary"


def kind_of(schema: dict[str, Any]) -> str | None:
    """Return the schema's only type apart from null, or None."""
    types = schema.get("type")
    if isinstance(types, list):
        types = next((one for one in types if one != "null"), None)
    if types is None and isinstance(schema.get("properties"), dict):
        return "object"
    if types is None and "items" in schema:
        return "array"
    return types if isinstance(types, str) else None


# Keywords that are copied if their values are valid

MAX_DESCRIPTION = 500
MAX_SAMPLE_BYTES = 2_000  # bytes of JSON
MAX_SAMPLES = 3
MAX_TEXT = 1_000  # of a pattern or a format

TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
ONE = (
    *("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED = ("dependentSchemas", "patternProperties", "properties")


def plain_keywords(schema: dict[str, Any]) -> dict[str, Any]:
    """Return all keywords except sub-schemas and references."""
    found = {name: value for name, fits in _FITS.items() if (value := schema.get(name)) is not None and fits(value)}
    if "const" in schema and is_small(schema["const"]):
        found["const"] = schema["const"]
    types = schema.get("type")
    if isinstance(types, list) and (known := [name for name in types if isinstance(name, str) and name in TYPES]):
        found["type"] = list(dict.fromkeys(known))
    elif isinstance(types, str) and types in TYPES:
        found["type"] = types
    if text := printable(schema.get("description"), MAX_DESCRIPTION):
        found["description"] = text
    if "default" in schema and is_small(schema["default"]):
        found["default"] = schema["default"]
    if isinstance(required := schema.get("required"), list):
        found["required"] = list(dict.fromkeys(name for name in required if isinstance(name, str)))
    if isinstance(values := schema.get("enum"), list) and values:
        found |= _enumeration(values, found.get("type"))
    if samples := samples_of(schema):
        found["examples"] = samples
    return found


def samples_of(holder: dict[str, Any]) -> list[Any]:
    """Return `example` and `examples`, a list (in schemas) or a map of `{value}` (in parameters and bodies)."""
    found = [holder["example"]] if "example" in holder else []
    more = holder.get("examples")
    if isinstance(more, list):
        found += more[:MAX_SAMPLES]
    elif isinstance(more, dict):
        values = list(more.values())[:MAX_SAMPLES]
        found += [sample["value"] for sample in values if isinstance(sample, dict) and "value" in sample]
    small = [sample for sample in found if is_small(sample)]
    return [sample for index, sample in enumerate(small) if sample not in small[:index]][:MAX_SAMPLES]


def is_small(value: Any) -> bool:
    try:
        return len(msgspec.json.encode(value)) <= MAX_SAMPLE_BYTES
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


_TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def _enumeration(values: list[Any], types: str | list[str] | None) -> dict[str, Any]:
    """Return the keyword, or wider types if no value has the type: together they would refuse everything."""
    known = set([types] if isinstance(types, str) else types or ())
    have = {"null" if value is None else _TYPE_NAMES.get(type(value), "object") for value in values}
    if not known or have & {*known, "null"} or ("number" in known and "integer" in have):
        return {"enum": values}
    return {} if known & {"array", "object"} else {"type": sorted(known | have)}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _names_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in value.values()
    )


_FITS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("minimum", "maximum"), _number),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), lambda value: isinstance(value, int | float)),
    "multipleOf": lambda value: _number(value) and value > 0,
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _count),
    **dict.fromkeys(("minContains", "maxContains"), _count),
    **dict.fromkeys(("uniqueItems", "deprecated", "writeOnly"), lambda value: value is True),
    **dict.fromkeys(("format", "contentEncoding"), lambda value: isinstance(value, str) and len(value) <= MAX_TEXT),
    "pattern": lambda value: isinstance(value, str) and len(value) <= MAX_TEXT and not _OVER_ESCAPED.search(value),
    "dependentRequired": _names_by_name,
}


# Conversion to JSON Schema

MAX_DEPTH = 40  # levels of sub-schemas; deeper ones accept anything
INLINE = 3  # levels of definitions inside of each other


class Definition(NamedTuple):
    """A converted schema with its references."""

    schema: Any
    uses: tuple[str, ...]  # names of other definitions, with repetitions
    size: int = 0  # bytes of JSON


class Schemas:
    """The schemas of the arguments in one document, converted on demand."""

    def __init__(self, document: OpenApiDocument, note: Callable[[str], None]) -> None:
        self._document = document
        self._note = note
        self._names: dict[str, str] = {}  # of definitions, by reference
        self._taken = UniqueSlugs()
        self._known: dict[int, tuple[Any, Definition]] = {}  # with the schema, so that its id is not reused
        self._refs: dict[str, str] = {}  # of definitions, by name

    def read(self, schema: Any) -> Definition:
        """Convert a schema into the current draft."""
        if id(schema) not in self._known:
            self._known[id(schema)] = (schema, defined(upgrade(self._convert(schema, 0))))
        return self._known[id(schema)][1]

    def definition(self, name: str) -> Definition:
        """Return the definition with a name that a converted schema uses."""
        try:
            return self.read(self._document.at(self._refs[name]))
        except UnresolvedError as error:
            self._note(f"{error}; any value is accepted instead")
            return defined({})

    def _convert(self, schema: Any, depth: int) -> Any:
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return schema if isinstance(schema, bool) else {}
        ref = schema.get("$ref")
        if isinstance(ref, str):
            return self._convert_reference(schema, ref)
        found = plain_keywords(schema)
        for name in ONE:
            if isinstance(schema.get(name), dict | bool):
                found[name] = self._convert(schema[name], depth + 1)
        for name in MANY:
            if isinstance(schema.get(name), list) and schema[name]:
                found[name] = [self._convert(inner, depth + 1) for inner in schema[name]]
        for name in NAMED:
            if isinstance(schema.get(name), dict):
                found[name] = {key: self._convert(inner, depth + 1) for key, inner in schema[name].items()}
        if isinstance(properties := schema.get("properties"), dict):
            for name in [name for name, member in properties.items() if self._document.is_marked(member, "readOnly")]:
                del found["properties"][name]
                if name in found.get("required", ()):
                    found["required"].remove(name)
        if "oneOf" in found:  # APIs accept values that fit several alternatives
            alternatives = {"anyOf": found.pop("oneOf")}
            found |= {"allOf": [*found.get("allOf", ()), alternatives]} if "anyOf" in found else alternatives
        if found.get("additionalProperties", True) not in (True, {}) and ("allOf" in found or "anyOf" in found):
            # It is meant for members that no part describes; in JSON Schema it would refuse those of all parts.
            found["unevaluatedProperties"] = found.pop("additionalProperties")
        if isinstance(schema.get("items"), list):  # of older drafts
            found["items"] = [self._convert(inner, depth + 1) for inner in schema["items"]]
        return _nullable(found) if schema.get("nullable") is True else found

    def _convert_reference(self, schema: dict[str, Any], ref: str) -> dict[str, Any]:
        """Return a reference with its sibling keywords, which 3.1 allows. In 3.0 only descriptions are kept."""
        if ref not in self._names:
            name = self._names[ref] = self._taken.take([definition_name(ref)])
            self._refs[name] = ref
        found: dict[str, Any] = {"$ref": f"{DEFINITIONS}{self._names[ref]}"}
        if text := printable(schema.get("description"), MAX_DESCRIPTION):
            found["description"] = text
        if "default" in schema:
            found["default"] = schema["default"]
        return {"anyOf": [found, {"type": "null"}]} if schema.get("nullable") is True else found


DEFINITIONS = "#/$defs/"


def definition_name(ref: str) -> str:
    """Return a name for the target of a reference: its last step."""
    last = ref.rpartition("/")[2].replace("~1", "-")
    plain = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "_.-") else "-" for sign in last)
    return plain[:60] or "schema"


def defined(schema: Any) -> Definition:
    return Definition(schema, tuple(references(schema)), size_of(schema))


def size_of(schema: Any) -> int:
    return len(msgspec.json.encode(schema))


def with_definitions(
    root: Definition, definition: Callable[[str], Definition], max_bytes: int, reach: int
) -> tuple[dict[str, Any], str | None]:
    """Return a schema with its definitions within `reach` references, and why others are only outlined, if any are.

    A definition that is used once stands where it is used, unless it is in several others like it.
    """
    size, why, edge, uses = root.size, None, {*root.uses}, Counter(root.uses)
    found: dict[str, Any] = {}
    for level in range(reach + 1):
        following: set[str] = set()
        for name in sorted(edge - found.keys()):
            one = definition(name)
            size += one.size
            if level == reach:
                why = why or f"it continues after {reach} references"
            elif size > max_bytes:
                why = why or f"it is too large ({size // 1024:,} KiB; the limit is {max_bytes // 1024} KiB)"
            else:
                found[name] = one.schema
                following.update(one.uses)
                uses.update(one.uses)
                continue
            found[name] = outline(one.schema)
        edge = following
    kept: dict[str, Any] = {}

    def placed(schema: Any, level: int) -> Any:
        if not isinstance(schema, dict):
            return schema
        if not isinstance(ref := schema.get("$ref"), str):
            return map_subschemas(schema, lambda inner: placed(inner, level))
        name = ref.removeprefix(DEFINITIONS)
        if uses[name] == 1 and level < INLINE:
            return {**placed(found[name], level + 1), **{key: schema[key] for key in schema if key != "$ref"}}
        if name not in kept:
            kept[name] = None  # it may refer to itself
            kept[name] = placed(found[name], 0)
        return schema

    schema = placed(root.schema, 0) if found else root.schema
    return {**schema, "$defs": kept} if kept else schema, why


def references(schema: Any) -> Iterator[str]:
    """Yield the definitions that a converted schema refers to, with repetitions."""
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if isinstance(ref := part.get("$ref"), str):
                yield ref.removeprefix(DEFINITIONS)
            pending.extend(subschemas(part))


def outline(schema: Any) -> dict[str, Any]:
    """Return the schema's own type without its members."""
    if not isinstance(schema, dict):
        return {}
    return {key: schema[key] for key in ("type", "description") if key in schema}


def shallow(schema: Any, levels: int) -> Any:
    if not isinstance(schema, dict):
        return schema
    if levels == 0 or "$ref" in schema:
        return outline(schema)
    small = {key: value for key, value in schema.items() if key not in ("enum", "pattern", "examples", "default")}
    return map_subschemas(small, lambda inner: shallow(inner, levels - 1))


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Convert `nullable: true` of 3.0 into the type null of JSON Schema."""
    types = schema.get("type")
    if types is None:
        about = {key: schema.pop(key) for key in ("description", "default", "examples") if key in schema}
        return {"anyOf": [schema, {"type": "null"}], **about} if schema else about
    types = types if isinstance(types, list) else [types]
    schema["type"] = [*types, "null"] if "null" not in types else types
    if "enum" in schema and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    return schema
