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
from onetool.core.text import did_you_mean
from onetool.services.secrets import Secret

MAX_SHOWN_LENGTH = 40  # characters of a wrong value that an error quotes

_KINDS: dict[type, str] = {
    str: "text", bool: "bool", int: "whole", float: "fraction", NoneType: "nothing", list: "list", dict: "mapping",
}  # fmt: skip
_TAKES: dict[Any, set[str]] = {
    str: {"text"},
    Secret: {"text"},
    Path: {"text"},
    int: {"whole"},
    float: {"whole", "fraction"},
    bool: {"bool"},
    NoneType: {"nothing"},
}
_WORDS: dict[Any, str] = {
    str: "a string",
    Secret: "a string",
    Path: "a path",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "nothing",
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


def kind_of(value: Any) -> str:
    return next(_KINDS[kind] for kind in type(value).__mro__ if kind in _KINDS)


def accepted_kinds(wanted: Any) -> set[str]:
    """Return the kinds of values that a type accepts."""
    if wanted in _TAKES:
        return _TAKES[wanted]
    if get_origin(wanted) is Literal:
        return {kind_of(value) for value in get_args(wanted)}
    if get_origin(wanted) in (list, tuple):
        return {"list"}
    return {"mapping", "text"} if hasattr(wanted, "shorthand") else {"mapping"}


def empty_for(wanted: Any) -> list[Node] | dict[str, Node] | None:
    """Return the value of an empty key for this type: [] or {} if the type accepts one of them."""
    kinds = accepted_kinds(wanted)
    if "mapping" in kinds:
        return {}
    return [] if "list" in kinds else None


def describe_type(wanted: Any) -> str:
    """Describe the expected type, for example "a whole number"."""
    choices = [choice.type for choice in choices_of(wanted) if choice.type is not NoneType]
    described: list[str] = []
    for choice in choices:
        if get_origin(choice) is Literal:
            described += map(str, get_args(choice))
        elif choice in _WORDS:
            described.append(_WORDS[choice])
        else:
            described += (f"a {kind}" for kind in sorted(accepted_kinds(choice)))
    words = list(dict.fromkeys(described))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def describe_value(node: Node, wanted: Any = Any) -> str:
    """Describe the value found, but never a secret."""
    if node.written:
        return f"the value of {node.written}"
    kind = kind_of(node.value)
    hidden = any(choice.type is Secret for choice in choices_of(wanted))
    if kind == "text":
        return "a string" if hidden else f"the string {_shortened(node.value)!r}"
    if kind in ("whole", "fraction"):
        return "a number" if hidden else f"the number {_shortened(str(node.value))}"
    return {"bool": str(node.value).lower(), "nothing": "nothing", "list": "a list", "mapping": "a mapping"}[kind]


def broken_limit(value: Any, limits: tuple[msgspec.Meta, ...]) -> str | None:
    """Return the limit that a value violates, such as "be at least 1"; None if it violates none."""
    for limit in limits:
        if limit.min_length is not None and len(value) < limit.min_length:
            return "not be empty"
        if limit.ge is not None and limit.le is not None and not limit.ge <= value <= limit.le:
            return f"be from {limit.ge} to {limit.le}"
        if limit.ge is not None and value < limit.ge:
            return f"be at least {limit.ge}"
        if limit.gt is not None and value <= limit.gt:
            return f"be more than {limit.gt}"
    return None


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_LENGTH else text[:MAX_SHOWN_LENGTH] + "…"


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
    if isinstance(node.value, Secret) and not any("text" in accepted_kinds(choice.type) for choice in choices):
        with suppress(ValueError):
            node = replace(node, value=plain_value(str(node.value)))
    for choice in choices:
        if kind_of(node.value) in accepted_kinds(choice.type):
            value = _read_as(node, choice.type, findings)
            broken = None if value is BAD else broken_limit(value, choice.limits)
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
    kind = kind_of(node.value)
    if node.written:
        return None
    if kind == "nothing":
        return "write a value, or remove the key to get its default"
    if "text" in kinds and kind in ("whole", "fraction", "bool"):
        return "quote it"
    if "list" in kinds and kind == "text":
        return "write a list of one: [value]"
    with suppress(ValueError):
        if kind == "text" and kind_of(plain_value(node.value)) in kinds:
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
