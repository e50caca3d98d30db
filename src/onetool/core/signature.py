"""Writes a tool as Python code would call it, and as a model or a person reads it: its identifier, signature and types.

Python can't write `12306-mcp.get-date`, so code writes `_12306_mcp.get_date`. A name that is an identifier stays as it
is; of two names with the same identifier one gets a short hash, which does not depend on what other tools there are.
Arguments that somebody typed as texts are JSON where the tool's schema wants data, else the text itself. Tools that a
search found take a line each, the best first, within a budget of tokens.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from keyword import iskeyword
from typing import Any, cast
from unicodedata import normalize

import msgspec

from onetool.core.errors import cut
from onetool.core.spec import ToolSpec
from onetool.core.text import MAX_NAME, count_tokens, cut_to_tokens


def call_text(name: str, args: Mapping[str, Any]) -> str:
    """Return a call as code writes it; by `ot.call` where Python can't say the name of the tool or of an argument."""
    if any(sign in name for sign in "@/") or any(as_identifier(arg) != arg for arg in args):
        return f"ot.call({name!r}, {dict(args)!r})"
    word = ".".join(map(as_identifier, name.split(".")))
    return f"{word}({', '.join(f'{arg}={value!r}' for arg, value in args.items())})"


@lru_cache(maxsize=4096)
def as_identifier(name: str) -> str:
    """Return the identifier closest to a name, in NFKC, as Python reads identifiers."""
    if name.isascii() and name.isidentifier() and not iskeyword(name):
        return name
    letters = "".join(char if f"a{char}".isidentifier() else "_" for char in normalize("NFKC", name))
    letters = normalize("NFKC", letters)
    if not letters.isidentifier():
        letters = f"_{letters}"
    return f"{letters}_" if iskeyword(letters) else letters


def as_identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Return every name by its spelling, in whatever order they come. Names that are their own spelling keep it.

    `taken` are words that mean something else already.
    """
    wanted: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        wanted.setdefault(as_identifier(name), []).append(name)
    reserved = frozenset(taken)
    used = {*wanted, *reserved}
    found: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for spelling, same in wanted.items():
        if spelling not in reserved and (len(same) == 1 or spelling in same):
            found[spelling] = spelling if spelling in same else same[0]
        others += [(name, spelling) for name in same if found.get(spelling) != name]
    for name, spelling in sorted(others):
        from hashlib import sha256  # slow to load, and hardly a name needs it

        digest = sha256(name.encode(errors="surrogatepass")).hexdigest()
        word = next(word for end in range(4, 65) if (word := f"{spelling}_{digest[:end]}") not in used)
        used.add(word)
        found[word] = name
    return found


# Arguments by name


def arguments_by_name(spec: ToolSpec, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by parameter name. Raises TypeError for too many, or for two values of one parameter.

    A parameter whose name Python can't say may be given by its spelling: `from_` for `from`.
    """
    given = dict(zip(spec.order, args, strict=False))
    if len(args) > len(given):
        raise TypeError(f"{spec.name} takes {len(spec.order)} arguments at the most, got {len(args)}")
    by_word = _parameters_by_word(spec.order)
    for word, value in named.items():
        name = by_word.get(word, word)
        if name in given:
            raise TypeError(f"{spec.name} got {name:.{MAX_NAME}} twice")
        given[name] = value
    return given


def parameter_named(spec: ToolSpec, word: str) -> str:
    """Return the parameter with this name or identifier; the word itself if there is none."""
    return _parameters_by_word(spec.order).get(word, word)


@lru_cache(maxsize=1024)
def _parameters_by_word(order: tuple[str, ...]) -> dict[str, str]:
    """Return the parameters by name and by identifier. A name comes before the identifier of another parameter."""
    return {**{as_identifier(name): name for name in reversed(order)}, **{name: name for name in order}}


# Types

MAX_TYPE_LEVELS = 6  # of arrays, alternatives, objects and references inside of each other
MAX_TYPE_PARTS = 500  # of a schema that are looked at
MAX_FIELD_LEVELS = 3  # objects inside of each other whose fields are told
MAX_FIELDS = 400  # characters that fields may take
MAX_VALUES, MAX_VALUES_TEXT = 8, 200  # of an enumeration

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_VALUES: dict[Any, str] = {str: "str", int: "int", float: "float", bool: "bool", type(None): "None"}
_REFERENCES = 4  # from one to the next


def type_name(schema: Any, root: Mapping[str, Any] | None = None) -> str:
    """Return the type hint of a schema. `root` has the definitions that the schema may refer to."""
    return _Namer(root or {}).name(schema, MAX_TYPE_LEVELS, 0)


def type_with_fields(schema: Any, root: Mapping[str, Any]) -> str:
    """Return the same with the fields of its objects, as deep as there is room; empty if no fields are known."""
    text = ""
    for objects in range(MAX_FIELD_LEVELS, 0, -1):
        namer = _Namer(root)
        text = namer.name(schema, MAX_TYPE_LEVELS, objects)
        if not namer.has_fields:
            return ""
        if len(text) <= MAX_FIELDS:
            break
    return cut(text, MAX_FIELDS)


