"""Validation of bundles and tools from users. Mistakes are reported with a JSON pointer."""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import inspect

from onetool.core.errors import MAX_SHOWN_VALUE, SchemaError, cut
from onetool.core.redaction import SecretPlaces
from onetool.core.schema import CompiledSchema, depth_of
from onetool.core.text import MAX_NAME, did_you_mean
from onetool.http.definition import ToolLimits
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.model import IMPLS, BundleContent, ToolContent, ToolExample


def unknown_key(shape: type, data: Any, path: Sequence[str], key: str) -> str:
    """Return the message for an unknown key. `path` leads to the object with the key."""
    structs = _structs(_at(shape, data, path)[0])
    known = [
        name for kind in structs for name in (kind.tag_field, *(field.encode_name for field in kind.fields)) if name
    ]
    near = did_you_mean(key, known) or (f"known: {', '.join(known)}" if known else None)
    return f"there is no such key; {near}" if near else "there is no such key"


def wrong_value(shape: type, data: Any, path: Sequence[str]) -> str | None:
    """Return the message for a value outside a fixed list, or None if the place has no fixed list."""
    kinds, value = _at(shape, data, path)
    values = [str(text) for kind in kinds if isinstance(kind, inspect.LiteralType) for text in kind.values]
    if path and not values:  # or the value is the tag of a union
        around = _structs(_at(shape, data, path[:-1])[0])
        values = [str(kind.tag) for kind in around if kind.tag_field == path[-1]]
    if not values:
        return None
    near = did_you_mean(value, values) if isinstance(value, str) else None
    text = f"{cut(repr(value), MAX_SHOWN_VALUE)} is not one of {', '.join(values)}"
    return f"{text}; {near}" if near else text


def _at(shape: type, data: Any, path: Sequence[str]) -> tuple[list[inspect.Type], Any]:
    """Return the possible types at a place, and its value."""
    kinds = _kinds(inspect.type_info(shape), data)
    for step in path:
        if isinstance(data, Mapping):
            data = data.get(step)
        else:
            is_item = (
                isinstance(data, Sequence) and not isinstance(data, str) and step.isdigit() and int(step) < len(data)
            )
            data = data[int(step)] if is_item else None
        inside: list[inspect.Type] = []
        for kind in kinds:
            if isinstance(kind, inspect.StructType):
                inside += (field.type for field in kind.fields if field.encode_name == step)
            elif isinstance(kind, inspect.DictType):
                inside.append(kind.value_type)
            elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
                inside.append(kind.item_type)
        kinds = [choice for kind in inside for choice in _kinds(kind, data)]
    return kinds, data


def _kinds(kind: inspect.Type, data: Any) -> list[inspect.Type]:
    """Return the types of a union, or only the type that the tag selects."""
    if isinstance(kind, inspect.Metadata):
        return _kinds(kind.type, data)
    if not isinstance(kind, inspect.UnionType):
        return [kind]
    choices = [choice for member in kind.types for choice in _kinds(member, data)]
    tagged = _structs(choices) if isinstance(data, Mapping) else []
    selected: list[inspect.Type] = [
        choice for choice in tagged if choice.tag is not None and data.get(choice.tag_field) == choice.tag
    ]
    return selected or choices


def _structs(kinds: list[inspect.Type]) -> list[inspect.StructType]:
    return [kind for kind in kinds if isinstance(kind, inspect.StructType)]


# Reading data from outside

T = TypeVar("T")

# Fields set by the store. Clients may send them back, and they are ignored.
KEPT = frozenset(
    ("id", "isBuiltIn", "createdAt", "modifiedAt", "softDeletedAt", "schemaVersion", "bundleID", "digest", "source")
)
SHOWN = frozenset(
    (
        *("disabledReason", "callCount", "lastCalledAt", "warnings", "name", "bundleSlug", "origin", "health"),
        *("signature", "effect", "inherited", "takesOver"),
    )
)
_STORE_FIELDS = KEPT | SHOWN

_PATH = re.compile(r"\.([A-Za-z0-9_]+)|\[(\d+)\]|\[\.\.\.\]")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")

MAX_EXAMPLE_BYTES = 16 * 1024  # bytes of JSON
MAX_EXAMPLE_DEPTH = 100  # levels of the arguments; files have a few more


