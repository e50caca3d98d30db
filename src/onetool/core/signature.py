"""Tools as Python code calls them: identifiers, signatures and arguments. `12306-mcp.get-date` is not valid Python, so
code uses `_12306_mcp.get_date`.

Names that are identifiers stay unchanged. If two names have the same identifier, one of them gets a short hash, which
does not depend on other tools. Arguments typed on a command line are decoded as JSON if the tool's schema asks for
data, and are strings otherwise.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from keyword import iskeyword
from typing import Any, cast
from unicodedata import normalize

from onetool.core.errors import cut
from onetool.core.spec import ToolSpec
from onetool.core.text import MAX_NAME
from onetool.core.type_names import resolve_definition, return_shape, type_name


def call_text(name: str, args: Mapping[str, Any]) -> str:
    """Return a call in Python, using `ot.call` if the tool or an argument has no valid Python name."""
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


def as_identifiers(names: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Map identifiers to names, independent of the order. Names that are identifiers keep them.

    Words in `taken` get an underscore, like keywords.
    """
    wanted: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        word = as_identifier(name)
        wanted.setdefault(f"{word}_" if word in taken else word, []).append(name)
    used = {*wanted}
    found: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for spelling, same in wanted.items():
        if len(same) == 1 or spelling in same:
            found[spelling] = spelling if spelling in same else same[0]
        others += [(name, spelling) for name in same if found.get(spelling) != name]
    for name, spelling in sorted(others):
        from hashlib import sha256  # slow to import and rarely needed

        digest = sha256(name.encode(errors="surrogatepass")).hexdigest()
        word = next(word for end in range(4, 65) if (word := f"{spelling}_{digest[:end]}") not in used)
        used.add(word)
        found[word] = name
    return found


# Arguments by name


def arguments_by_name(spec: ToolSpec, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by parameter name. Raises TypeError for too many, or for two values of one parameter.

    Parameters may be given by identifier: `from_` for `from`.
    """
    given = dict(zip(spec.order, args, strict=False))
    if len(args) > len(given):
        raise TypeError(f"{spec.name} takes at most {len(spec.order)} arguments, got {len(args)}")
    by_word = _parameters_by_word(spec.order)
    for word, value in named.items():
        name = by_word.get(word, word)
        if name in given:
            raise TypeError(f"{spec.name} got {name:.{MAX_NAME}} twice")
        given[name] = value
    return given


def parameter_named(spec: ToolSpec, word: str) -> str:
    """Return the name of the parameter with this name or identifier; `word` itself if there is none."""
    return _parameters_by_word(spec.order).get(word, word)


@lru_cache(maxsize=1024)
def _parameters_by_word(order: tuple[str, ...]) -> dict[str, str]:
    """Map names and identifiers to parameters. Names take precedence over identifiers of other parameters."""
    return {**{as_identifier(name): name for name in reversed(order)}, **{name: name for name in order}}


# A tool's signature in one line, for users and models: `fs.read_file(path: str, maxBytes: int = 204800)`.

MAX_DEFAULT = 1_000  # characters; longer defaults are truncated


def signature(spec: ToolSpec, name: str | None = None) -> str:
    """Return a signature with the known shape of the return value."""
    shape = return_shape(spec)
    return f"{call_signature(spec, name)}{f' -> {shape}' if shape else ''}"


def call_signature(spec: ToolSpec, name: str | None = None, *, exact: bool = False) -> str:
    """Return a signature without the return value. Optional parameters come last, with their defaults, or '...' for
    unknown ones.

    `name` replaces the tool's name. With `exact`, parameters have their names as in JSON, else their identifiers for
    code.
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
    return f"{name or spec.name}({', '.join(parts)})"


def _default(schema: Any) -> str:
    if not isinstance(schema, Mapping) or "default" not in schema:
        return "'...'"
    value: Any = cast(Mapping[str, Any], schema)["default"]
    text = repr(value)
    return text if len(text) <= MAX_DEFAULT else repr(cut(value if isinstance(value, str) else text, MAX_DEFAULT))


# Arguments typed on a command line

MAX_REFERENCES = 10  # references in a schema that are followed


def is_text(key: str, spec: ToolSpec) -> bool | None:
    """Return whether an argument is a string; None if the schema allows other types as well, so that both are tried."""
    kinds = kinds_of(key, spec)
    if kinds is None:
        return None
    kinds -= {"null"}
    return "string" in kinds if len(kinds) == 1 or "string" not in kinds else None


def kinds_of(key: str, spec: ToolSpec) -> set[str] | None:
    """Return the JSON types that the schema allows for an argument; None if it allows any."""
    properties: Mapping[str, Any] = spec.input_schema.get("properties") or {}
    return _kinds(properties.get(key), spec.input_schema, MAX_REFERENCES)


def takes_others(spec: ToolSpec) -> bool:
    """Return whether a tool may take arguments that its schema does not name."""
    schema = spec.input_schema
    further = schema.get("additionalProperties", spec.source != "local")  # servers allow others by default
    if further or spec.prepare is not None:  # pre-processors may accept others
        return True
    return any(word in schema for word in ("patternProperties", "allOf", "anyOf", "oneOf", "$ref"))


def _kinds(schema: Any, root: Mapping[str, Any], depth: int) -> set[str] | None:
    """Return the types that a schema names, or None."""
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
