"""The standard modules that the sandbox lacks and we bring: `import statistics` means a file of the library folder.

The library's files are written in the sandbox's Python and run inside it, like the code that imports them: they need no
trust. `prelude` is fed first and leaves one object per module, under a name of ours, for `imports` to bind.
"""

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from textwrap import indent

_FOLDER = Path(__file__).parent / "library"
_FILES = {  # a test holds this against the folder
    "contextlib": "contextlib.py",
    "fnmatch": "fnmatch.py",
    "heapq": "heapq.py",
    "html": "html.py",
    "io": "io.py",
    "operator": "operator.py",
    "shlex": "shlex.py",
    "statistics": "statistics.py",
    "string": "string.py",
    "textwrap": "textwrap.py",
    "urllib.parse": "urllib_parse.py",
    "uuid": "uuid.py",
}
_PACKAGES = {"urllib": "urllib.parse"}

AVAILABLE = frozenset([*_FILES, *_PACKAGES])


def prelude(names: Iterable[str]) -> str:
    """What to feed first for these modules: each is made once, and nothing of it gets in the way of other names."""
    wanted = {_PACKAGES.get(name, name) for name in names}
    packages = [package for package, module in _PACKAGES.items() if module in wanted]
    return "".join(map(_made, [*sorted(wanted), *packages]))


def variable(module: str) -> str:
    """The name of ours under which the sandbox keeps a module."""
    return f"__onetool_{module.replace('.', '_')}"


@cache
def _source(module: str) -> str:
    return (_FOLDER / _FILES[module]).read_text(encoding="utf-8")


@cache
def public_names(module: str) -> tuple[str, ...]:
    """What a module offers: the names that its file defines and that do not begin with an underscore."""
    if module in _PACKAGES:
        return (_PACKAGES[module].rpartition(".")[2],)
    found: list[str] = []
    for node in ast.parse(_source(module)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign):
            found += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return tuple(sorted({name for name in found if not name.startswith("_")}, key=str.lower))


@cache
def _made(module: str) -> str:
    """A module's source in a function, so that nothing leaks; it returns an object with the public names.

    The object's class has the module's name, which is what the sandbox says when an attribute is missing. It comes
    first, because the source may define the same name.
    """
    home = variable(module)
    if module in _PACKAGES:
        body = ""
        values = {_PACKAGES[module].rpartition(".")[2]: variable(_PACKAGES[module])}
    else:
        body = _source(module)
        values = {name: name for name in public_names(module)}
    name = module.replace(".", "_")
    lines = [
        f"class {name}:",
        "    def __repr__(self):",
        f"        return {f'<module {module!r}>'!r}",
        f"__onetool_module = {name}()",
        body,
        *(f"__onetool_module.{name} = {value}" for name, value in values.items()),
        "return __onetool_module",
    ]
    return f"def {home}():\n{indent(chr(10).join(lines), '    ')}\n{home} = {home}()\n"
