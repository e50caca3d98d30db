"""What imports mean here: the sandbox's own modules, those that our library adds, and packs.

`import statistics` binds what our library brings, `import brave` binds the pack. A pack that is named like a module is
merged with it: `time.now()` is the pack's and `time.sleep(1)` the module's, with and without `import time`.

All of it by edits at places that the tree gives, never by searching the text, and lines keep their numbers.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from onetool.script.modules import AVAILABLE, public_names, variable
from onetool.script.names import Names, Pack
from onetool.script.places import Edit
from onetool.script.scan import Scan

NATIVE = frozenset(
    {"asyncio", "base64", "binascii", "bisect", "collections", "copy", "csv", "dataclasses", "datetime", "decimal",
     "functools", "hashlib", "itertools", "json", "math", "os", "os.path", "pathlib", "posixpath", "random", "re",
     "sys", "time", "tomllib", "typing", "unicodedata"}
)  # fmt: skip
"""The modules that the sandbox has itself."""
MODULES = NATIVE | AVAILABLE


class Imports:
    """What is to be changed in some code, and what it needs before it."""

    def __init__(self, scan: Scan, names: Names) -> None:
        self._scan = scan
        self._names = names
        self.edits: list[Edit] = []
        self.library: set[str] = set()  # our modules that it needs
        self.native: list[str] = []  # the sandbox's modules that it uses without importing them
        self.words: dict[str, str] = {}  # names to bind, and the packs or functions that they are bound to
        for word in scan.used:
            if word in names and word not in scan.bound and word not in scan.imported:
                self._use(word)
        for node in scan.imports:
            self._import(node)
        for word, module in scan.imported.items():
            if module in MODULES and word not in scan.bound and (pack := names.pack(module)):
                self._merge(word, pack)

    def _use(self, word: str) -> None:
        """A pack or function that is used without an import."""
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
            self.native.append(f"{word} = {variable(word)}\n")

    def _merge(self, word: str, pack: Pack) -> None:
        """The word means the module; where an attribute is a tool, the pack stands in its place."""
        for attribute in self._attributes(word):
            if attribute.attr in pack.tools:
                self.words[variable(f"pack_{pack.word}")] = pack.word
                self._edit(attribute.value, variable(f"pack_{pack.word}"))

    def _attributes(self, word: str) -> Iterator[ast.Attribute]:
        for node in self._scan.attributes:
            if isinstance(node.value, ast.Name) and node.value.id == word:
                yield node

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        parts = list(self._import_parts(node) if isinstance(node, ast.Import) else self._from_parts(node))
        if any(part.changed for part in parts):
            lines = (node.end_lineno or node.lineno) - node.lineno
            self._edit(node, _joined([part.text for part in parts], lines))

    def _import_parts(self, node: ast.Import) -> "Iterator[_Part]":
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            # `import urllib.parse` binds urllib; one part of it that is not there, and the statement fails.
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
                self.words[variable(f"pack_{module}")] = module
                for name in pack.tools if alias.name == "*" else (alias.name,):
                    target = alias.asname or name
                    yield _Part(f"{target} = ({variable(f'pack_{module}')}.{name})", True)
            elif not node.level and module in AVAILABLE:
                self.library.add(module)
                yield from (_Part(text, True) for text in _from_library(module, alias))
            elif pack is not None and module not in NATIVE:
                known = ", ".join(list(pack.tools)[:8])
                yield _Part(_import_error(f"cannot import name {alias.name!r} from {module!r}: it has {known}"), True)
            else:
                name = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
                yield _Part(f"from {'.' * node.level}{module} import {name}", False)

    def _home(self, module: str) -> str | None:
        """Where we keep what is imported; None for the sandbox's own modules."""
        if module in AVAILABLE:
            return variable(module)
        if module in NATIVE or self._names.pack(module) is None:
            return None
        self.words[variable(f"pack_{module}")] = module
        return variable(f"pack_{module}")

    def _edit(self, node: ast.expr | ast.stmt, text: str) -> None:
        self.edits.append(Edit(*self._scan.places.of(node), text))


class _Part(NamedTuple):
    """One of the things that an import statement binds, and whether it is to be bound in another way."""

    text: str
    changed: bool


def _from_library(module: str, alias: ast.alias) -> list[str]:
    known = public_names(module)
    if alias.name == "*":
        return [f"{name} = ({variable(module)}.{name})" for name in known]
    if alias.name in known:
        return [f"{alias.asname or alias.name} = ({variable(module)}.{alias.name})"]
    return [_import_error(f"cannot import name {alias.name!r} from {module!r}: it has {', '.join(known)}")]


def _import_error(message: str) -> str:
    """Raised when the statement is reached, as anywhere else, so that code may catch it."""
    return f"raise ImportError({message!r})"


def _joined(parts: list[str], more_lines: int) -> str:
    """The statements in one line; inside of the last bracket, where nothing minds them, the lines that are missing."""
    text = "; ".join(parts)
    if not more_lines:
        return text
    before, bracket, after = text.rpartition(")")
    return before + "\n" * more_lines + bracket + after