class ExampleList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All examples of a tool."""

    examples: Annotated[tuple[ToolExample, ...], msgspec.Meta(max_length=20)]


def read_bundle(data: Any) -> BundleContent:
    return converted(_without(data, KEPT | {"warnings"}), BundleContent)


def read_tool(data: Any, slug: str, version: str) -> ToolContent:
    """Read a tool for the place of `slug` and `version`. A different slug or version in the data is a mistake."""
    data = _without(data, _STORE_FIELDS)
    for key, expected in (("slug", slug), ("version", version)):
        if (value := data.pop(key, expected)) != expected:
            shown = cut(repr(value), MAX_SHOWN_VALUE)
            raise InvalidError(f"{key}: expected {expected!r} as in the path, got {shown}", f"/{key}")
    content = converted(data, ToolContent)
    key, shape = IMPLS[content.type]
    if data.get(key) is None:
        raise InvalidError(f"{key} is missing: tools of type {content.type!r} need this key", f"/{key}")
    for other, _ in IMPLS.values():
        if other != key and data.get(other) is not None:
            raise InvalidError(f"{other} belongs to another type of tool than {content.type!r}", f"/{other}")
    for number, step in enumerate(data.get("preProcessors") or ()):
        if "type" not in step:
            pointer = f"/preProcessors/{number}/type"
            raise InvalidError(f'{pointer} is missing: write "type": "script"', pointer)
    _check_examples(content.examples)
    converted(data[key], shape, f"/{key}")
    if limits := data.get("limits"):
        converted(limits, ToolLimits, "/limits")
    tags = tuple(dict.fromkeys(content.tags))
    return content if tags == content.tags else msgspec.structs.replace(content, tags=tags)


def read_examples(data: Any) -> tuple[ToolExample, ...]:
    examples = converted(data, ExampleList).examples
    _check_examples(examples)
    return examples


def refuse_secrets(examples: tuple[ToolExample, ...], schema: Mapping[str, Any]) -> None:
    """Raise InvalidError if examples contain arguments that the schema marks as secret, because models see examples."""
    for number, example in enumerate(examples):
        if (found := SecretPlaces(schema).first(example.args)) is not None:
            pointer = f"/examples/{number}/args{found}"
            why = "the schema marks it as secret (writeOnly, or format: password), and models see examples"
            raise InvalidError(f"{pointer}: {why}: leave it out", pointer)


def _check_examples(examples: tuple[ToolExample, ...]) -> None:
    names = set[str]()
    for number, example in enumerate(examples):
        if example.name in names:
            pointer = f"/examples/{number}/name"
            raise InvalidError(
                f"{pointer}: duplicate name of an example: {cut(example.name, MAX_SHOWN_VALUE)!r}", pointer
            )
        names.add(example.name)
        if depth_of(example.args, MAX_EXAMPLE_DEPTH) >= MAX_EXAMPLE_DEPTH:
            pointer = f"/examples/{number}/args"
            raise InvalidError(f"{pointer}: nested deeper than {MAX_EXAMPLE_DEPTH} levels", pointer)
        if len(msgspec.json.encode(example)) > MAX_EXAMPLE_BYTES:
            pointer = f"/examples/{number}"
            raise InvalidError(f"{pointer}: larger than {MAX_EXAMPLE_BYTES:,} bytes", pointer)


def converted(data: Any, shape: type[T], below: str = "") -> T:
    """Convert data to the struct. Raises InvalidError with the possible values, and a pointer to the first mismatch."""
    try:
        return msgspec.convert(data, shape)
    except (msgspec.ValidationError, RecursionError) as error:
        message, _, place = str(error).partition(" - at `")
        path = [name or number or "-" for name, number in _PATH.findall(place)]
        pointer = below + "".join(f"/{step}" for step in path)
        if match := _UNKNOWN.search(message):
            key = cut(match[1], MAX_NAME)
            pointer = f"{pointer}/{key}"
            raise InvalidError(f"{pointer}: {unknown_key(shape, data, path, key)}", pointer) from None
        text = wrong_value(shape, data, path) if message.startswith("Invalid ") else None
        text = text or message[:1].lower() + cut(message[1:], MAX_NAME)
        raise InvalidError(f"{pointer or 'the body'}: {text}", pointer) from None


def _without(data: Any, keys: frozenset[str]) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise InvalidError("the body: expected a JSON object", "")
    return {key: value for key, value in data.items() if key not in keys}


# Schemas

MAX_COSTS = 10_000
_costs: dict[bytes, int] = {}  # of valid schemas, by digest


def check_schemas(tool: ToolContent) -> None:
    """Raise InvalidError if a schema of the tool can't be used."""
    schemas = (("/argSchema", tool.arg_schema, True), ("/outputSchema", tool.output_schema, False))
    for pointer, schema, closed in schemas:
        try:
            schema_cost(schema, closed)
        except SchemaError as error:
            raise InvalidError(f"{pointer}: {error}", pointer) from None


def schema_cost(schema: dict[str, Any], closed: bool) -> int:
    """Return the number of checks that validating a value may need. Raises SchemaError for an unusable schema.

    Compiling schemas is the slowest part of storing a tool, and tools of one API share many schemas, so each schema is
    compiled once.
    """
    if not schema:
        return 0
    try:
        key = sha256(msgspec.json.encode((closed, schema))).digest()
    except (ValueError, RecursionError):  # a lone surrogate
        return CompiledSchema(schema, closed=closed).cost
    cost = _costs.get(key)
    if cost is None:
        cost = CompiledSchema(schema, closed=closed).cost
        if len(_costs) >= MAX_COSTS:
            _costs.clear()
        _costs[key] = cost
    return cost
