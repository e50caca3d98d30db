"""A pack's tools by parsing its source and nothing else: for who must not run it, such as completion.

`reading` tells more, but runs classes and constants for it. Here not a line is run: names, first lines of docstrings
and places are known, schemas are not. What a pack makes while it runs (functions in a loop, names that are computed)
is not seen.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NoReturn

from onetool.core.errors import ToolFailure
from onetool.core.source import Catalogue
from onetool.core.spec import Handler, ToolSpec
from onetool.sources.packs.candidates import LONGEST_FILE, Candidate

ANYTHING: Mapping[str, Any] = {"type": "object"}
OFFERS = ("prompt", "resource")  # decorators of what is no tool

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parsed(candidate: Candidate, handler: Handler | None = None) -> tuple[str, Catalogue]:
    """A pack's name and tools; raises OSError, SyntaxError or ValueError. `handler` is what a call of one meets."""
    file = candidate.file or _file_of(candidate.module or candidate.name)
    if file is None:
        raise ValueError(f"the source of {candidate.origin} is not found without importing it")
    if not file.is_file() or file.stat().st_size > LONGEST_FILE:  # a pipe would keep us waiting
        raise ValueError(f"{file.name} is no file, or larger than {LONGEST_FILE:,} bytes")
    body = list(_statements(ast.parse(file.read_bytes(), str(file)).body))
    constants = dict(_constants(body))
    pack = constants.get("pack")
    pack = pack if isinstance(pack, str) and pack else candidate.name
    tools = tuple(_tool(pack, name, node, file, handler or _not_imported) for name, node in _functions(body, constants))
    return pack, Catalogue(tools=tools)


def _not_imported(**_: Any) -> NoReturn:
    raise ToolFailure("its pack was not imported: only the names of its tools are known", reason="source_unavailable")


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of the module itself, also inside of `if` and `try`."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _statements((*node.body, *node.orelse))
        elif isinstance(node, ast.Try):
            yield from _statements((*node.body, *node.orelse, *node.finalbody))
        else:
            yield node


def _constants(body: Iterable[ast.stmt]) -> Iterator[tuple[str, Any]]:
    """`pack` and `__all__`, where they are written out."""
    for node in body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and target.id in ("pack", "__all__"):
                with suppress(ValueError, TypeError):
                    yield target.id, ast.literal_eval(node.value)


def _functions(body: Iterable[ast.stmt], constants: Mapping[str, Any]) -> Iterator[tuple[str, Function | None]]:
    """As they are called, in the order of the file; of a lambda the name alone."""
    listed = constants.get("__all__")
    listed = listed if isinstance(listed, list | tuple) else None
    found: dict[str, Function | None] = {}
    for node in body:
        if isinstance(node, Function):
            found[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            found |= {target.id: None for target in node.targets if isinstance(target, ast.Name)}
    for name, node in found.items():
        public = not name.startswith("_") if listed is None else name in listed
        marks = [] if node is None else [_mark(decorator) for decorator in node.decorator_list]
        if public and not any(mark in OFFERS for mark, _ in marks):
            yield next((called for mark, called in marks if mark == "tool" and called), name), node


def _mark(decorator: ast.expr) -> tuple[str, str | None]:
    """A decorator's name, and the name that it gives the tool."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    given = next((one.value for one in getattr(decorator, "keywords", ()) if one.arg == "name"), None)
    text = given.value if isinstance(given, ast.Constant) else None
    return name, text if isinstance(text, str) else None


def _tool(pack: str, name: str, node: Function | None, file: Path, handler: Handler) -> ToolSpec:
    words = (ast.get_docstring(node) or "") if node is not None else ""
    line = 1 if node is None else min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return ToolSpec(
        name=f"{pack}.{name}",
        description=words.partition("\n")[0],
        input_schema=ANYTHING,
        handler=handler,
        defined_in=f"{file}:{line}",
    )


def _file_of(module: str) -> Path | None:
    """The source of an installed module. `importlib.util.find_spec` would import the packages around it."""
    path, name, spec = list(sys.path), "", None
    for part in module.partition(":")[0].split("."):
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None
