"""Converts nodes to the types that the config's structs declare, and reports values that don't fit.

It supports str, int, float, bool, None, Any, Path, Secret, Literal, list, tuple, dict, msgspec structs, unions of them,
and the limits of `Annotated[int, Meta(ge=1)]`. A new settings struct needs no new code here. A struct may declare:

- `lenient = True`: unknown keys are warnings
- `shorthand = "host"`: a string stands for a struct with that one field
- `problems()`: yields (field, message, hint) for rules that involve several fields
- `from_node(node, findings)`: reads the struct itself
- `broken(mistakes)`: replaces an entry that has mistakes, so that the rest of the config is used
"""

import math
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, replace

from onetool.config.node import BROKEN, Findings, Node, in_order
from onetool.config.yaml_nodes import plain_value
from onetool.core.mismatch import TYPES, described, either, type_of, violated_limit
from onetool.core.text import did_you_mean
from onetool.services.secrets import Secret

MAX_SHOWN_LENGTH = 40  # characters of a wrong value that an error quotes

YAML_TYPES = {**TYPES, "object": "a mapping", "null": "nothing"}  # as YAML calls them
_TAKES: dict[Any, set[str]] = {
    str: {"string"},
    Secret: {"string"},
    Path: {"string"},
    int: {"integer"},
    float: {"number", "integer"},
    bool: {"boolean"},
    NoneType: {"null"},
}


class Choice(msgspec.Struct, frozen=True):
    """An accepted type, within limits."""

    type: Any
    limits: tuple[msgspec.Meta, ...] = ()


def choices_of(wanted: Any) -> list[Choice]:
    """Return the accepted types: `Annotated[int, …] | None` -> int within its limits, None."""
    if get_origin(wanted) in (Union, UnionType):
        return [choice for member in get_args(wanted) for choice in choices_of(member)]
    if get_origin(wanted) is Annotated:
        bare, *notes = get_args(wanted)
        return [Choice(bare, tuple(note for note in notes if isinstance(note, msgspec.Meta)))]
    return [Choice(wanted)]


def accepted_kinds(wanted: Any) -> set[str]:
    """Return the kinds of values that a type accepts."""
    if wanted in _TAKES:
        return _TAKES[wanted]
    if get_origin(wanted) is Literal:
        return {type_of(value) or "" for value in get_args(wanted)}
    if get_origin(wanted) in (list, tuple):
        return {"array"}
    return {"object", "string"} if hasattr(wanted, "shorthand") else {"object"}


def empty_for(wanted: Any) -> list[Node] | dict[str, Node] | None:
    """Return the value of an empty key for this type: [] or {} if the type accepts one of them."""
    kinds = accepted_kinds(wanted)
    if "object" in kinds:
        return {}
    return [] if "array" in kinds else None


def describe_type(wanted: Any) -> str:
    """Describe the expected type, for example "a whole number"."""
    choices = [choice.type for choice in choices_of(wanted) if choice.type is not NoneType]
    words: list[str] = []
    for choice in choices:
        if get_origin(choice) is Literal:
            words += map(str, get_args(choice))
        elif choice is Path:
            words.append("a path")
        else:
            kinds = {"number"} if choice is float else accepted_kinds(choice)
            words += (YAML_TYPES[kind] for kind in sorted(kinds))
    return either(words)


def describe_value(node: Node, wanted: Any = Any) -> str:
    """Describe the value found, but never a secret."""
    if node.written:
        return f"the value of {node.written}"
    kind = type_of(node.value)
    if kind in ("string", "number", "integer") and any(choice.type is Secret for choice in choices_of(wanted)):
        return TYPES["string" if kind == "string" else "number"]
    return described(node.value, YAML_TYPES, MAX_SHOWN_LENGTH)


# Conversion

BAD: Any = type("Bad", (), {"__repr__": lambda self: "BAD"})()  # what `convert` returns for a mistake


def convert(node: Node, wanted: Any, findings: Findings) -> Any:
    """Return the node's value as this type; BAD if that is impossible, with the reason in the findings."""
    if wanted is Any:
        return plain(node, findings)
    if hasattr(wanted, "from_node"):
        return wanted.from_node(node, findings)
    findings.add(node.mistakes)
    if node.value is BROKEN:
        return BAD
    choices = choices_of(wanted)
    # `port: ${PORT}` gives a string. Where strings aren't allowed, its value is parsed as if written in the file.
    if isinstance(node.value, Secret) and not any("string" in accepted_kinds(choice.type) for choice in choices):
        with suppress(ValueError):
            node = replace(node, value=plain_value(str(node.value)))
    for choice in choices:
        if type_of(node.value) in accepted_kinds(choice.type):
            value = _read_as(node, choice.type, findings)
            limits = (violated_limit(value, limit) for limit in choice.limits)
            broken = None if value is BAD else next(filter(None, limits), None)
            if broken is None:
                return value
            got = f", got {describe_value(node, choice.type)}" if node.value != "" else ""
            findings.error(node, f"must {broken}{got}")
            return BAD
    if node.value is None:  # an empty `tools:`, as left when its lines are commented out
        for choice in choices:
            if (empty := empty_for(choice.type)) is not None:
                return _read_as(replace(node, value=empty), choice.type, findings)
    report_mismatch(node, wanted, findings)
    return BAD


