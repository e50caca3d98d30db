"""Validation of bundles and tools from users. Mistakes are reported with their places."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from typing import Annotated, Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from onetool.core.errors import MAX_SHOWN_VALUE, SchemaError, cut
from onetool.core.mismatch import TYPES, described, either, expected_types, type_of, violated_limit
from onetool.core.redaction import SecretPlaces
from onetool.core.schema import CompiledSchema, depth_of
from onetool.core.text import MAX_NAME, did_you_mean
from onetool.http.definition import ToolLimits, below
from onetool.sources.bundles.errors import Fault, InvalidError, invalid_at
from onetool.sources.bundles.model import IMPLS, BundleContent, ToolContent, ToolExample
from onetool.sources.bundles.names import check_slug


class _Mismatch(NamedTuple):
    path: tuple[str | int, ...]
    what: str


def _mismatches(kind: inspect.Type, value: Any, path: tuple[str | int, ...] = ()) -> Iterator[_Mismatch]:
    """Yield the parts of a value that don't fit its type."""
    choices = _choices(kind)
    if any(isinstance(choice, inspect.AnyType) for choice in choices):
        return
    literals = [one for choice in choices if isinstance(choice, inspect.LiteralType) for one in choice.values]
    if value in literals:
        return
    found = type_of(value)
    fitting = [choice for choice in choices if found in _TAKEN.get(type(choice), ())]
    if not fitting and literals and isinstance(value, str):
        yield _Mismatch(path, _not_one_of(value, map(str, literals)))
        return
    if not fitting:
        kinds = {_TAKEN[type(choice)][0] for choice in choices if type(choice) in _TAKEN}
        kinds |= {type_of(one) or "" for one in literals}
        expected = expected_types(kinds)
        if items := next((choice for choice in choices if isinstance(choice, _LISTS)), None):
            expected = expected.replace(TYPES["array"], f"a list{_of_items(items.item_type)}")
        yield _Mismatch(path, f"expected {expected}, got {described(value)}")
        return
    if (broken := violated_limit(value, fitting[0])) is not None:
        got = f", got {described(value)}" if found in ("integer", "number") else ""
        yield _Mismatch(path, f"must {broken}{got}")
    elif isinstance(fitting[0], inspect.StructType):
        yield from _struct_mismatches(cast(list[inspect.StructType], fitting), value, path)
    elif isinstance(fitting[0], inspect.DictType):
        for key, one in value.items():
            yield from _mismatches(fitting[0].key_type, key, (*path, key))
            yield from _mismatches(fitting[0].value_type, one, (*path, key))
    elif isinstance(fitting[0], _LISTS):
        for number, one in enumerate(value):
            yield from _mismatches(fitting[0].item_type, one, (*path, number))


def _struct_mismatches(
    structs: list[inspect.StructType], value: Mapping[str, Any], path: tuple[str | int, ...]
) -> Iterator[_Mismatch]:
    """Yield the parts of an object that don't fit its struct, which its tag selects if there are several."""
    struct, tag_key = structs[0], structs[0].tag_field
    if tag_key is not None:
        tags = {one.tag: one for one in structs}
        if tag_key not in value:
            yield _Mismatch(path, f"`{tag_key}` is missing: expected {either(map(str, tags))}")
            return
        if value[tag_key] not in tags:
            yield _Mismatch((*path, tag_key), _not_one_of(value[tag_key], map(str, tags)))
            return
        struct = tags[value[tag_key]]
    fields = {field.encode_name: field for field in struct.fields}
    is_right = True
    for key, one in value.items():
        if key in fields:
            for wrong in _mismatches(fields[key].type, one, (*path, key)):
                is_right = False
                yield wrong
        elif struct.forbid_unknown_fields and key != tag_key:
            is_right = False
            known = [name for name in (tag_key, *fields) if name]
            near = did_you_mean(key, known) or (f"known: {', '.join(known)}" if known else None)
            yield _Mismatch((*path, key), f"there is no such key; {near}" if near else "there is no such key")
    if missing := [name for name, field in fields.items() if field.required and name not in value]:
        yield _Mismatch(path, f"`{missing[0]}` is missing")
    elif is_right:
        try:
            msgspec.convert(value, struct.cls)
        except msgspec.ValidationError as error:  # a rule about several fields
            yield _Mismatch(path, str(error).partition(" - at `")[0])


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

MAX_FAULTS = 100  # of one part of the data

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
    faults = Faults()
    found = faults.read_tool(data, slug, version)
    faults.raise_first()
    return cast(ReadTool, found).content


def read_examples(data: Any) -> tuple[ToolExample, ...]:
    examples = converted(data, ExampleList).examples
    faults = Faults()
    faults.check_examples(examples)
    faults.raise_first()
    return examples


def refuse_secrets(examples: tuple[ToolExample, ...], schema: Mapping[str, Any]) -> None:
    """Raise InvalidError if examples contain arguments that the schema marks as secret, because models see examples."""
    for number, example in enumerate(examples):
        if (found := SecretPlaces(schema).first(example.args)) is not None:
            pointer = f"/examples/{number}/args{found}"
            why = "the schema marks it as secret (writeOnly, or format: password), and models see examples"
            raise invalid_at(pointer, f"{why}: leave it out")


def converted(data: Any, shape: type[T], at: str = "") -> T:
    """Convert data to the struct. Raises InvalidError with the first mistake, and its place."""
    faults = Faults()
    found = faults.converted(data, shape, at)
    faults.raise_first()
    return cast(T, found)


class ReadTool(NamedTuple):
    """A tool as it was read, with its implementation; None if that has too many mistakes."""

    content: ToolContent
    impl: Any
    limits: ToolLimits


