"""Rewrites code into the Python that the sandbox supports: imports, modules that it lacks, and a few idioms.

`import statistics` binds a module of `monty_stdlib`, `import brave` binds the pack. A pack with the name of a module
is merged with it: `time.now()` is the pack's and `time.sleep(1)` the module's. All edits are at positions from the
syntax tree, and lines keep their numbers. The modules of `monty_stdlib` run inside the sandbox, like the code
that imports them, and need no trust.
"""

import ast
import builtins
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from textwrap import indent
from types import MethodDescriptorType
from typing import NamedTuple

import msgspec

from onetool.script.awaits import gathers
from onetool.script.names import ScriptNames, ScriptPack
from onetool.script.parse import CodeScan, Edit, Span, edited

BUILTIN_TYPES = {kind.__name__: kind for kind in (str, bytes, int, float, list, tuple, dict, set, frozenset)}
BUILTIN_EXCEPTIONS = frozenset(
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
)


def idiom_edits(scan: CodeScan) -> Iterator[Edit]:
    """Yield edits for idioms that the sandbox lacks, unless the code gives their names another meaning."""
    for node in scan.attributes:
        word = getattr(node.value, "id", "")
        if word in scan.bound or word in scan.imported or node.lineno != node.end_lineno:
            continue
        if isinstance(getattr(BUILTIN_TYPES.get(word), node.attr, None), MethodDescriptorType):  # an unbound method
            yield Edit(*scan.places.of(node), f"(lambda _, *a, **k: _.{node.attr}(*a, **k))")
    for call in scan.calls:
        # Methods of values created by the code, passed as functions: `key=counts.get`, `map(counts.get, words)`.
        functions = [keyword.value for keyword in call.keywords if keyword.arg == "key"]
        if isinstance(call.func, ast.Name) and call.func.id in ("map", "filter"):
            functions += call.args[:1]
        for node in functions:
            match node:
                case ast.Attribute(value=ast.Name(id=word), attr=attr) if (
                    word in scan.bound and word not in scan.imported and node.lineno == node.end_lineno
                ):
                    yield Edit(*scan.places.of(node), f"(lambda *a: {word}.{attr}(*a))")
                case _:
                    pass
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name in scan.bound or name in scan.imported or call.keywords or not call.args:
            continue
        if name == "next" and isinstance(call.args[0], ast.GeneratorExp):
            yield from _within(scan, call, call.args[:1], "iter")
        elif name in BUILTIN_EXCEPTIONS and not any(isinstance(arg, ast.Starred) for arg in call.args):
            match call.args:
                case [ast.JoinedStr() | ast.Constant(value=str())]:
                    pass
                case _:
                    yield from _within(scan, call, call.args, "str")


def _within(scan: CodeScan, call: ast.Call, nodes: list[ast.expr], function: str) -> Iterator[Edit]:
    """Wrap adjacent arguments in a call of `function`; several of them as one tuple."""
    (start, _), (_, end) = scan.places.of(nodes[0]), scan.places.of(nodes[-1])
    if len(nodes) > 1:
        data = scan.code.encode()
        opens, closes = data[scan.places.of(call.func)[1] : start], data[end : scan.places.of(call)[1]]
        if opens.count(b"(") != 1 or closes.count(b")") != 1:
            return  # `ValueError((a), b)`: the ends of the arguments are hard to find
    before, after = (f"{function}((", "))") if len(nodes) > 1 else (f"{function}(", ")")
    if end == scan.places.of(call)[1]:  # `next(x for x in xs)`: the call's brackets are those of the expression
        before = f"({function}"
    yield Edit(start, start, before)
    yield Edit(end, end, after)


# `await` and `gather` of values

TOLERANT = """
def __onetool_is_value(value):
    return value is None or isinstance(value, (str, int, float, list, tuple, dict, set))
async def __onetool_value(value):
    return value
async def __onetool_await(value):
    return value if __onetool_is_value(value) else await value
async def __onetool_gather(*values, **options):
    import asyncio
    waiting = [__onetool_value(value) if __onetool_is_value(value) else value for value in values]
    return await asyncio.gather(*waiting, **options)
"""
"""The functions that accept what tools return beside futures."""


def await_edits(scan: CodeScan) -> Iterator[Edit]:
    """Yield edits that let `await` and `gather` take a tool's value, where an analysis can't tell."""
    for node in scan.awaits:
        if not _is_awaitable(node.value, scan):
            start, end = scan.places.of(node.value)
            yield Edit(start, start, "__onetool_await(")
            yield Edit(end, end, ")")
    for call in scan.calls:
        if gathers(call.func, scan.imported) == "asyncio.gather" and not all(
            _is_awaitable(argument, scan) for argument in call.args
        ):
            yield Edit(*scan.places.of(call.func), "__onetool_gather")


