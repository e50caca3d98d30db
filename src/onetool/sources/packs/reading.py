"""Read the tools of a pack from its source, without importing the pack.

`read_tools` runs only what signatures need: light imports, classes, constants, and functions without their bodies. If
that fails (a type hint that needs a heavy library, an unknown decorator) the pack has to be imported. `parsed` runs
nothing: it finds names, first lines of docstrings and line numbers, but no schemas and no tools created at run time.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from onetool.core.errors import ToolFailure
from onetool.core.registry import Catalogue
from onetool.core.spec import Handler, ToolSpec
from onetool.sdk.pack import tools_of
from onetool.sources.packs.importing import MAX_FILE_BYTES, PackCandidate, PackImport, import_mistake

if TYPE_CHECKING:
    from onetool.core.threads import Threads

OUTLINE_SECONDS = 2.0
# Modules that type hints use and that are quick to import.
# fmt: off
LIGHT = frozenset({
    "__future__", "abc", "collections", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "math",
    "msgspec", "onetool", "os", "pathlib", "re", "string", "types", "typing", "typing_extensions", "uuid",
})
# fmt: on
_KNOWN_DECORATORS = frozenset({"tool", "requires_cli", "requires_lib"})


def is_heavy(file: Path) -> bool:
    """Return whether the module imports third-party libraries, which may take seconds."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    except (OSError, UnicodeDecodeError):
        return False  # importing the file reports the error
    for line in lines:
        if line.startswith(("import ", "from ")):
            _, *names = line.replace(",", " ").split()
            top = names[0].partition(".")[0] if names else ""
            if top and top not in sys.stdlib_module_names and top not in LIGHT:
                return True
    return False


def read_tools(file: Path, started: PackImport) -> tuple[ToolSpec, ...]:
    """Return the pack's tools, which import the pack when first called; empty if the source isn't enough."""
    found: list[Catalogue] = []

    def read() -> None:
        with suppress(BaseException):  # importing the pack reports the error better
            found.append(tools_of(_outline(file, started.candidate.name)))

    thread = Thread(target=read, name="read a pack", daemon=True)
    thread.start()
    thread.join(OUTLINE_SECONDS)  # even a class body may never finish
    return () if not found or found[0].mistakes else tuple(_lazy(spec, started) for spec in found[0].tools)