class Faults:
    """The mistakes in the data of a user, in the order in which they are found. Only the first of a place counts."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    @property
    def found(self) -> list[Fault]:
        return [Fault(*one) for one in self._found.items()]

    def add(self, pointer: str, message: str) -> None:
        self._found.setdefault(pointer, message)

    @contextmanager
    def at(self, pointer: str) -> Iterator[None]:
        """Add an error of the block, at this place or at the error's own place below it."""
        try:
            yield
        except InvalidError as error:
            self.add(pointer + (error.pointer or ""), error.what)

    def has_any(self, pointer: str) -> bool:
        """Return whether there is a mistake at this place or below it."""
        return any(known == pointer or known.startswith(f"{pointer}/") for known in self._found)

    def raise_first(self) -> None:
        for fault in self._found.items():
            raise invalid_at(*fault)

    def converted(self, data: Any, shape: type[T], at: str = "") -> T | None:
        """Convert data to the struct, without the parts that have mistakes. Return None if that leaves too little."""
        try:
            return msgspec.convert(data, shape)
        except msgspec.ValidationError as error:
            wrong = [*islice(_mismatches(inspect.type_info(shape), data), MAX_FAULTS)] or [_Mismatch((), str(error))]
        except RecursionError:
            wrong = [_Mismatch((), "it is nested too deep")]
        for path, what in wrong:
            self.add(at + "".join(below("", cut(str(step), MAX_NAME)) for step in path), what)
        if any(not path for path, _ in wrong):
            return None
        try:
            return msgspec.convert(_without_parts(data, [path for path, _ in wrong]), shape)
        except msgspec.ValidationError:
            return None

    def read_tool(self, data: Any, slug: str, version: str) -> ReadTool | None:
        """Return a tool without the parts that have mistakes, or None if that leaves too little."""
        data = _without(data, _STORE_FIELDS)
        for key, expected in (("slug", slug), ("version", version)):
            if (value := data.pop(key, expected)) != expected:
                self.add(f"/{key}", f"expected {expected!r} as in the path, got {_cut(value)}")
        content = self.converted(data, ToolContent)
        if content is None:
            return None
        key, shape = IMPLS[content.type]
        if data.get(key) is None:
            self.add(f"/{key}", f"it is missing: tools of type {content.type!r} need it")
        for other, _ in IMPLS.values():
            if other != key and data.get(other) is not None:
                self.add(f"/{other}", f"it belongs to another type of tool than {content.type!r}")
        for number, step in enumerate(data["preProcessors"] if content.pre_processors else ()):
            if isinstance(step, dict) and "type" not in step:
                self.add(f"/preProcessors/{number}/type", 'it is missing: write "type": "script"')
        self.check_examples(content.examples)
        impl = self.converted(data[key], shape, f"/{key}") if isinstance(data.get(key), dict) else None
        limits = self.converted(content.limits, ToolLimits, "/limits") or ToolLimits()
        tags = tuple(dict.fromkeys(content.tags))
        return ReadTool(content if tags == content.tags else replace(content, tags=tags), impl, limits)

    def check_examples(self, examples: tuple[ToolExample, ...]) -> None:
        names = set[str]()
        for number, example in enumerate(examples):
            pointer = f"/examples/{number}"
            if example.name in names:
                self.add(f"{pointer}/name", f"duplicate name of an example: {cut(example.name, MAX_SHOWN_VALUE)!r}")
            names.add(example.name)
            if depth_of(example.args, MAX_EXAMPLE_DEPTH) >= MAX_EXAMPLE_DEPTH:
                self.add(f"{pointer}/args", f"nested deeper than {MAX_EXAMPLE_DEPTH} levels")
            elif len(msgspec.json.encode(example)) > MAX_EXAMPLE_BYTES:
                self.add(pointer, f"larger than {MAX_EXAMPLE_BYTES:,} bytes")


def bundle_faults(data: Any) -> list[Fault]:
    """Return all mistakes of a bundle."""
    faults = Faults()
    content = faults.converted(_without(data, KEPT | {"warnings"}), BundleContent)
    if content is not None:
        with faults.at("/slug"):
            check_slug(content.slug, None)
    return faults.found


def _without_parts(data: Any, paths: list[tuple[str | int, ...]], level: int = 0) -> Any:
    """Return a copy of the data without the parts at these paths."""
    steps = {path[level] for path in paths}
    gone = {path[level] for path in paths if len(path) == level + 1}
    parts = data.items() if isinstance(data, Mapping) else enumerate(data)
    kept = {
        step: _without_parts(part, [path for path in paths if path[level] == step], level + 1)
        if step in steps
        else part
        for step, part in parts
        if step not in gone
    }
    return kept if isinstance(data, Mapping) else list(kept.values())


def _without(data: Any, keys: frozenset[str]) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise InvalidError(f"expected an object, got {described(data)}", "")
    return {key: value for key, value in data.items() if key not in keys}


# Schemas

MAX_COSTS = 10_000
_costs: dict[bytes, int] = {}  # of valid schemas, by digest


def check_schemas(tool: ToolContent) -> None:
    """Raise InvalidError if a schema of the tool can't be used."""
    faults = Faults()
    schema_faults(tool, faults)
    faults.raise_first()


def schema_faults(tool: ToolContent, faults: Faults) -> None:
    schemas = (("/argSchema", tool.arg_schema, True), ("/outputSchema", tool.output_schema, False))
    for pointer, schema, closed in schemas:
        try:
            schema_cost(schema, closed)
        except SchemaError as error:
            faults.add(pointer, f"{error}")


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