def _is_awaitable(node: ast.expr, scan: CodeScan) -> bool:
    """Return whether an awaited expression is a call of a tool, an async function or asyncio, or consists of these."""
    match node:
        case ast.Starred(value=ast.ListComp(elt=item) | ast.GeneratorExp(elt=item)):
            return _is_awaitable(item, scan)
        case ast.Call(func=ast.Name(id=word)):
            return word not in scan.bound or (word in scan.coroutines and scan.bound[word] == 1)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=word))):
            return word not in scan.bound
        case _:
            return False


# Modules that we add to the sandbox

NATIVE = frozenset(
    {"asyncio", "base64", "binascii", "bisect", "collections", "copy", "csv", "dataclasses", "datetime", "decimal",
     "functools", "hashlib", "itertools", "json", "math", "os", "os.path", "pathlib", "posixpath", "random", "re",
     "sys", "time", "tomllib", "typing", "unicodedata"}
)  # fmt: skip
"""The modules that the sandbox has itself."""

_FOLDER = Path(__file__).parent / "monty_stdlib"
_FILES = {  # a test compares this with the folder
    "heapq": "heapq.py",
    "io": "io.py",
    "operator": "operator.py",
    "statistics": "statistics.py",
    "string": "string.py",
    "textwrap": "textwrap.py",
    "urllib.parse": "urllib_parse.py",
}
_PACKAGES = {"urllib": "urllib.parse"}

AVAILABLE = frozenset([*_FILES, *_PACKAGES]) - NATIVE
"""OneTool's replacements for modules, except those that the sandbox has itself."""


def prelude(names: Iterable[str]) -> str:
    """Return the code that defines these modules, to be fed first. Each is created once, under a reserved name."""
    modules = {_PACKAGES.get(name, name) for name in names}
    packages = [package for package, module in _PACKAGES.items() if module in modules]
    return "".join(map(_module_function, [*sorted(modules), *packages]))


def module_variable(module: str) -> str:
    """Return the reserved variable in which the sandbox keeps a module."""
    return f"__onetool_{module.replace('.', '_')}"


@cache
def _module_source(module: str) -> str:
    return (_FOLDER / _FILES[module]).read_text(encoding="utf-8")


