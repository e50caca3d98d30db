"""Infers a return schema from a docstring's `Returns:` section or from returned literals.

    Returns:
        A list of {id, name, price: float}.        or: a dict with the keys id, name and price.

    return {"id": row.id, "items": [{"name": name} for name in names], "total": len(names)}

Inferred when the tool's signature is first shown. The schema is never enforced.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from textwrap import dedent
from typing import Any

from onetool.core.inferred_schema import MAX_FIELDS, Schema, array_of, is_name, joined, object_of
from onetool.core.text import lazy_pattern

MAX_LEVELS = 6  # nested literals
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null", "NoneType": "null"}
_CALLS = {"len": "int", "int": "int", "str": "str", "float": "float", "bool": "bool", "repr": "str", "abs": "float",
          "round": "float"}  # fmt: skip
_NAME = r"[\"'`]?([A-Za-z_][\w-]*)[\"'`]?"
_BRACES = lazy_pattern(rf"(\[\s*)?\{{\s*({_NAME}\??(?:\s*:[^{{}},]+)?(?:\s*,\s*{_NAME}\??(?:\s*:[^{{}},]+)?)*)\s*\}}")
_FIELD = lazy_pattern(rf"{_NAME}\??(?:\s*:\s*(\w+))?")
_KEYS = lazy_pattern(rf"\b(?:keys|fields)\b:?\s+((?:{_NAME}(?:\s*,\s*(?:and\s+)?|\s+and\s+))+{_NAME})")
_LINE = lazy_pattern(rf"^[ \t]+(?:[-*]\s+)?{_NAME}(?:\s*\((\w+)[^)]*\))?:\s+\S", re.MULTILINE)
_RETURNS = lazy_pattern(r"^[ \t]*Returns?:[ \t]*\n((?:[ \t]+\S.*\n?|[ \t]*\n)+)", re.MULTILINE)
_MANY = lazy_pattern(r"(?i)^(?:an?\s+)?(?:list|array|rows|items)\b|\bof each\b")


def described_returns(function: Callable[..., Any], docs: str | None) -> Mapping[str, Any] | None:
    """Return a schema of a function's return value; None if neither the docstring nor the source code describes it.

    `docs` is the docstring's description of the return value.
    """
    return _from_sentence(docs or "") or _from_lines(function.__doc__ or "") or _from_source(function)


# The docstring


def _from_sentence(text: str) -> Schema | None:
    if match := _BRACES.search(text):
        fields = [_FIELD.match(part.strip()) for part in match[2].split(",")]
        shape = _fields({field[1]: _typed(field[2]) for field in fields if field})
        is_many = match[1] or _MANY.search(text)
        return array_of(shape) if shape and is_many else shape
    if match := _KEYS.search(text):
        names = (part.strip(" \"'`") for part in re.split(r",|\band\b", match[1]))
        return _fields({name: {} for name in names if name})
    return None


def _typed(kind: str | None) -> Schema:
    return {"type": _TYPES[kind]} if kind in _TYPES else {}


def _from_lines(docstring: str) -> Schema | None:
    """Parse a section `Returns:` with a line for each field: `id (int): The number.`"""
    section = _RETURNS.search(inspect.cleandoc(docstring) + "\n") if "Return" in docstring else None
    lines = list(_LINE.finditer(section[1])) if section else []
    if len(lines) < 2:  # a single line may be a type, or a sentence with a colon
        return None
    return _fields({line[1]: _typed(line[2]) for line in lines})


def _fields(fields: dict[str, Schema]) -> Schema | None:
    if not fields or len(fields) > MAX_FIELDS or not all(map(is_name, fields)):
        return None
    return object_of(fields)


# The source


def _from_source(function: Callable[..., Any]) -> Schema | None:
    """Return the common schema of all returned literals; None if a returned value is not a literal."""
    try:
        tree = ast.parse(dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError, IndexError):
        return None  # generated code, or a file that has changed
    if not isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    nodes = list(_own_nodes(tree))
    values: dict[str, list[ast.expr | None]] = {}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                values.setdefault(name, []).append(value)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                values.setdefault(name, []).append(None)  # rebound or modified, perhaps above
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
                values.setdefault(name, []).append(None)  # `result.update(…)`
            case _:
                pass
    returned = [node.value for node in nodes if isinstance(node, ast.Return) and node.value is not None]
    shapes: list[Schema] = []
    for value in returned:
        if isinstance(value, ast.Name):
            known = values.get(value.id, [])
            value = known[0] if len(known) == 2 and known[0] is not None else value  # the value and its target
        if not isinstance(value, ast.Dict | ast.List | ast.ListComp | ast.Constant):
            return None
        shapes.append(_shape(value, MAX_LEVELS))
    found = joined(shape for shape in shapes if shape.get("type") != "null")
    return found if not {"object", "array"}.isdisjoint([found.get("type")]) else None


def _own_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of nested functions and classes."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield node
            yield from _own_nodes(node)


def _shape(node: ast.expr, levels: int) -> Schema:
    match node:
        case ast.Constant(value=value):
            return _typed(type(value).__name__)
        case ast.JoinedStr():
            return _typed("str")
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return _typed("bool")
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            return _typed(_CALLS[name])
        case ast.Call(func=ast.Attribute(attr="join" | "strip" | "lower" | "upper" | "isoformat" | "format")):
            return _typed("str")
        case ast.List(elts=items) if levels:
            return array_of(joined(_shape(item, levels - 1) for item in items))
        case ast.ListComp(elt=item) if levels:
            return array_of(_shape(item, levels - 1))
        case ast.Dict(keys=keys, values=items) if levels:
            names = [key.value if isinstance(key, ast.Constant) else None for key in keys]
            pairs = zip(names, items, strict=True)
            fields = {name: _shape(item, levels - 1) for name, item in pairs if isinstance(name, str)}
            known = _fields(fields) if len(fields) == len(keys) else None
            return known or {"type": "object"}
        case ast.DictComp():
            return {"type": "object"}
        case _:
            return {}
