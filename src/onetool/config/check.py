"""Converts data to the types that the config's structs declare, and reports every value that doesn't fit.

It supports str, int, float, bool, None, Any, Path, Secret, Literal, list, tuple, dict, msgspec structs, unions of them,
and the limits of `Annotated[int, Meta(ge=1)]`. A new settings struct needs no new code here. A struct may declare:

- `lenient = True`: unknown keys are warnings
- `gone = {key: advice}`: keys of earlier versions, which are ignored with a warning
- `shorthand = "host"`: a string stands for a struct with that one field
- `problems()`: yields (field, message, hint) for rules that involve several fields
- `from_data(data, path, findings)`: reads the struct itself
- `broken(mistakes)`: replaces an entry that has mistakes, so that the rest of the config is used

msgspec.convert would stop at the first mistake, and takes no `Secret` in a union or with a limit.
"""

import math
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from onetool.config.findings import Findings, absolute, in_order
from onetool.core.mismatch import PYTHON_TYPES, TYPES, described, either, type_of, violated_limit
from onetool.core.text import did_you_mean
from onetool.core.yaml import child, plain_value
from onetool.services.secrets import Secret

MAX_SHOWN_LENGTH = 40  # characters of a wrong value that an error quotes
BAD: Any = type("Bad", (), {"__repr__": lambda self: "BAD"})()  # what `convert` returns for a mistake

YAML_TYPES = {**TYPES, "object": "a mapping", "null": "nothing"}  # as YAML calls them
_TAKES: dict[Any, frozenset[str]] = {
    str: frozenset({"string"}),
    Secret: frozenset({"string"}),
    Path: frozenset({"string"}),
    int: frozenset({"integer"}),
    float: frozenset({"number", "integer"}),
    bool: frozenset({"boolean"}),
    NoneType: frozenset({"null"}),
}


class Choice(msgspec.Struct, frozen=True):
    """An accepted type, within limits, and the kinds of data that it takes."""

    type: Any
    kinds: frozenset[str]
    limits: tuple[msgspec.Meta, ...] = ()
    origin: Any = None  # of list[int]: list
    item: Any = None  # of list[int] and dict[str, int]: int


@cache
def choices_of(wanted: Any) -> tuple[Choice, ...]:
    """Return the accepted types: `Annotated[int, …] | None` -> int within its limits, None."""
    if get_origin(wanted) in (Union, UnionType):
        return tuple(choice for member in get_args(wanted) for choice in choices_of(member))
    limits: tuple[msgspec.Meta, ...] = ()
    if get_origin(wanted) is Annotated:
        wanted, *notes = get_args(wanted)
        limits = tuple(note for note in notes if isinstance(note, msgspec.Meta))
    if wanted in _TAKES:
        kinds = _TAKES[wanted]
    elif get_origin(wanted) is Literal:
        kinds = frozenset(type_of(value) or "" for value in get_args(wanted))
    elif get_origin(wanted) in (list, tuple):
        return (Choice(wanted, frozenset({"array"}), limits, get_origin(wanted), get_args(wanted)[0]),)
    elif get_origin(wanted) is dict:
        return (Choice(wanted, frozenset({"object"}), limits, dict, get_args(wanted)[1]),)
    else:
        kinds = frozenset({"object", "string"} if hasattr(wanted, "shorthand") else {"object"})
    return (Choice(wanted, kinds, limits, get_origin(wanted)),)


@cache
def _is_any_text(wanted: Any) -> bool:
    """Return whether a type takes every string as it is."""
    choices = () if wanted is Any else choices_of(wanted)
    return any(choice.type is str and not choice.limits for choice in choices[:1])


@cache
def _reads_itself(wanted: Any) -> bool:
    return hasattr(wanted, "from_data")


@cache
def fields_of(struct: type[msgspec.Struct]) -> dict[str, FieldInfo]:
    """Return a struct's fields by their keys in the file."""
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


def convert(value: Any, wanted: Any, path: str, findings: Findings) -> Any:
    """Return the value as this type; BAD if that is impossible, with the reason in the findings."""
    if wanted is Any:
        return value
    if _reads_itself(wanted):
        return wanted.from_data(value, path, findings)
    if path in findings.unusable:
        return BAD
    choices = choices_of(wanted)
    # `port: ${PORT}` gives a string. Where strings aren't allowed, its value is parsed as if written in the file.
    written = value
    if isinstance(value, Secret) and not any("string" in choice.kinds for choice in choices):
        with suppress(ValueError):
            value = plain_value(str(value))
    kind = PYTHON_TYPES.get(type(value)) or type_of(value) or ""
    for choice in choices:
        if kind in choice.kinds:
            result = _read_as(value, choice, path, findings, written)
            if choice.limits and result is not BAD:
                broken = next(filter(None, (violated_limit(result, limit) for limit in choice.limits)), None)
                if broken is not None:
                    got = f", got {_described(written, choice.type)}" if value != "" else ""
                    findings.error(path, f"must {broken}{got}")
                    return BAD
            return result
    if value is None:  # an empty `tools:`, as left when its lines are commented out
        for choice in choices:
            if choice.kinds & {"object", "array"}:
                empty: Any = {} if "object" in choice.kinds else []
                return _read_as(empty, choice, path, findings, empty)
    report_mismatch(written, wanted, path, findings)
    return BAD


