"""Finds secrets by their names or schemas and masks them in messages, logs and records.

`SecretPlaces` finds the parts of a value that the schema marks as secret: `writeOnly`, or `format: password`. All
schemas that might apply to a part are followed, whether they match or not: references, anchors, alternatives and
conditions. So a mark in one alternative always counts.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from onetool.core.text import lazy_pattern

MASK = "***"

_NAME = lazy_pattern(
    r"(^|[_.-])(password|passwd|pasword|pwd|passphrase|secret|token|credentials?|auth|authorization|bearer|cookie)$"
    r"|(api|access|private|secret|signing|encryption)[_-]?key$",
    re.IGNORECASE,
)
_NAME_END = 64  # inspected characters at the end of a name; every word of `_NAME` is shorter
_MAX_DEPTH, _MAX_WIDTH = 4, 20
_SHORTEST = 4  # shorter values are too common to mask in every message
_CAMEL = lazy_pattern(r"(?<=[a-z0-9])(?=[A-Z])")

_CREDENTIAL = lazy_pattern(r"\b(ots?_)[A-Za-z0-9_-]{40,}")  # access tokens and sessions; tool names are shorter

_LEAVES = frozenset((int, float, bool, type(None)))  # skipped quickly: there may be millions
_WITH_NAMES = (dict, list, tuple, Mapping)  # types that may hold names
_TELLING = (str, *_WITH_NAMES)  # types that may be, or hold, a text


def mask_credentials(text: str) -> str:
    """Mask access tokens and sessions of this server in a string, for logs and records."""
    return _CREDENTIAL.sub(rf"\1{MASK}", text) if "ot_" in text or "ots_" in text else text


def secret_names(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the parameters with secret values, according to their schemas or names."""
    found = _properties(schema, schema, 0)
    return frozenset(name for name, part in found if sounds_secret(name) or _marked(part, schema, 0))