def resolve_definition(schema: Any, root: Mapping[str, Any]) -> Any:
    """Return what a reference to a definition means, with what is said beside it."""
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


def kinds_of(schema: Any, root: Mapping[str, Any], levels: int = MAX_TYPE_LEVELS) -> set[str]:
    """Return the types that a schema takes, alternatives included; none if it doesn't say."""
    part = resolve_definition(schema, root)
    if levels == 0 or not isinstance(part, Mapping):
        return set()
    known = cast(Mapping[str, Any], part)
    kinds = known.get("type")
    found = (
        set(cast(list[str], kinds)) if isinstance(kinds, list) else {kinds} if isinstance(kinds, str) else set[str]()
    )
    for word in ("anyOf", "oneOf"):
        if isinstance(arms := known.get(word), list):
            found = found.union(*(kinds_of(arm, root, levels - 1) for arm in cast(list[Any], arms)))
    return found


class _Namer:
    """Names the types of one schema, and counts how much of it was looked at."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = MAX_TYPE_PARTS
        self.has_fields = False

    def name(self, schema: Any, levels: int, objects: int) -> str:
        self._left -= 1
        schema = resolve_definition(schema, self._root)
        if not isinstance(schema, Mapping) or levels == 0 or self._left < 0:
            return "Any"
        parts = cast(Mapping[str, Any], schema)
        if "const" in parts:
            return _literal([parts["const"]])
        if isinstance(values := parts.get("enum"), list):
            return _literal(cast(list[Any], values))
        for word in ("anyOf", "oneOf"):
            if isinstance(arms := parts.get(word), list):
                return self._arms(cast(list[Any], arms), levels, objects)
        if isinstance(kinds := parts.get("type"), list):
            return _union(self._kind(kind, parts, levels, objects) for kind in cast(list[Any], kinds))
        return self._kind(kinds, parts, levels, objects)

    def _arms(self, arms: list[Any], levels: int, objects: int) -> str:
        """Name alternatives. Constants among them are the values of an enumeration."""
        constants: list[Any] = []
        names: list[str] = []
        for arm in arms:
            if isinstance(arm, Mapping) and "const" in arm:
                constants.append(cast(Mapping[str, Any], arm)["const"])
            else:
                names.append(self.name(arm, levels - 1, objects))
        return _union([_literal(constants), *names] if constants else names)

    def _kind(self, kind: Any, schema: Mapping[str, Any], levels: int, objects: int) -> str:
        if kind == "array":
            return f"list[{self.name(schema['items'], levels - 1, objects)}]" if schema.get("items") else "list"
        # What is worth a definition of its own is an object, near enough.
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
            return "dict" if name == "Any" else f"dict[str, {name}]"
        self.has_fields = True
        required = cast(Any, schema.get("required") or ())
        parts = (
            f"{name}{'' if name in required else '?'}: {self.name(part, levels - 1, objects - 1)}"
            for name, part in cast(Mapping[str, Any], properties).items()
        )
        return f"{{{', '.join(parts)}}}"


def _literal(values: list[Any]) -> str:
    text = ", ".join(map(repr, values[:MAX_VALUES]))
    if len(values) <= MAX_VALUES and len(text) <= MAX_VALUES_TEXT:
        return f"Literal[{text}]"
    return _union(_VALUES.get(type(value), "Any") for value in values)


def _union(names: Iterable[str]) -> str:
    unique = dict.fromkeys(names)
    return "Any" if "Any" in unique else " | ".join(unique) or "Any"


# A tool's signature in one line, for people and models: `fs.read_file(path: str, maxBytes: int = 204800)`.

MAX_DEFAULT = 1_000  # characters; of a longer default the beginning is shown


def signature(spec: ToolSpec, name: str | None = None, *, exact: bool = False) -> str:
    """Write a signature. Optional parameters come last, with their defaults, or '...' where none is known.

    `name` is what code calls the tool, where that is not its own name. With `exact`, parameters have their own names,
    for those who write JSON, and not those that code gives them.
    """
    schema = spec.input_schema
    properties = cast(Mapping[str, Any], schema.get("properties") or {})
    required = cast(list[str], schema.get("required") or [])
    parts: list[str] = []
    for one in spec.order:
        text = f"{one if exact else as_identifier(one)}: {type_name(properties[one], schema)}"
        default = "" if one in required else f" = {_default(resolve_definition(properties[one], schema))}"
        parts.append(f"{text}{default}")
    if schema.get("additionalProperties"):
        parts.append("**more")
    returns = f" -> {type_name(spec.output_schema, spec.output_schema)}" if spec.output_schema else ""
    return f"{name or spec.name}({', '.join(parts)}){returns}"


def _default(schema: Any) -> str:
    if not isinstance(schema, Mapping) or "default" not in schema:
        return "'...'"
    value: Any = cast(Mapping[str, Any], schema)["default"]
    text = repr(value)
    return text if len(text) <= MAX_DEFAULT else repr(cut(value if isinstance(value, str) else text, MAX_DEFAULT))


# Return types


def returned_type(spec: ToolSpec) -> str | None:
    """Return the type of a tool's values; None if nothing is known."""
    if spec.output_schema is None:
        return inferred_type(spec)
    schema = spec.output_schema
    return schema.get("description") or type_with_fields(schema, schema) or type_name(schema, schema)