def read_fields(data: dict[str, Any], struct: type[msgspec.Struct], path: str, findings: Findings) -> dict[str, Any]:
    """Return the fields that the mapping sets, by the struct's own names."""
    fields = fields_of(struct)
    values: dict[str, Any] = {}
    for key, value in data.items():
        field = fields.get(key)
        if field is None:
            unknown_key(key, child(path, key), struct, findings)
        elif type(value) is str and _is_any_text(field.type):
            values[field.name] = value  # most values, without their paths
        else:
            values[field.name] = convert(value, field.type, child(path, key), findings)
    for key in _required(struct):
        if key not in data:
            findings.error(path, f"the key {key!r} is missing", f"add {key}: …")
            values[fields[key].name] = BAD
    return values


@cache
def _required(struct: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(key for key, field in fields_of(struct).items() if field.required)


def _read_as(value: Any, choice: Choice, path: str, findings: Findings, written: Any) -> Any:
    wanted, origin = choice.type, choice.origin
    if origin in (list, tuple):
        if _is_any_text(choice.item) and all(type(item) is str for item in value):
            return origin(value)
        items = [convert(item, choice.item, f"{path}[{at}]", findings) for at, item in enumerate(value)]
        return BAD if BAD in items else origin(items)
    if origin is dict:
        return _dict(value, choice.item, path, findings)
    if wanted in (str, int, bool, NoneType):
        return value
    if wanted is Secret:
        return value if isinstance(value, Secret) else Secret(value)
    if wanted is float:
        return _number(value, path, findings, written)
    if wanted is Path:
        if not value or "\0" in value:
            findings.error(path, "this is not a path", "write the name of a file or a folder")
            return BAD
        return absolute(findings.places.folder(path), value)
    if origin is Literal:
        known = get_args(wanted)
        if value in known:
            return known[known.index(value)]
        hint = did_you_mean(value, map(str, known)) if isinstance(value, str) else None
        findings.error(path, f"expected {_expected(wanted)}, got {_described(written, wanted)}", hint)
        return BAD
    return _struct(value, wanted, path, findings)


def _dict(value: dict[str, Any], wanted: Any, path: str, findings: Findings) -> Any:
    values: dict[str, Any] = {}
    for key, item in value.items():
        before = len(findings.errors)
        values[key] = convert(item, wanted, child(path, key), findings)
        if len(findings.errors) > before and hasattr(wanted, "broken"):  # the rest is used
            values[key] = wanted.broken(in_order(findings.errors[before:]))
            del findings.errors[before:]
    return BAD if BAD in values.values() else values


def _struct(value: Any, struct: Any, path: str, findings: Findings) -> Any:
    if isinstance(value, str):
        value = {struct.shorthand: value}
    values = read_fields(value, struct, path, findings)
    if BAD in values.values():
        return BAD
    result = struct(**values)
    if hasattr(result, "problems"):
        for field, message, hint in result.problems():
            findings.error(child(path, field) if field in value else path, message, hint)
    return result


def _number(value: Any, path: str, findings: Findings, written: Any) -> Any:
    try:
        number = float(value)
    except OverflowError:  # a whole number that no float can hold
        number = math.inf
    if math.isfinite(number):
        return number
    report_mismatch(written, float, path, findings)
    return BAD


# Mistakes


def unknown_key(key: str, path: str, struct: type[msgspec.Struct], findings: Findings) -> None:
    if (instead := getattr(struct, "gone", {}).get(key)) is not None:  # of an earlier version
        findings.warn(path, f"the key {key!r} has no effect any more", instead)
        return
    known = fields_of(struct)
    hint = did_you_mean(key, known) or f"known keys: {', '.join(known)}"
    if getattr(struct, "lenient", False):
        findings.warn(path, f"unknown key {key!r}; it is ignored", hint)
    else:
        findings.error(path, f"unknown key {key!r}", hint)


def report_mismatch(value: Any, wanted: Any, path: str, findings: Findings) -> None:
    message = f"expected {_expected(wanted)}, got {_described(value, wanted)}"
    findings.error(path, message, _advice(value, wanted))


def _expected(wanted: Any) -> str:
    """Describe the expected type, for example "a whole number"."""
    words: list[str] = []
    for choice in choices_of(wanted):
        if get_origin(choice.type) is Literal:
            words += map(str, get_args(choice.type))
        elif choice.type is Path:
            words.append("a path")
        elif choice.type is not NoneType:
            kinds = {"number"} if choice.type is float else choice.kinds
            words += (YAML_TYPES[kind] for kind in sorted(kinds))
    return either(words)


def _described(value: Any, wanted: Any = Any) -> str:
    """Describe the value found, but never a secret."""
    if isinstance(value, Secret) and "${" in value.shown:
        return f"the value of {value.shown}"
    kind = type_of(value)
    if kind in ("string", "number", "integer") and any(choice.type is Secret for choice in choices_of(wanted)):
        return TYPES["string" if kind == "string" else "number"]
    return described(value, YAML_TYPES, MAX_SHOWN_LENGTH)


def _advice(value: Any, wanted: Any) -> str | None:
    kinds = frozenset[str]().union(*(choice.kinds for choice in choices_of(wanted)))
    kind = type_of(value)
    if isinstance(value, Secret):
        return None
    if kind == "null":
        return "write a value, or remove the key to get its default"
    if "string" in kinds and kind in ("integer", "number", "boolean"):
        return "quote it"
    if "array" in kinds and kind == "string":
        return "write a list: [value]"
    if kind == "string":
        with suppress(ValueError):
            if type_of(plain_value(value)) in kinds:
                return "write it without quotes"
    return None