def _properties(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the properties of a schema, including those from references and combined schemas."""
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        yield from cast(Mapping[str, Any], properties).items()
    for other in _borrowed(schema, root, depth):
        yield from _properties(other, root, depth + 1)


def _marked(part: Any, root: Mapping[str, Any], depth: int) -> bool:
    """Return whether the schema, or one of its alternatives, marks the value as secret."""
    if not isinstance(part, Mapping):
        return False
    marks = cast(Mapping[str, Any], part)
    return _is_marked(marks) or any(_marked(other, root, depth + 1) for other in _borrowed(marks, root, depth))


def _borrowed(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas that a schema refers to or combines, up to a few levels: real marks are not nested deeper."""
    if depth >= _MAX_DEPTH:
        return
    for word in ("allOf", "anyOf", "oneOf"):
        if isinstance(found := schema.get(word), list | tuple):
            yield from (one for one in cast(list[Any], found)[:_MAX_WIDTH] if isinstance(one, Mapping))
    ref = schema.get("$ref")
    if isinstance(ref, str) and ref.startswith(("#/$defs/", "#/definitions/")):
        _, place, name = ref.split("/", 2)
        found = cast(Mapping[str, Any], root.get(place) or {}).get(name)
        if isinstance(found, Mapping):
            yield cast(Mapping[str, Any], found)


def sounds_secret(name: str) -> bool:
    """Return whether the end of a name suggests a secret value. Takes constant time for long names."""
    return bool(_NAME.search(_CAMEL.sub("_", name[-_NAME_END:])))


def secret_values(args: Any, secret: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the strings under secret names at any depth, to be masked in messages."""
    if isinstance(args, Mapping):
        for name, value in cast(Mapping[Any, Any], args).items():
            if type(value) not in _LEAVES and isinstance(value, _TELLING):
                hidden = name in secret or sounds_secret(str(name))
                yield from _texts(value) if hidden else secret_values(value)
    elif isinstance(args, list | tuple):
        for value in cast(list[Any], args):
            if type(value) not in _LEAVES and isinstance(value, _WITH_NAMES):
                yield from secret_values(value)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and len(value) >= _SHORTEST:
        yield value
    elif isinstance(value, Mapping):
        for part in cast(Mapping[str, Any], value).values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in cast(list[Any], value):
            yield from _texts(part)


def mask_values(value: Any, secrets: Iterable[str]) -> Any:
    """Mask these values in text or data. There may be half a million values, of which few occur."""
    text = "\n".join(_texts_in(value))
    for secret in dict.fromkeys(secrets):
        if secret in text:
            value = _mask_value(value, secret)
    return value


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        parts = cast(dict[str, Any], value).values() if isinstance(value, dict) else cast(list[Any], value)
        for part in parts:
            yield from _texts_in(part)


def _mask_value(value: Any, secret: str) -> Any:
    if isinstance(value, str):
        return value.replace(secret, MASK)
    if isinstance(value, dict):
        return {key: _mask_value(item, secret) for key, item in cast(dict[str, Any], value).items()}
    return [_mask_value(item, secret) for item in cast(list[Any], value)] if isinstance(value, list | tuple) else value


def mask_arguments(args: Any, secret: frozenset[str] = frozenset()) -> Any:
    """Mask the arguments with secret names, at any depth."""
    if isinstance(args, Mapping):
        items = cast(Mapping[Any, Any], args).items()
        return {
            name: MASK if name in secret or sounds_secret(str(name)) else mask_arguments(value) for name, value in items
        }
    if isinstance(args, list | tuple):
        return [mask_arguments(value) for value in cast(list[Any], args)]
    return args


# Finding the parts of a value that its schema marks

MAX_STEPS = 100_000

_SAME = ("allOf", "anyOf", "oneOf")  # lists of schemas of the same value
_ALSO = ("if", "then", "else")  # schemas of the same value
_ITEMS = ("items", "additionalItems", "contains", "unevaluatedItems")
_MEMBERS = ("additionalProperties", "unevaluatedProperties")

Schema = Mapping[str, Any]


class SecretPlaces:
    """A search for marked values. Use a new object for each search."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._named = dict(_named(root))
        self._seen = set[tuple[int, str]]()

    def first(self, value: Any) -> str | None:
        """Return the pointer to the first marked value; None if there is none, "" if the value is too large."""
        waiting: list[tuple[Any, Any, str]] = [(self._root, value, "")]
        while waiting:
            schema, part, pointer = waiting.pop()
            if not isinstance(schema, Mapping) or (id(cast(Schema, schema)), pointer) in self._seen:
                continue
            if len(self._seen) >= MAX_STEPS:
                return ""
            known = cast(Schema, schema)
            self._seen.add((id(known), pointer))
            if pointer and part not in (None, "") and _is_marked(known):
                return pointer
            waiting += [(other, part, pointer) for other in self._same(known)]
            waiting += _below(known, part, pointer)
        return None

    def _same(self, schema: Schema) -> Iterator[Any]:
        """Yield the schemas that apply to the same value."""
        for word in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(ref := schema.get(word), str):
                yield self._resolved(ref)
        for word in _SAME:
            if isinstance(found := schema.get(word), list | tuple):
                yield from cast(list[Any], found)
        yield from (schema.get(word) for word in _ALSO)
        for word in ("dependentSchemas", "dependencies"):
            if isinstance(found := schema.get(word), Mapping):
                yield from cast(Schema, found).values()

    def _resolved(self, ref: str) -> Any:
        from urllib.parse import unquote  # not needed for masking, which every tool imports

        base, _, fragment = ref.partition("#")
        here: Any = self._named.get(base, self._root) if base else self._root
        if not fragment.startswith("/"):
            return self._named.get(f"#{fragment}", here) if fragment else here
        for step in unquote(fragment).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(here, list | tuple):
                items = cast(list[Any], here)
                here = items[int(name)] if name.isdecimal() and int(name) < len(items) else None
            else:
                here = cast(Schema, here).get(name) if isinstance(here, Mapping) else None
        return here


def _is_marked(schema: Schema) -> bool:
    return schema.get("writeOnly") is True or schema.get("format") == "password"


def _below(schema: Schema, value: Any, pointer: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield the parts of a value, each with a schema that may apply."""
    if isinstance(value, Mapping):
        named, patterns = schema.get("properties"), schema.get("patternProperties")
        others = [schema.get(word) for word in _MEMBERS]
        if isinstance(patterns, Mapping):  # without matching: foreign patterns are not run here
            others = [*cast(Schema, patterns).values(), *others]
        for name, part in cast(Mapping[str, Any], value).items():
            place = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            if isinstance(named, Mapping):
                yield cast(Schema, named).get(name), part, place
            yield from ((one, part, place) for one in others)
    elif isinstance(value, list | tuple):
        lists = [schema.get(word) for word in ("prefixItems", "items")]  # older drafts have lists in `items`
        others = [schema.get(word) for word in _ITEMS]
        for number, part in enumerate(cast(list[Any], value)):
            for found in lists:
                if isinstance(found, list | tuple) and number < len(cast(list[Any], found)):
                    yield cast(list[Any], found)[number], part, f"{pointer}/{number}"
            yield from ((one, part, f"{pointer}/{number}") for one in others)


def _named(root: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield all schemas with an `#anchor` or `$id`, by that name."""
    waiting: list[Any] = [root]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            schema = cast(Schema, part)
            for word in ("$anchor", "$dynamicAnchor"):
                if isinstance(name := schema.get(word), str):
                    yield f"#{name}", schema
            if isinstance(name := schema.get("$id"), str):
                yield name.removesuffix("#"), schema
            waiting += schema.values()
        elif isinstance(part, list | tuple):
            waiting += cast(list[Any], part)
