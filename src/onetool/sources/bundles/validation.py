"""Validates what a person gives of a bundle or a tool. What is wrong is reported with a JSON pointer."""

import re
from collections.abc import Iterator, Mapping, Sequence
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
    """`path` leads to the object that has the key."""
    known = [name for kind in _structs(_at(shape, data, path)[0]) for name in _keys(kind)]
    near = did_you_mean(key, known) or (f"there are {', '.join(known)}" if known else None)
    return f"there is no such key; {near}" if near else "there is no such key"


def wrong_value(shape: type, data: Any, path: Sequence[str]) -> str | None:
    """Return the message for a value that is not in a fixed list; None if the list is not fixed."""
    kinds, value = _at(shape, data, path)
    values = [str(one) for kind in kinds if isinstance(kind, inspect.LiteralType) for one in kind.values]
    if path and not values:  # or it says which of several shapes the object around it has
        around = _structs(_at(shape, data, path[:-1])[0])
        values = [str(kind.tag) for kind in around if kind.tag_field == path[-1]]
    if not values:
        return None
    near = did_you_mean(value, values) if isinstance(value, str) else None
    text = f"{cut(repr(value), MAX_SHOWN_VALUE)} is not one of {', '.join(values)}"
    return f"{text}; {near}" if near else text


def _keys(kind: inspect.StructType) -> Iterator[str]:
    if kind.tag_field is not None:
        yield kind.tag_field
    yield from (field.encode_name for field in kind.fields)


def _at(shape: type, data: Any, path: Sequence[str]) -> tuple[list[inspect.Type], Any]:
    """Return the types that are possible at a place, and its value."""
    kinds = _kinds(inspect.type_info(shape), data)
    for step in path:
        data = _below(data, step)
        kinds = [one for kind in kinds for inner in _inner(kind, step) for one in _kinds(inner, data)]
    return kinds, data


def _kinds(kind: inspect.Type, data: Any) -> list[inspect.Type]:
    """Return the types of a union; where a tag names one, that one alone."""
    if isinstance(kind, inspect.Metadata):
        return _kinds(kind.type, data)
    if not isinstance(kind, inspect.UnionType):
        return [kind]
    found = [one for each in kind.types for one in _kinds(each, data)]
    tagged = _structs(found) if isinstance(data, Mapping) else []
    said: list[inspect.Type] = [one for one in tagged if one.tag is not None and data.get(one.tag_field) == one.tag]
    return said or found


def _structs(kinds: list[inspect.Type]) -> list[inspect.StructType]:
    return [kind for kind in kinds if isinstance(kind, inspect.StructType)]


def _inner(kind: inspect.Type, step: str) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        yield from (field.type for field in kind.fields if field.encode_name == step)
    elif isinstance(kind, inspect.DictType):
        yield kind.value_type
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
        yield kind.item_type


def _below(data: Any, step: str) -> Any:
    if isinstance(data, Mapping):
        return data.get(step)
    if isinstance(data, Sequence) and not isinstance(data, str) and step.isdigit() and int(step) < len(data):
        return data[int(step)]
    return None


# Reading data from outside


T = TypeVar("T")

# What the store knows itself. It may come back with what was got from it, and is not looked at.
KEPT = frozenset(
    ("id", "isBuiltIn", "createdAt", "modifiedAt", "softDeletedAt", "schemaVersion", "bundleID", "digest", "source")
)
SHOWN = frozenset(
    (
        *("disabledReason", "callCount", "lastCalledAt", "warnings", "name", "bundleSlug", "origin", "health"),
        *("signature", "effect", "inherited", "takesOver"),
    )
)
_NOT_OF_A_TOOL = KEPT | SHOWN

_PATH = re.compile(r"\.([A-Za-z0-9_]+)|\[(\d+)\]|\[\.\.\.\]")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")

MAX_EXAMPLE_BYTES = 16 * 1024  # bytes of JSON
MAX_EXAMPLE_DEPTH = 100  # levels of its arguments; files have a few more


