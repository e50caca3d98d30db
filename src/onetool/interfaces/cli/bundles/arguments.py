"""What code leaves open: the names that nobody gives a value, and which become the arguments of a tool made of it."""

import ast
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from onetool.script.names import Names
    from onetool.script.scan import Scan

ANY = "any"
KINDS = ("string", "integer", "number", "boolean", "array", "object")
TYPES = {
    **dict(zip(("str", "int", "float", "bool", "list", "dict"), KINDS, strict=True)),
    **{one: one for one in KINDS},
}
_OF_DATA = frozenset(name for kind in (str, list, dict, int, float, bytes) for name in dir(kind))


class Argument(NamedTuple):
    """As `--arg` has it: NAME, NAME:TYPE or NAME:TYPE=DEFAULT."""

    name: str
    schema: dict[str, Any]

    @property
    def is_required(self) -> bool:
        return "default" not in self.schema


def read_argument(text: str) -> Argument:
    """ValueError says what is wrong with it."""
    said, equals, default = text.partition("=")
    name, colon, kind = said.partition(":")
    if not name.isidentifier():
        raise ValueError(f"{name!r} can't be a name in code; write NAME:TYPE, or NAME:TYPE=DEFAULT")
    if colon and kind != ANY and kind not in TYPES:
        raise ValueError(f"{kind!r} is no type; there are {', '.join(KINDS)} and {ANY}")
    schema: dict[str, Any] = {"type": TYPES[kind]} if kind in TYPES else {}
    if equals:
        schema["default"] = _default(default, schema)
    return Argument(name, schema)


def open_names(scan: "Scan", names: "Names") -> list[str]:
    """In the order of their first use. What is called like a function is no argument, but a mistake to be told."""
    found = sorted(_loads(scan), key=lambda node: (node.lineno, node.col_offset))
    called = {call.func.id for call in scan.calls if isinstance(call.func, ast.Name)}
    return [
        name for name in dict.fromkeys(node.id for node in found) if name not in called and _is_open(name, scan, names)
    ]


def arg_schema(open: Iterable[str], given: Mapping[str, Argument]) -> dict[str, Any]:
    """Those that were described first, in that order; the others may be anything."""
    properties = {argument.name: argument.schema for argument in given.values()}
    properties |= {name: {} for name in open if name not in given}
    required = [name for name in properties if name not in given or given[name].is_required]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _loads(scan: "Scan") -> list[ast.Name]:
    nodes = ast.walk(scan.tree) if scan.tree else ()
    return [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]


def _is_open(name: str, scan: "Scan", names: "Names") -> bool:
    from onetool.script.imports import MODULES
    from onetool.script.names import BUILTINS

    if name in scan.bound or name in scan.imported or name in BUILTINS or name in names:
        return False
    used_for = {node.attr for node in scan.attributes if isinstance(node.value, ast.Name) and node.value.id == name}
    # `text.upper()` is a text's; `brve.search()` is a pack that is not there, and `json.dumps` lacks an import.
    return used_for <= _OF_DATA and not (used_for and name in MODULES)


def _default(text: str, schema: Mapping[str, Any]) -> Any:
    if schema.get("type") == "string":
        return text
    try:
        value = json.loads(text)
    except ValueError:
        if schema:
            raise ValueError(f"the default {text!r} is not JSON, like 5, true or [1, 2]") from None
        return text
    from onetool.core.schema import CompiledSchema

    if problems := CompiledSchema({"properties": {"default": schema}}).check({"default": value}):
        raise ValueError("; ".join(map(str, problems)))
    return value
