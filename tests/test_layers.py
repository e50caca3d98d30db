"""Imports go in one direction: no two modules import each other, by whatever way.

Imports inside functions and those for type checkers count, too: they hide a circle, and do not break it.
"""

import ast
import gc
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ASGI = ("__init__.py", "onetool.interfaces.http.mount")  # the home of `onetool.asgi`


@pytest.mark.parametrize(("folder", "package"), [("src", "onetool"), (".", "bench")])
def test_no_modules_import_each_other(folder, package):
    gc.disable()  # else most of the time goes into looking for garbage in syntax trees
    try:
        graph = import_graph(ROOT / folder, package)
    finally:
        gc.enable()
    assert sum(map(len, graph.values())) > len(graph), "it has seen the imports"
    assert not circle_in(graph), " -> ".join(circle_in(graph))


def test_one_module_asks_which_system_this_is():
    asking = re.compile(r"win32|\bos\.name\b|\bmsvcrt\b|\bfcntl\b")
    files = (ROOT / "src" / "onetool").rglob("*.py")
    found = [str(file.relative_to(ROOT)) for file in files if asking.search(file.read_text())]
    assert found == ["src/onetool/core/system.py"]


def test_nothing_below_names_an_interface_except_for_asgi():
    """The linter sees imports; this sees modules that are imported by their name, too."""
    package = ROOT / "src" / "onetool"
    below = [file for file in package.rglob("*.py") if "interfaces" not in file.parts and file.name != "__main__.py"]
    named = {
        (file.relative_to(package).as_posix(), name)
        for file in below
        for name in re.findall(r"onetool\.interfaces[\w.]*", file.read_text(encoding="utf-8"))
    }
    assert named == {ASGI}


def test_only_the_http_server_imports_starlette():
    importing = re.compile(r"^\s*(?:from|import) starlette\b", re.MULTILINE)
    package = ROOT / "src" / "onetool"
    found = {
        file.relative_to(package).as_posix() for file in package.rglob("*.py") if importing.search(file.read_text())
    }
    assert found == {"interfaces/http/guard.py", "interfaces/rest/routing.py"}


@pytest.mark.parametrize(
    "back",
    [
        "from package.a import x",
        "from package import a",
        "import package.a",
        "from . import a",
        "from .a import x",
        "def f():\n    from package.a import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from package.a import x",
        "try:\n    pass\nexcept OSError:\n    from package.a import x",
        "for _ in ():\n    pass\nelse:\n    with f():\n        import package.a",
        "match x:\n    case 1:\n        from package.a import x",
        "try:\n    pass\nfinally:\n    from package.a import x",
    ],
)
def test_a_circle_is_found(tmp_path, back):
    texts = {"__init__": "", "a": "from package.b import y", "b": "from package.c import y", "c": back}
    (tmp_path / "package").mkdir()
    for name, text in texts.items():
        (tmp_path / "package" / f"{name}.py").write_text(text)
    graph = import_graph(tmp_path, "package")
    circle = {"package.a", "package.b", "package.c"}
    assert set(circle_in(graph)) == circle
    assert not circle_in({name: imported - {"package.a"} for name, imported in graph.items()})


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """The modules of a circle in order, the first one again at the end; [] if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1][::-1]
    return []


def import_graph(root: Path, package: str) -> dict[str, set[str]]:
    """The modules of a package, each with those of the package that its text imports anywhere."""
    files = {_module_name(file.relative_to(root)): file for file in (root / package).rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for module, file in files.items():
        inside = module if file.name == "__init__.py" else module.rpartition(".")[0]
        found = {name if name in files else name.rpartition(".")[0] for name in _imported_names(file, inside)}
        graph[module] = found & files.keys() - {module}
    return graph


def _module_name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All of them, also inside of others. An import is never a part of an expression."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for one in getattr(tree, field, ()):
            yield one
            yield from _statements(one)


def _imported_names(file: Path, package: str) -> Iterator[str]:
    """Of modules, or of what is in them: `a.b` for `from a import b`."""
    for node in _statements(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