def imports_are_there(file: Path) -> bool:
    """Return whether every library that the module imports is installed; if not, importing names the missing one."""
    from importlib.util import find_spec

    try:
        statements = ast.parse(file.read_bytes(), str(file)).body
    except (OSError, SyntaxError, ValueError):
        return False
    names = [alias.name for node in statements if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in statements if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    try:
        return all(find_spec(name.partition(".")[0]) for name in names)
    except (ImportError, ValueError):
        return False


def _outline(file: Path, name: str) -> ModuleType:
    tree = ast.parse(file.read_bytes(), str(file))
    tree.body = [statement for node in tree.body if (statement := _needed(node)) is not None]
    module = ModuleType(f"onetool_outline_{file.stem}")
    module.pack = name  # pyright: ignore[reportAttributeAccessIssue] - the file may set its own name
    sys.modules[module.__name__] = module  # dataclasses and type hints look their module up there
    exec(compile(ast.fix_missing_locations(tree), file, "exec"), module.__dict__)  # noqa: S102 - packs are trusted code
    return module


def _needed(node: ast.stmt) -> ast.stmt | None:
    """Return the part of a statement that a signature may need."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for decorator in node.decorator_list:
            if _decorator(decorator)[0] not in _KNOWN_DECORATORS and not node.name.startswith("_"):
                raise ValueError(f"{node.name} has an unknown decorator, which could change its signature")
        documented = node.body[:1] if ast.get_docstring(node) is not None else []
        node.body = [*documented, ast.Expr(ast.Constant(...))]
        return node
    if isinstance(node, ast.Import):
        node.names = [alias for alias in node.names if alias.name.partition(".")[0] in LIGHT]
        return node if node.names else None
    if isinstance(node, ast.ImportFrom):
        return node if not node.level and node.module and node.module.partition(".")[0] in LIGHT else None
    if isinstance(node, ast.ClassDef):
        return node
    if isinstance(node, ast.Assign | ast.AnnAssign):
        is_computed = node.value is None or any(isinstance(part, ast.Call) for part in ast.walk(node.value))
        return None if is_computed else node
    if isinstance(node, ast.Expr) or _is_guard(node):
        return None
    raise ValueError(f"line {node.lineno} is a statement that could define tools")


def _is_guard(node: ast.stmt) -> bool:
    """Return whether a statement is `if TYPE_CHECKING:`, `if __name__ == …:` or a `try` of imports, without tools."""
    if isinstance(node, ast.If) and not node.orelse:
        names = {part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)}
        return bool(names & {"TYPE_CHECKING", "__name__"})
    return isinstance(node, ast.Try) and all(isinstance(line, ast.Import | ast.ImportFrom) for line in node.body)


@cache
def _import_threads() -> "Threads":
    """Return the threads in which async tools wait for their pack: exiting would wait for the event loop's threads."""
    from onetool.core.threads import Threads

    return Threads()


def _lazy(spec: ToolSpec, started: PackImport) -> ToolSpec:
    """Return the tool with a handler that imports the real module when called."""

    @cache
    def handler() -> Any:
        try:
            module = started.module()
        except BaseException as error:  # noqa: BLE001 - a pack may raise anything
            mistake = import_mistake(started.candidate, error)
            raise ToolFailure(f"the pack can't be imported: {mistake}", reason="source_unavailable") from None
        for imported in tools_of(module).tools:
            if imported.name == spec.name:
                return imported.handler
        raise LookupError(f"{spec.name} no longer exists in its pack")

    async def call_async(**args: Any) -> Any:
        return await (await _import_threads().run(handler, {}))(**args)

    def call(**args: Any) -> Any:
        return handler()(**args)

    return msgspec.structs.replace(spec, handler=call_async if spec.is_async else call)


# Reading tools without importing the pack

ANYTHING: Mapping[str, Any] = {"type": "object"}
OFFERS = ("prompt", "resource")  # decorators of functions that aren't tools

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parsed(candidate: PackCandidate, handler: Handler | None = None) -> tuple[str, Catalogue]:
    """Return a pack's name and tools, with `handler` for calls. Raises OSError, SyntaxError or ValueError."""
    file = candidate.file or _source_file(candidate.module or candidate.name)
    if file is None:
        raise ValueError(f"can't find the source of {candidate.origin} without importing it")
    if not file.is_file() or file.stat().st_size > MAX_FILE_BYTES:  # reading a pipe would block
        raise ValueError(f"{file.name} is not a file, or is larger than {MAX_FILE_BYTES:,} bytes")
    body = list(_statements(ast.parse(file.read_bytes(), str(file)).body))
    constants: dict[str, Any] = {}
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and target.id in ("pack", "__all__"):
                    with suppress(ValueError, TypeError):  # computed
                        constants[target.id] = ast.literal_eval(node.value)
    pack = constants.get("pack")
    pack = pack if isinstance(pack, str) and pack else candidate.name
    tools: list[ToolSpec] = []
    for name, node in _functions(body, constants.get("__all__")):
        description = (ast.get_docstring(node) or "") if node is not None else ""
        line = 1 if node is None else min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        spec = ToolSpec(
            name=f"{pack}.{name}",
            description=description.partition("\n")[0],
            input_schema=ANYTHING,
            handler=handler or _not_imported,
            defined_in=f"{file}:{line}",
        )
        tools.append(spec)
    return pack, Catalogue(tools=tuple(tools))


def _not_imported(**_: Any) -> NoReturn:
    raise ToolFailure("the tool's pack was not imported, so its tools can't be called", reason="source_unavailable")


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the top-level statements, including those inside `if` and `try`."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _statements((*node.body, *node.orelse))
        elif isinstance(node, ast.Try):
            yield from _statements((*node.body, *node.orelse, *node.finalbody))
        else:
            yield node


def _functions(body: Iterable[ast.stmt], public: Any) -> Iterator[tuple[str, Function | None]]:
    """Yield tool names with their functions, in the order of the file. A lambda has no function.

    `public` is the value of `__all__`. If it isn't a list, names without an underscore are public.
    """
    functions: dict[str, Function | None] = {}
    for node in body:
        if isinstance(node, Function):
            functions[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            functions |= {target.id: None for target in node.targets if isinstance(target, ast.Name)}
    for name, node in functions.items():
        is_public = name in public if isinstance(public, list | tuple) else not name.startswith("_")
        decorators = [] if node is None else [_decorator(decorator) for decorator in node.decorator_list]
        if is_public and not any(decorator in OFFERS for decorator, _ in decorators):
            yield next((tool for decorator, tool in decorators if decorator == "tool" and tool), name), node


def _decorator(decorator: ast.expr) -> tuple[str, str | None]:
    """Return a decorator's name and its `name` argument, if set."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    value = next((keyword.value for keyword in keywords if keyword.arg == "name"), None)
    text = value.value if isinstance(value, ast.Constant) else None
    return name, text if isinstance(text, str) else None


def _source_file(module: str) -> Path | None:
    """Return the source file of an installed module. `importlib.util.find_spec` would import its parent packages."""
    path, name, spec = list(sys.path), "", None
    for part in module.partition(":")[0].split("."):
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None