@cache
def public_names(module: str) -> tuple[str, ...]:
    """Return the public names of a module: those that its file defines without a leading underscore."""
    if module in _PACKAGES:
        return (_PACKAGES[module].rpartition(".")[2],)
    names: list[str] = []
    for node in ast.parse(_module_source(module)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return tuple(sorted({name for name in names if not name.startswith("_")}, key=str.lower))


@cache
def _module_function(module: str) -> str:
    """Return a module's source in a function, so that nothing leaks; it returns an object with the public names.

    The object's class has the module's name, because the sandbox names it when an attribute is missing. It comes first,
    because the source may define the same name.
    """
    home = module_variable(module)
    if module in _PACKAGES:
        body = ""
        values = {_PACKAGES[module].rpartition(".")[2]: module_variable(_PACKAGES[module])}
    else:
        body = _module_source(module)
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


# Imports

MODULES = NATIVE | AVAILABLE


class ImportRewriter:
    """The changes to some code for its imports, and the definitions it needs first."""

    def __init__(self, scan: CodeScan, names: ScriptNames) -> None:
        self._scan = scan
        self._names = names
        self.edits: list[Edit] = []
        self.library: set[str] = set()  # modules of ours that the code needs
        self.native: list[str] = []  # modules of the sandbox that are used without an import
        self.words: dict[str, str] = {}  # names to bind, with their packs or functions
        for word in scan.used:
            if word in names and word not in scan.bound and word not in scan.imported:
                self._use(word)
        for node in scan.imports:
            parts = list(self._import_parts(node) if isinstance(node, ast.Import) else self._from_parts(node))
            if any(part.changed for part in parts):
                text = "; ".join(part.text for part in parts)  # in one line
                if more_lines := (node.end_lineno or node.lineno) - node.lineno:
                    # Missing line breaks go into the last bracket, where they have no effect.
                    before, bracket, after = text.rpartition(")")
                    text = before + "\n" * more_lines + bracket + after
                self._edit(node, text)
        for word, module in scan.imported.items():
            if module in MODULES and word not in scan.bound and (pack := names.pack(module)):
                self._merge(word, pack)

    def _use(self, word: str) -> None:
        """Bind a pack or function that is used without an import."""
        pack = self._names.pack(word)
        theirs = {attribute.attr for attribute in self._attributes(word)}
        if pack is None or word not in MODULES or theirs.issubset(pack.tools):
            self.words[word] = word
            return
        self._merge(word, pack)
        if word in NATIVE:
            self.native.append(f"import {word}\n")
        else:
            self.library.add(word)
            self.native.append(f"{word} = {module_variable(word)}\n")

    def _merge(self, word: str, pack: ScriptPack) -> None:
        """Bind the word to the module, but to the pack where the code uses a tool of the pack."""
        places = [attribute.value for attribute in self._attributes(word) if attribute.attr in pack.tools]
        if pack.word in self._names.functions:
            places += [call.func for call in self._scan.calls if getattr(call.func, "id", None) == word]
        for place in places:
            self.words[module_variable(f"pack_{pack.word}")] = pack.word
            self._edit(place, module_variable(f"pack_{pack.word}"))

    def _attributes(self, word: str) -> Iterator[ast.Attribute]:
        for node in self._scan.attributes:
            if isinstance(node.value, ast.Name) and node.value.id == word:
                yield node

    def _import_parts(self, node: ast.Import) -> "Iterator[_Part]":
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            # `import urllib.parse` binds urllib; the statement fails if any part is missing.
            home = self._home(alias.name) and self._home(alias.name if alias.asname else bound)
            if home is None:
                yield _Part(f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else ""), False)
            else:
                if alias.name in AVAILABLE:
                    self.library.add(alias.name)
                yield _Part(f"{bound} = ({home})", True)

    def _from_parts(self, node: ast.ImportFrom) -> "Iterator[_Part]":
        module = node.module or ""
        pack = None if node.level else self._names.pack(module)
        for alias in node.names:
            if pack is not None and (alias.name in pack.tools or (alias.name == "*" and module not in MODULES)):
                self.words[module_variable(f"pack_{module}")] = module
                for name in pack.tools if alias.name == "*" else (alias.name,):
                    target = alias.asname or name
                    yield _Part(f"{target} = ({module_variable(f'pack_{module}')}.{name})", True)
            elif not node.level and module in AVAILABLE:
                self.library.add(module)
                known = public_names(module)
                if alias.name != "*" and alias.name not in known:
                    yield _import_error(alias.name, module, known)
                else:
                    for name in known if alias.name == "*" else (alias.name,):
                        yield _Part(f"{alias.asname or name} = ({module_variable(module)}.{name})", True)
            elif pack is not None and module not in NATIVE:
                yield _import_error(alias.name, module, list(pack.tools)[:8])
            else:
                name = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
                yield _Part(f"from {'.' * node.level}{module} import {name}", False)

    def _home(self, module: str) -> str | None:
        """Return the variable for an imported module; None for the sandbox's own modules."""
        if module in AVAILABLE:
            return module_variable(module)
        if module in NATIVE or self._names.pack(module) is None:
            return None
        self.words[module_variable(f"pack_{module}")] = module
        return module_variable(f"pack_{module}")

    def _edit(self, node: ast.expr | ast.stmt, text: str) -> None:
        self.edits.append(Edit(*self._scan.places.of(node), text))


class _Part(NamedTuple):
    """A name bound by an import statement, and whether its binding is rewritten."""

    text: str
    changed: bool


def _import_error(name: str, module: str, known: Iterable[str]) -> _Part:
    """Return a statement that raises when it is reached, so that code can catch the error as usual."""
    message = f"cannot import name {name!r} from {module!r}: it has {', '.join(known)}"
    return _Part(f"raise ImportError({message!r})", True)


# Preparing code


class PreparedCode(msgspec.Struct, frozen=True, kw_only=True):
    """Code to feed: first the prelude, if any, then the code, with these names bound."""

    code: str
    prelude: str = ""
    words: Mapping[str, str] = {}  # names to bind, with their packs or functions
    futures: Collection[Span] = ()  # positions of the calls that are answered with a future


def prepare(scan: CodeScan, names: ScriptNames) -> PreparedCode:
    """Return the code, ready to be fed. Code that only the sandbox can parse is unchanged and asks for each name."""
    if scan.tree is None:
        return PreparedCode(code=scan.code)
    imports = ImportRewriter(scan, names)
    awaits = [*await_edits(scan)]
    edits = [*imports.edits, *idiom_edits(scan), *awaits]
    final = CodeScan(edited(scan.code, edits)) if edits else scan
    first = (prelude(imports.library) if imports.library else "") + (TOLERANT if awaits else "")
    return PreparedCode(
        code=final.code,
        prelude=first + "".join(imports.native),
        words=imports.words,
        futures=final.futures,
    )
