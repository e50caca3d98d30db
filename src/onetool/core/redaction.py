"""Finds the arguments whose values are secret and masks them in messages, logs and records."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

MASK = "***"

_NAME = re.compile(
    r"(^|[_.-])(password|passwd|pasword|pwd|passphrase|secret|token|credentials?|auth|authorization|bearer|cookie)$"
    r"|(api|access|private|secret|signing|encryption)[_-]?key$",
    re.IGNORECASE,
)
_DEEPEST, _WIDEST = 4, 20
_SHORTEST = 4  # a shorter text is too common to be taken out of every message
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_LEAVES = frozenset((int, float, bool, type(None)))  # told apart quickly: there may be millions of them
_WITH_NAMES = (dict, list, tuple, Mapping)  # what may hold names
_TELLING = (str, *_WITH_NAMES)  # what may be, or hold, a text


def secret_names(schema: Mapping[str, Any]) -> frozenset[str]:
    """The parameters whose values are secret: said by the schema, or plain from the name."""
    found = _properties(schema, schema, 0)
    return frozenset(name for name, part in found if sounds_secret(name) or _marked(part, schema, 0))


def _properties(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    """The properties of a schema, also those that it borrows."""
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        yield from cast(Mapping[str, Any], properties).items()
    for other in _borrowed(schema, root, depth):
        yield from _properties(other, root, depth + 1)


def _marked(part: Any, root: Mapping[str, Any], depth: int) -> bool:
    """Whether the schema says that the value is secret, in itself or in one of its alternatives."""
    if not isinstance(part, Mapping):
        return False
    marks = cast(Mapping[str, Any], part)
    if marks.get("writeOnly") is True or marks.get("format") == "password":
        return True
    return any(_marked(other, root, depth + 1) for other in _borrowed(marks, root, depth))


def _borrowed(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    """What a schema refers to or combines, a few steps far: people do not hide their marks deeper than that."""
    if depth >= _DEEPEST:
        return
    for word in ("allOf", "anyOf", "oneOf"):
        if isinstance(found := schema.get(word), list | tuple):
            yield from (one for one in cast(list[Any], found)[:_WIDEST] if isinstance(one, Mapping))
    ref = schema.get("$ref")
    if isinstance(ref, str) and ref.startswith(("#/$defs/", "#/definitions/")):
        _, place, name = ref.split("/", 2)
        found = cast(Mapping[str, Any], root.get(place) or {}).get(name)
        if isinstance(found, Mapping):
            yield cast(Mapping[str, Any], found)


def sounds_secret(name: str) -> bool:
    return bool(_NAME.search(_CAMEL.sub("_", name)))


def secret_values(args: Any, secret: frozenset[str] = frozenset()) -> Iterator[str]:
    """The texts that stand under secret names, however deep: what must be taken out of messages."""
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
    """Text or data in which these texts are masked. There may be half a million of them, and few are in there."""
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
    """The arguments as they may be shown: nothing whose name is, or sounds, secret, however deep it stands."""
    if isinstance(args, Mapping):
        items = cast(Mapping[Any, Any], args).items()
        return {
            name: MASK if name in secret or sounds_secret(str(name)) else mask_arguments(value) for name, value in items
        }
    if isinstance(args, list | tuple):
        return [mask_arguments(value) for value in cast(list[Any], args)]
    return args
