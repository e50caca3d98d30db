"""Validation of bundles and tools from users. Mistakes are reported with their places."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import chain
from typing import Annotated, Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import inspect

from onetool.core.errors import MAX_SHOWN_VALUE, SchemaError, cut
from onetool.core.mismatch import TYPES, described, either, expected_types, type_of, violated_limit
from onetool.core.redaction import SecretPlaces
from onetool.core.schema import CompiledSchema, depth_of
from onetool.core.text import MAX_NAME, did_you_mean
from onetool.http.definition import ToolLimits, below
from onetool.sources.bundles.errors import InvalidError, invalid_at
from onetool.sources.bundles.model import IMPLS, BundleContent, ToolContent, ToolExample


class _Mismatch(NamedTuple):
    path: tuple[str | int, ...]
    what: str


def _mismatch(kind: inspect.Type, value: Any, path: tuple[str | int, ...] = ()) -> _Mismatch | None:
    """Return the first part of a value that doesn't fit its type."""
    choices = _choices(kind)
    if any(isinstance(choice, inspect.AnyType) for choice in choices):
        return None
    literals = [one for choice in choices if isinstance(choice, inspect.LiteralType) for one in choice.values]
    if value in literals:
        return None
    found = type_of(value)
    fitting = [choice for choice in choices if found in _TAKEN.get(type(choice), ())]
    if not fitting and literals and isinstance(value, str):
        return _Mismatch(path, _not_one_of(value, map(str, literals)))
    if not fitting:
        kinds = {_TAKEN[type(choice)][0] for choice in choices if type(choice) in _TAKEN}
        kinds |= {type_of(one) or "" for one in literals}
        expected = expected_types(kinds)
        if items := next((choice for choice in choices if isinstance(choice, _LISTS)), None):
            expected = expected.replace(TYPES["array"], f"a list{_of_items(items.item_type)}")
        return _Mismatch(path, f"expected {expected}, got {described(value)}")
    if (broken := violated_limit(value, fitting[0])) is not None:
        got = f", got {described(value)}" if found in ("integer", "number") else ""
        return _Mismatch(path, f"must {broken}{got}")
    if isinstance(fitting[0], inspect.StructType):
        return _struct_mismatch(cast(list[inspect.StructType], fitting), value, path)
    if isinstance(fitting[0], inspect.DictType):
        checks = chain(
            ((fitting[0].key_type, key, key) for key in value),
            ((fitting[0].value_type, one, key) for key, one in value.items()),
        )
    elif isinstance(fitting[0], _LISTS):
        checks = ((fitting[0].item_type, one, number) for number, one in enumerate(value))
    else:
        return None
    return next((wrong for kind, one, step in checks if (wrong := _mismatch(kind, one, (*path, step)))), None)


def _struct_mismatch(
    structs: list[inspect.StructType], value: Mapping[str, Any], path: tuple[str | int, ...]
) -> _Mismatch | None:
    """Return the first part of an object that doesn't fit its struct, which its tag selects if there are several."""
    struct, tag_key = structs[0], structs[0].tag_field
    if tag_key is not None:
        tags = {one.tag: one for one in structs}
        if tag_key not in value:
            return _Mismatch(path, f"`{tag_key}` is missing: expected {either(map(str, tags))}")
        if value[tag_key] not in tags:
            return _Mismatch((*path, tag_key), _not_one_of(value[tag_key], map(str, tags)))
        struct = tags[value[tag_key]]
    fields = {field.encode_name: field for field in struct.fields}
    for key, one in value.items():
        if key in fields:
            if wrong := _mismatch(fields[key].type, one, (*path, key)):
                return wrong
        elif struct.forbid_unknown_fields and key != tag_key:
            known = [name for name in (tag_key, *fields) if name]
            near = did_you_mean(key, known) or (f"known: {', '.join(known)}" if known else None)
            return _Mismatch((*path, key), f"there is no such key; {near}" if near else "there is no such key")
    if missing := [name for name, field in fields.items() if field.required and name not in value]:
        return _Mismatch(path, f"`{missing[0]}` is missing")
    try:
        msgspec.convert(value, struct.cls)
    except msgspec.ValidationError as error:  # a rule about several fields
        return _Mismatch(path, str(error).partition(" - at `")[0])
    return None


