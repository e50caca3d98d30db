"""Node + type -> value, or findings that say what is wrong. A new settings struct needs no new code here.

Knows str, int, float, bool, None, Any, Path, Secret, Literal, list, tuple, dict, msgspec structs, unions of them, and
the limits of `Annotated[int, Meta(ge=1)]`. A struct may say more about itself:

- `lenient = True`: unknown keys are warnings
- `shorthand = "host"`: a text alone stands for a struct with that one field
- `problems()`: yields (field, message, hint) for what only shows when all fields are known
- `from_node(node, findings)`: reads itself
- `broken(mistakes)`: stands for one that has mistakes, which are its own then: the rest of the config is used
"""

import math
import os
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, replace

from onetool.config.node import BROKEN, Findings, Node, in_order
from onetool.config.scalars import plain_value
from onetool.config.wanted import Choice, broken_limit, choices_of, empty_for, expected, got, kind_of, takes
from onetool.core.nearest import did_you_mean
from onetool.services.secrets import Secret

BAD: Any = type("Bad", (), {"__repr__": lambda self: "BAD"})()  # what `read` gives back when it has found a mistake


def read(node: Node, wanted: Any, findings: Findings) -> Any:
    """The node's value as this type; BAD when it can't be, and then the findings say why."""
    if wanted is Any:
        return plain(node, findings)
    if hasattr(wanted, "from_node"):
        return wanted.from_node(node, findings)
    findings.add(node.mistakes)
    if node.value is BROKEN:
        return BAD
    choices = choices_of(wanted)
    node = _unwrapped(node, choices)
    for choice in choices:
        if kind_of(node.value) in takes(choice.type):
            return _within_limits(node, _read_as(node, choice.type, findings), choice, findings)
    if node.value is None:  # `tools:` with nothing behind it, as it is left when its lines are commented out
        for choice in choices:
            if (empty := empty_for(choice.type)) is not None:
                return _read_as(replace(node, value=empty), choice.type, findings)
    mismatch(node, wanted, findings)
    return BAD


def plain(node: Node, findings: Findings) -> Any:
    """The node as plain data, with a warning where an older YAML would have read something else."""
    findings.add(node.mistakes)
    if node.trap:
        hint = f'{node.trap}, or quote it if text is meant: "{node.value}"'
        findings.warn(node, f"read as the text {node.value!r}", hint)
    if isinstance(node.value, list):
        return [plain(item, findings) for item in node.value]
    if isinstance(node.value, dict):
        return {key: plain(item, findings) for key, item in node.value.items()}
    return None if node.value is BROKEN else node.value


def read_fields(node: Node, struct: type[msgspec.Struct], findings: Findings) -> dict[str, Any]:
    """The fields that the mapping gives, by the struct's own names."""
    fields = fields_of(struct)
    values: dict[str, Any] = {}
    for key, child in node.value.items():
        if key in fields:
            values[fields[key].name] = read(child, fields[key].type, findings)
        else:
            unknown_key(child, key, struct, findings)
    for key, field in fields.items():
        if field.required and key not in node.value:
            findings.error(node, f"the key {key!r} is missing", f"add {key}: …")
            values[field.name] = BAD
    return values


@cache
def fields_of(struct: type[msgspec.Struct]) -> dict[str, FieldInfo]:
    """A struct's fields by the keys that the file has for them."""
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


def unknown_key(node: Node, key: str, struct: type[msgspec.Struct], findings: Findings) -> None:
    known = fields_of(struct)
    hint = did_you_mean(key, known) or f"known are {', '.join(known)}"
    if getattr(struct, "lenient", False):
        findings.warn(node, f"the key {key!r} is not known here and is ignored", hint)
    else:
        findings.error(node, f"the key {key!r} is not known", hint)


def mismatch(node: Node, wanted: Any, findings: Findings) -> None:
    findings.error(node, f"expected {expected(wanted)}, got {got(node, wanted)}", _advice(node, wanted))