class ExampleList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All examples of a tool."""

    examples: Annotated[tuple[ToolExample, ...], msgspec.Meta(max_length=20)]


def read_bundle(data: Any) -> BundleContent:
    return converted(_without(data, KEPT), BundleContent)


def read_tool(data: Any, slug: str, version: str) -> ToolContent:
    """`slug` and `version` are those of the place that it is put to; where it names others, that is a mistake."""
    data = _without(data, _NOT_OF_A_TOOL)
    for key, meant in (("slug", slug), ("version", version)):
        if (named := data.pop(key, meant)) != meant:
            raise InvalidError(
                f"{key}: it is put to {meant!r}, but says {cut(repr(named), MAX_SHOWN_VALUE)} of itself", f"/{key}"
            )
    content = converted(data, ToolContent)
    key, shape = IMPLS[content.type]
    if data.get(key) is None:
        raise InvalidError(f"{key} is missing: a tool of type {content.type!r} needs it", f"/{key}")
    for other, _ in IMPLS.values():
        if other != key and data.get(other) is not None:
            raise InvalidError(f"{other} belongs to another type of tool; this one's is {content.type!r}", f"/{other}")
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
    """Raises InvalidError for an argument that the schema marks as secret: models see examples."""
    for number, example in enumerate(examples):
        if (found := SecretPlaces(schema).first(example.args)) is not None:
            pointer = f"/examples/{number}/args{found}"
            why = "its schema says that it is secret (writeOnly, or format: password), and models see examples"
            raise InvalidError(f"{pointer}: {why}: leave it out", pointer)


def _check_examples(examples: tuple[ToolExample, ...]) -> None:
    names = set[str]()
    for number, example in enumerate(examples):
        if example.name in names:
            pointer = f"/examples/{number}/name"
            raise InvalidError(
                f"{pointer}: there is an example called {cut(example.name, MAX_SHOWN_VALUE)!r} before", pointer
            )
        names.add(example.name)
        if depth_of(example.args, MAX_EXAMPLE_DEPTH) >= MAX_EXAMPLE_DEPTH:
            pointer = f"/examples/{number}/args"
            raise InvalidError(f"{pointer}: it is nested deeper than {MAX_EXAMPLE_DEPTH} levels", pointer)
        if len(msgspec.json.encode(example)) > MAX_EXAMPLE_BYTES:
            pointer = f"/examples/{number}"
            raise InvalidError(f"{pointer}: it has more than {MAX_EXAMPLE_BYTES:,} bytes, which is the most", pointer)


def converted(data: Any, shape: type[T], below: str = "") -> T:
    """Convert data to the struct. Raises InvalidError with a pointer to what does not fit."""
    try:
        return msgspec.convert(data, shape)
    except (msgspec.ValidationError, RecursionError) as error:
        message, _, place = str(error).partition(" - at `")
        path = [name or number or "-" for name, number in _PATH.findall(place)]
        raise _misfit(message, path, below, data, shape) from None


def _misfit(message: str, path: list[str], below: str, data: Any, shape: type) -> InvalidError:
    """Return the InvalidError for data that does not fit: with the possible values, and a pointer to an unknown key."""
    pointer = below + "".join(f"/{step}" for step in path)
    if match := _UNKNOWN.search(message):
        key = cut(match[1], MAX_NAME)
        pointer = f"{pointer}/{key}"
        return InvalidError(f"{pointer}: {unknown_key(shape, data, path, key)}", pointer)
    text = wrong_value(shape, data, path) if message.startswith("Invalid ") else None
    return InvalidError(f"{pointer or 'the body'}: {text or message[:1].lower() + cut(message[1:], MAX_NAME)}", pointer)


def _without(data: Any, keys: frozenset[str]) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise InvalidError("the body: expected a JSON object", "")
    return {key: value for key, value in data.items() if key not in keys}


# Schemas


MAX_COSTS = 10_000
_costs: dict[bytes, int] = {}  # of schemas that can be used, by their digests


def check_schemas(tool: ToolContent) -> None:
    """Raise InvalidError for a schema of the tool that can't be used."""
    schemas = (("/argSchema", tool.arg_schema, True), ("/outputSchema", tool.output_schema, False))
    for pointer, schema, closed in schemas:
        try:
            schema_cost(schema, closed)
        except SchemaError as error:
            raise InvalidError(f"{pointer}: {error}", pointer) from None


def schema_cost(schema: dict[str, Any], closed: bool) -> int:
    """Return the number of checks that one value may need. Raises SchemaError for a schema that can't be used.

    Nothing about a tool takes as long as this, and tools of one API share many schemas: each is compiled once.
    """
    if not schema:
        return 0
    try:
        key = sha256(msgspec.json.encode((closed, schema))).digest()
    except (ValueError, RecursionError):  # half of a character
        return CompiledSchema(schema, closed=closed).cost
    cost = _costs.get(key)
    if cost is None:
        cost = CompiledSchema(schema, closed=closed).cost
        if len(_costs) >= MAX_COSTS:
            _costs.clear()
        _costs[key] = cost
    return cost