def plain(node: Node, findings: Findings) -> Any:
    """Return the node as plain data, with a warning where YAML 1.1 would have read another value."""
    findings.add(node.mistakes)
    if node.trap:
        hint = f'{node.trap}, or quote it to make it a string: "{node.value}"'
        findings.warn(node, f"read as the string {node.value!r}", hint)
    if isinstance(node.value, list):
        return [plain(item, findings) for item in node.value]
    if isinstance(node.value, dict):
        return {key: plain(item, findings) for key, item in node.value.items()}
    return None if node.value is BROKEN else node.value


def read_fields(node: Node, struct: type[msgspec.Struct], findings: Findings) -> dict[str, Any]:
    """Return the fields that the mapping sets, by the struct's own names."""
    fields = fields_of(struct)
    values: dict[str, Any] = {}
    for key, child in node.value.items():
        if key in fields:
            values[fields[key].name] = convert(child, fields[key].type, findings)
        else:
            unknown_key(child, key, struct, findings)
    for key, field in fields.items():
        if field.required and key not in node.value:
            findings.error(node, f"the key {key!r} is missing", f"add {key}: …")
            values[field.name] = BAD
    return values


@cache
def fields_of(struct: type[msgspec.Struct]) -> dict[str, FieldInfo]:
    """Return a struct's fields by their keys in the file."""
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


def unknown_key(node: Node, key: str, struct: type[msgspec.Struct], findings: Findings) -> None:
    if (instead := getattr(struct, "gone", {}).get(key)) is not None:  # of an earlier version
        findings.warn(node, f"the key {key!r} has no effect any more", instead)
        return
    known = fields_of(struct)
    hint = did_you_mean(key, known) or f"known keys: {', '.join(known)}"
    if getattr(struct, "lenient", False):
        findings.warn(node, f"unknown key {key!r}; it is ignored", hint)
    else:
        findings.error(node, f"unknown key {key!r}", hint)


def report_mismatch(node: Node, wanted: Any, findings: Findings) -> None:
    findings.error(node, f"expected {describe_type(wanted)}, got {describe_value(node, wanted)}", _advice(node, wanted))


def _advice(node: Node, wanted: Any) -> str | None:
    kinds: set[str] = set().union(*(accepted_kinds(choice.type) for choice in choices_of(wanted)))
    kind = type_of(node.value)
    if node.written:
        return None
    if kind == "null":
        return "write a value, or remove the key to get its default"
    if "string" in kinds and kind in ("integer", "number", "boolean"):
        return "quote it"
    if "array" in kinds and kind == "string":
        return "write a list: [value]"
    with suppress(ValueError):
        if kind == "string" and type_of(plain_value(node.value)) in kinds:
            return "write it without quotes"
    return node.trap


def _read_as(node: Node, wanted: Any, findings: Findings) -> Any:
    origin = get_origin(wanted)
    if origin is Literal:
        known = get_args(wanted)
        if node.value in known:
            return known[known.index(node.value)]
        hint = did_you_mean(node.value, map(str, known)) if isinstance(node.value, str) else None
        findings.error(node, f"expected {describe_type(wanted)}, got {describe_value(node, wanted)}", hint)
        return BAD
    if origin in (list, tuple):
        items = [convert(item, get_args(wanted)[0], findings) for item in node.value]
        if BAD in items:
            return BAD
        return tuple(items) if origin is tuple else items
    if origin is dict:
        return _dict(node, get_args(wanted)[1], findings)
    if wanted in (str, int, bool, NoneType):
        return node.value
    if wanted is Secret:
        return node.value if isinstance(node.value, Secret) else Secret(node.value)
    if wanted is float:
        return _number(node, findings)
    return _path(node, findings) if wanted is Path else _struct(node, wanted, findings)


def _dict(node: Node, wanted: Any, findings: Findings) -> Any:
    values: dict[str, Any] = {}
    for key, item in node.value.items():
        if not hasattr(wanted, "broken"):
            values[key] = convert(item, wanted, findings)
            continue
        own = Findings()  # an entry with mistakes keeps them, so that the rest is used
        value = convert(item, wanted, own)
        findings.add(own.warnings)
        values[key] = wanted.broken(in_order(own.errors)) if own.errors else value
    return BAD if BAD in values.values() else values


def _struct(node: Node, struct: Any, findings: Findings) -> Any:
    if isinstance(node.value, str):
        node = replace(node, value={struct.shorthand: replace(node, path=(*node.path, struct.shorthand))})
    values = read_fields(node, struct, findings)
    if BAD in values.values():
        return BAD
    result = struct(**values)
    problems: Iterable[tuple[str, str, str | None]] = result.problems() if hasattr(result, "problems") else ()
    for field, message, hint in problems:
        findings.error(node.value.get(field, node), message, hint)
    return result


def _number(node: Node, findings: Findings) -> Any:
    try:
        value = float(node.value)
    except OverflowError:  # a whole number that no float can hold
        value = math.inf
    if math.isfinite(value):
        return value
    report_mismatch(node, float, findings)
    return BAD


def _path(node: Node, findings: Findings) -> Any:
    """Resolve a path against the folder of the file that names it."""
    if not node.value or "\0" in node.value:
        findings.error(node, "this is not a path", "write the name of a file or a folder")
        return BAD
    return Path(node.file).parent / os.path.expanduser(node.value)