def _advice(node: Node, wanted: Any) -> str | None:
    kinds: set[str] = set().union(*(takes(choice.type) for choice in choices_of(wanted)))
    kind = kind_of(node.value)
    if node.written:
        return None
    if kind == "nothing":
        return "write a value, or remove the key to get its default"
    if "text" in kinds and kind in ("whole", "fraction", "bool"):
        return "quote it"
    if "list" in kinds and kind == "text":
        return "write a list of one: [value]"
    if kind == "text" and _kind_without_quotes(node.value) in kinds:
        return "write it without quotes"
    return node.trap


def _kind_without_quotes(text: str) -> str:
    try:
        return kind_of(plain_value(text))
    except ValueError:
        return "text"


def _unwrapped(node: Node, choices: list[Choice]) -> Node:
    """`port: ${PORT}` gives text; where no text is wanted it is read as if its value stood in the file."""
    if not isinstance(node.value, Secret) or any("text" in takes(choice.type) for choice in choices):
        return node
    try:
        return replace(node, value=plain_value(str(node.value)))
    except ValueError:
        return node


def _read_as(node: Node, wanted: Any, findings: Findings) -> Any:
    origin = get_origin(wanted)
    if origin is Literal:
        return _literal(node, wanted, findings)
    if origin in (list, tuple):
        return _list(node, wanted, findings)
    if origin is dict:
        return _dict(node, get_args(wanted)[1], findings)
    if wanted in _SCALARS:
        return _SCALARS[wanted](node, findings)
    return _struct(node, wanted, findings)


def _literal(node: Node, wanted: Any, findings: Findings) -> Any:
    known = get_args(wanted)
    if node.value in known:
        return known[known.index(node.value)]
    hint = did_you_mean(node.value, map(str, known)) if isinstance(node.value, str) else None
    findings.error(node, f"expected {expected(wanted)}, got {got(node, wanted)}", hint)
    return BAD


def _list(node: Node, wanted: Any, findings: Findings) -> Any:
    items = [read(item, get_args(wanted)[0], findings) for item in node.value]
    if BAD in items:
        return BAD
    return tuple(items) if get_origin(wanted) is tuple else items


def _dict(node: Node, wanted: Any, findings: Findings) -> Any:
    values = {key: read(item, wanted, findings) for key, item in node.value.items()}
    return BAD if BAD in values.values() else values


def _struct(node: Node, struct: Any, findings: Findings) -> Any:
    if not hasattr(struct, "broken"):
        return _made(node, struct, findings)
    own = Findings()
    made = _made(node, struct, own)
    findings.add(own.warnings)
    return struct.broken(in_order(own.errors)) if own.errors else made


def _made(node: Node, struct: Any, findings: Findings) -> Any:
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
    mismatch(node, float, findings)
    return BAD


def _path(node: Node, findings: Findings) -> Any:
    """Relative to the folder of the file that names it."""
    if not node.value or "\0" in node.value:
        findings.error(node, "this is no path", "write the name of a file or a folder")
        return BAD
    return Path(node.file).parent / os.path.expanduser(node.value)


def _secret(node: Node, _: Findings) -> Secret:
    return node.value if isinstance(node.value, Secret) else Secret(node.value)


def _as_it_is(node: Node, _: Findings) -> Any:
    return node.value


_SCALARS: dict[Any, Callable[[Node, Findings], Any]] = {
    str: _as_it_is,
    int: _as_it_is,
    bool: _as_it_is,
    NoneType: _as_it_is,
    float: _number,
    Path: _path,
    Secret: _secret,
}


def _within_limits(node: Node, value: Any, choice: Choice, findings: Findings) -> Any:
    broken = None if value is BAD else broken_limit(value, choice.limits)
    if broken is None:
        return value
    findings.error(node, f"must {broken}, got {got(node, choice.type)}" if node.value != "" else f"must {broken}")
    return BAD
