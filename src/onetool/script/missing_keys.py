"""Explains a missing key of a tool's result: lists the existing keys if the code shows which call it came from."""

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from onetool.core.errors import cut
from onetool.script.names import CALL, ScriptNames

MAX_STEPS = 30  # from a name to the call that it comes from
ANY = object()  # any item: the step of a loop, or of an index that isn't written out
Path = tuple[object, ...]
MAX_KEYS = 20
MAX_KEY = 64  # characters
_ATTRIBUTE = re.compile(r"'(dict|list|str)' object has no attribute '(\w+)'")


def missing_key_hint(
    kind: str, text: str, code: str, lines: tuple[int, int] | None, names: ScriptNames, returned: Mapping[str, Any]
) -> str | None:
    """Return a hint with the keys of the object that a failing `x["key"]` or `x.key` used; None if unknown.

    `returned` are the last values of tools, by name.
    """
    is_attribute = kind == "AttributeError"
    missing = _ATTRIBUTE.fullmatch(text) if is_attribute else None
    if (
        lines is None
        or not returned
        or (is_attribute and missing is None)
        or kind not in ("AttributeError", "KeyError")
    ):
        return None
    key = missing[2] if missing else text
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    bindings = _bindings(tree)
    for node in _lookups(tree, key, lines, is_attribute):
        for tool, path in _origins(node.value, bindings, names, MAX_STEPS):
            value = _part(returned.get(tool), path)
            if isinstance(value, dict):
                write = f"write [{key!r}]; " if is_attribute and key in value else ""
                keys = ", ".join(cut(str(name), MAX_KEY) for name in islice(value, MAX_KEYS))
                more = ", …" if len(value) > MAX_KEYS else ""
                return f"{write}the object returned by {tool} has the keys {keys}{more}"
            if isinstance(value, list):
                return f"{tool} returned a list here: index it or loop over it"
    return f"write [{key!r}]" if missing and missing[1] == "dict" else None


def _lookups(
    tree: ast.AST, key: str, lines: tuple[int, int], is_attribute: bool
) -> Iterator[ast.Attribute | ast.Subscript]:
    """Yield the expressions in these lines that look up this key."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=attr) if is_attribute and attr == key:
                pass
            case ast.Subscript(slice=index) if not is_attribute and _step(index) in (key, ANY):
                pass
            case _:
                continue
        if node.lineno <= lines[1] and (node.end_lineno or node.lineno) >= lines[0]:
            yield node


def _bindings(tree: ast.AST) -> dict[str, list[tuple[ast.expr, Path]]]:
    """Return what names are bound to anywhere in the code, the last first, each with the path to the name's part."""
    found: dict[str, list[tuple[ast.expr, Path]]] = {}
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                found.setdefault(name, []).insert(0, (value, ()))
            case (
                ast.For(target=ast.Name(id=name), iter=items) | ast.comprehension(target=ast.Name(id=name), iter=items)
            ):
                found.setdefault(name, []).insert(0, (items, (ANY,)))
            case _:
                pass
    return found


def _origins(
    node: ast.AST, bindings: Mapping[str, list[tuple[ast.expr, Path]]], names: ScriptNames, steps: int
) -> Iterator[tuple[str, Path]]:
    """Yield the tools whose results an expression may be, each with the path to it inside the result."""
    if not steps:
        return
    match node:
        case ast.Await(value=inner) | ast.NamedExpr(value=inner):
            yield from _origins(inner, bindings, names, steps - 1)
        case ast.Subscript(value=inner, slice=key):
            for tool, path in _origins(inner, bindings, names, steps - 1):
                yield tool, (*path, _step(key))
        case ast.Call(func=ast.Attribute(value=inner, attr="get"), args=[ast.Constant(value=str(key)), *_]):
            for tool, path in _origins(inner, bindings, names, steps - 1):
                yield tool, (*path, key)
        case ast.Call(func=ast.Name(id=word)):
            yield from _called(word, node, names)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=pack), attr=own)):
            yield from _called(f"{pack}.{own}", node, names)
        case ast.Name(id=word):
            for value, rest in bindings.get(word, ()):
                for tool, path in _origins(value, bindings, names, steps - 1):
                    yield tool, (*path, *rest)
        case _:
            pass


def _called(word: str, node: ast.Call, names: ScriptNames) -> Iterator[tuple[str, Path]]:
    spec = names.tool(word)
    if spec is CALL and node.args and isinstance(named := node.args[0], ast.Constant) and isinstance(named.value, str):
        spec = names.catalogue.get(named.value) or names.tool(named.value)
    if spec is not None:
        yield spec.name, ()


def _part(value: Any, path: Path) -> Any:
    """Return the part of a value that a path leads to; None if there is none."""
    for key in path:
        match value:
            case dict() if key in value:
                value = value[key]
            case dict() | list() if key is ANY and value:
                value = next(iter(value.values() if isinstance(value, dict) else value))
            case list() if isinstance(key, int) and -len(value) <= key < len(value):
                value = value[key]
            case _:
                return None
    return value


def _step(key: ast.AST) -> object:
    """Return the step of a subscript."""
    if isinstance(key, ast.Constant) and isinstance(key.value, str | int) and key.value is not True:
        return key.value
    return ANY