def inferred_type(spec: ToolSpec) -> str | None:
    """Return the type of its values so far, marked: `{id: str, title?: str} (inferred from 12 results)`."""
    schema = None if spec.seen is None else spec.seen.schema()
    if spec.seen is None or schema is None:
        return None
    count = spec.seen.results
    what = type_with_fields(schema, schema) or type_name(schema)
    return f"{what} (inferred from {count} result{'' if count == 1 else 's'})"


# Arguments that somebody typed

MAX_REFERENCES = 10  # references in a schema that are followed


def is_text(key: str, spec: ToolSpec) -> bool | None:
    """Return whether an argument is a text; None if it may be something else as well, and both are tried."""
    properties: Mapping[str, Any] = spec.input_schema.get("properties") or {}
    kinds = _kinds(properties.get(key), spec.input_schema, MAX_REFERENCES)
    if kinds is None:
        return None
    kinds -= {"null"}
    return "string" in kinds if len(kinds) == 1 or "string" not in kinds else None


def takes_others(spec: ToolSpec) -> bool:
    """Return whether a tool may take arguments that its schema does not name."""
    schema = spec.input_schema
    further = schema.get("additionalProperties", spec.source != "local")  # a server says itself what it does not take
    if further or spec.prepare is not None:  # code of its own may make others of them
        return True
    return any(word in schema for word in ("patternProperties", "allOf", "anyOf", "oneOf", "$ref"))


def named_values(key: str, spec: ToolSpec) -> list[str]:
    """Return the values that the schema lists for an argument, as they are typed."""
    properties: Mapping[str, Any] = spec.input_schema.get("properties") or {}
    field = properties.get(key)
    if not isinstance(field, Mapping):
        return []
    fields = cast(Mapping[str, Any], field)
    if fields.get("type") == "boolean":
        return ["true", "false"]
    from json import dumps

    return [value if isinstance(value, str) else dumps(value) for value in fields.get("enum") or ()]


def _kinds(schema: Any, root: Mapping[str, Any], depth: int) -> set[str] | None:
    """Return the types that a schema names; None if it names none."""
    if not isinstance(schema, Mapping) or not depth:
        return None
    fields = cast(Mapping[str, Any], schema)
    named = fields.get("type")
    if named is not None:
        return {named} if isinstance(named, str) else set(named)
    if isinstance(target := fields.get("$ref"), str):
        found: Any = root
        for step in target.removeprefix("#/").split("/"):
            found = cast(Mapping[str, Any], found).get(step) if isinstance(found, Mapping) else None
        return _kinds(found, root, depth - 1)
    if "const" in fields or "enum" in fields:
        values = fields["enum"] if "enum" in fields else [fields["const"]]
        return {"string" if isinstance(value, str) else "null" if value is None else "other" for value in values}
    parts = [_kinds(part, root, depth - 1) for word in ("anyOf", "oneOf") for part in fields.get(word, ())]
    return None if not parts or None in parts else set[str]().union(*(part for part in parts if part))


# Tools that a search found: `fs.read_file(path: str, encoding: str = 'utf-8') -> str: The text of a file`

SIGNATURE_TOKENS, GIST_TOKENS = 60, 20  # of one line: more is known from the tool's help
MAX_TOKENS = 400  # of all lines
NAME_TOKENS = 100  # of the names of those that had no room for a line


class FoundTool(msgspec.Struct, frozen=True):
    name: str
    signature: str
    description: str


def found_lines(found: Sequence[FoundTool], about: str) -> list[str]:
    """Return a line for each tool. The last line says how to see more of each (`about`), and more tools."""
    lines = list(_within(MAX_TOKENS, (_line(tool) for tool in found)))
    rest = [tool.name for tool in found[len(lines) :]]
    named = list(_within(NAME_TOKENS, iter(rest)))
    also = [f"Also: {', '.join(named)}{f' and {len(rest) - len(named)} more' if rest[len(named) :] else ''}"]
    more = "More: other words." if rest else "More: a larger limit, or other words."
    return [*lines, *(also if rest else ()), f"{about}{more}"]


def _line(tool: FoundTool) -> str:
    said = _on_a_line(tool.description.strip().partition("\n\n")[0])
    line = cut_to_tokens(_on_a_line(tool.signature), SIGNATURE_TOKENS)
    return f"{line}: {cut_to_tokens(said[: 8 * GIST_TOKENS], GIST_TOKENS)}" if said else line


def _on_a_line(text: str) -> str:
    """Join the lines of a stranger's text, which must not look like another line of ours."""
    return " ".join(text.split())


def _within(tokens: int, texts: Iterator[str]) -> Iterator[str]:
    """Yield as many texts as so many tokens hold, and one in any case."""
    for count, text in enumerate(texts):
        tokens -= count_tokens(text) + 1
        if tokens < 0 and count:
            return
        yield text