_LISTS = (inspect.ListType, inspect.VarTupleType)
_TAKEN: dict[type[inspect.Type], tuple[str, ...]] = {  # the JSON types that a type takes; the first one describes it
    inspect.StrType: ("string",),
    inspect.IntType: ("integer",),
    inspect.FloatType: ("number", "integer"),
    inspect.BoolType: ("boolean",),
    inspect.NoneType: ("null",),
    inspect.ListType: ("array",),
    inspect.VarTupleType: ("array",),
    inspect.DictType: ("object",),
    inspect.StructType: ("object",),
}
_ITEMS = {inspect.StrType: " of strings", inspect.IntType: " of numbers", inspect.FloatType: " of numbers"}
_ITEMS |= {inspect.StructType: " of objects", inspect.DictType: " of objects"}


def _choices(kind: inspect.Type) -> list[inspect.Type]:
    """Return the types of a union."""
    if isinstance(kind, inspect.Metadata):
        return _choices(kind.type)
    return [one for member in kind.types for one in _choices(member)] if isinstance(kind, inspect.UnionType) else [kind]


def _of_items(kind: inspect.Type) -> str:
    return _ITEMS.get(type(_choices(kind)[0]), "")


def _not_one_of(value: Any, values: Iterable[str]) -> str:
    known = list(values)
    near = did_you_mean(value, known) if isinstance(value, str) else None
    text = f"{_cut(value)} is not one of {', '.join(known)}"
    return f"{text}; {near}" if near else text


def _cut(value: Any) -> str:
    return cut(repr(value), MAX_SHOWN_VALUE)


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
            raise invalid_at(f"/{key}", f"expected {expected!r} as in the path, got {shown}")
    content = converted(data, ToolContent)
    key, shape = IMPLS[content.type]
    if data.get(key) is None:
        raise invalid_at(f"/{key}", f"it is missing: tools of type {content.type!r} need it")
    for other, _ in IMPLS.values():
        if other != key and data.get(other) is not None:
            raise invalid_at(f"/{other}", f"it belongs to another type of tool than {content.type!r}")
    for number, step in enumerate(data.get("preProcessors") or ()):
        if "type" not in step:
            raise invalid_at(f"/preProcessors/{number}/type", 'it is missing: write "type": "script"')
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
            raise invalid_at(pointer, f"{why}: leave it out")


def _check_examples(examples: tuple[ToolExample, ...]) -> None:
    names = set[str]()
    for number, example in enumerate(examples):
        if example.name in names:
            pointer = f"/examples/{number}/name"
            raise invalid_at(pointer, f"duplicate name of an example: {cut(example.name, MAX_SHOWN_VALUE)!r}")
        names.add(example.name)
        if depth_of(example.args, MAX_EXAMPLE_DEPTH) >= MAX_EXAMPLE_DEPTH:
            pointer = f"/examples/{number}/args"
            raise invalid_at(pointer, f"nested deeper than {MAX_EXAMPLE_DEPTH} levels")
        if len(msgspec.json.encode(example)) > MAX_EXAMPLE_BYTES:
            pointer = f"/examples/{number}"
            raise invalid_at(pointer, f"larger than {MAX_EXAMPLE_BYTES:,} bytes")


def converted(data: Any, shape: type[T], at: str = "") -> T:
    """Convert data to the struct. Raises InvalidError with the first mistake, and its place."""
    try:
        return msgspec.convert(data, shape)
    except msgspec.ValidationError as error:
        wrong = _mismatch(inspect.type_info(shape), data)
        path, what = wrong or ((), str(error))
    except RecursionError:
        path, what = (), "it is nested too deep"
    raise invalid_at(at + "".join(below("", cut(str(step), MAX_NAME)) for step in path), what)


def _without(data: Any, keys: frozenset[str]) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise InvalidError(f"expected an object, got {described(data)}", "")
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
            raise invalid_at(pointer, f"{error}") from None


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
