"""Find packs (files, folders, entry points `onetool.packs`) and import their modules, in a thread with a time limit.

An import that exceeds the limit continues in the background, and calls of the pack's tools wait for it. `check_packs`
imports packs and reports what would fail and what a model could not understand. It calls no tool.
"""

import ast
import inspect
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from threading import Lock, Thread
from types import CodeType, ModuleType
from typing import Any
from zlib import crc32

import msgspec

from onetool import sdk
from onetool.core.errors import Mistake, describe_error
from onetool.core.registry import Snapshot, duplicate
from onetool.core.spec import ToolSpec
from onetool.sdk.pack import pack_name, tools_of

GROUP = "onetool.packs"
HOME = os.path.realpath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))  # where onetool is installed
MAX_FILE_BYTES = 1024 * 1024
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class PackCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A possible pack: a file to run or a module to import."""

    name: str  # unless the module sets `pack`
    origin: str  # for error messages
    file: Path | None = None
    module: str | None = None


def in_paths(paths: Iterable[Path]) -> Iterator[PackCandidate]:
    """Yield the packs at these paths. A file or a package is a pack; any other folder contains packs."""
    for path in paths:
        if path.is_dir() and not (path / "__init__.py").exists():
            yield from in_paths(_inside(path))
        else:
            file = path / "__init__.py" if path.is_dir() else path
            yield PackCandidate(name=path.stem, origin=str(file), file=file)


def _inside(folder: Path) -> list[Path]:
    """Return the modules and packages in a folder, except private ones, and tests that declare no tool."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.name[0] not in "._"
        and ((path.suffix == ".py" and path.is_file()) or (path / "__init__.py").is_file())
        and (not path.stem.startswith("test_") or _declares_tool(path))
    )


def _declares_tool(path: Path) -> bool:
    """Return whether the module or package has a function with the decorator `@tool`."""
    try:
        source = (path / "__init__.py" if path.is_dir() else path).read_bytes()
        tree = ast.parse(source) if b"tool" in source and len(source) <= MAX_FILE_BYTES else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    functions = (node for node in tree.body if isinstance(node, FUNCTIONS)) if tree else ()
    decorators = (ast.unparse(one).partition("(")[0] for node in functions for one in node.decorator_list)
    return any(name.rpartition(".")[2] == "tool" for name in decorators)


class PackPart(msgspec.Struct, frozen=True):
    """A file or folder that may belong to a pack."""

    path: Path
    place: str  # the resolved path of the packs, or of a symbolic link among them; empty for files outside any pack
    is_folder: bool


def parts_of(path: Path) -> Iterator[PackPart]:
    """Yield the files and folders of the packs at this path, and their neighbours. Raises OSError if a folder can't be
    listed.

    Links are followed where importing would follow them: to a pack, and anywhere in a package. Python's bytecode cache
    is left out: it needs no review, because packs are loaded without it (see `take_source`).
    """
    place = os.path.realpath(path)
    if path.is_dir() and not (path / "__init__.py").exists():  # a folder of packs
        yield PackPart(path, "", True)
        packs = set(_inside(path))
        pending = [(child, place if child in packs else "") for child in sorted(path.iterdir(), reverse=True)]
    else:
        pending = [(path, place)]
    seen: set[tuple[int, int]] = set()
    while pending:
        part = _part(*pending.pop(), seen)
        if part is not None:
            yield part
            if part.is_folder:
                with suppress(OSError):  # nothing can be imported from an unreadable folder
                    names = sorted(os.listdir(part.path), reverse=True)
                    pending += [(part.path / name, part.place) for name in names]


def _part(path: Path, place: str, seen: set[tuple[int, int]]) -> PackPart | None:
    """Return the part at this path, or None if the path doesn't exist, was seen, or can't belong to a pack."""
    if os.path.islink(path):
        if not place:
            return None
        real = os.path.realpath(path)
        place = place if real == place or real.startswith(os.path.join(place, "")) else real
    try:
        status = os.stat(path)
    except OSError:  # missing or unreadable
        return None
    if not S_ISDIR(status.st_mode):
        # `__pycache__/name.cpython-311.pyc`. A plain `name.pyc` is a module.
        is_bytecode = path.parent.name == "__pycache__" and path.suffix == ".pyc" and "." in path.stem
        return PackPart(path, place, False) if S_ISREG(status.st_mode) and not is_bytecode else None
    if (status.st_dev, status.st_ino) in seen:
        return None
    seen.add((status.st_dev, status.st_ino))
    return PackPart(path, place, True)


def installed() -> Iterator[PackCandidate]:
    """Yield the packs among the entry points of installed distributions.

    importlib.metadata is avoided because importing it takes longer than our entire startup. Only files that name our
    group are parsed. The current folder, often on the path, is skipped unless onetool itself is installed there.
    """
    folders = dict.fromkeys(os.path.realpath(folder) for folder in sys.path)
    here = os.path.realpath("")
    if here != HOME:
        folders.pop(here, None)
    for folder in folders:
        try:
            names = sorted(os.listdir(folder))  # so that of two packs with one name the same one always wins
        except OSError:
            continue
        for distribution in names:
            if distribution.endswith((".dist-info", ".egg-info")):
                for name, module in _entry_points(os.path.join(folder, distribution, "entry_points.txt")):
                    yield PackCandidate(name=name, origin=f"{distribution}: {module}", module=module)


def _entry_points(file: str) -> list[tuple[str, str]]:
    """Return the names and modules in our group of an `entry_points.txt`."""
    # `os.open` is faster than `open`, and there may be a hundred files. Reading a pipe would block.
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:  # most distributions have none
        return []
    try:
        text = os.read(descriptor, MAX_FILE_BYTES) if S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return []
    finally:
        os.close(descriptor)
    if GROUP.encode() not in text:
        return []
    from configparser import ConfigParser, Error

    parser = ConfigParser(delimiters=("=",), interpolation=None, default_section="\0")
    parser.optionxform = str  # pyright: ignore[reportAttributeAccessIssue] - names are case-sensitive
    try:
        parser.read_string(text.decode())
    except (Error, UnicodeDecodeError):
        return []
    return list(parser.items(GROUP)) if parser.has_section(GROUP) else []


# Importing a module

PREFIX = "onetool_pack_"


class PackImport:
    def __init__(self, candidate: PackCandidate, fresh: bool = False) -> None:
        self.candidate = candidate
        self._fresh = fresh
        self._module: ModuleType | None = None
        self._error: BaseException | None = None
        self._thread: Thread | None = None
        self._lock = Lock()

    def wait(self, seconds: float | None = None) -> bool:
        """Start the import if needed and wait for it. Return whether it has finished."""
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._run, name=f"import {self.candidate.name}", daemon=True)
                self._thread.start()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def module(self, seconds: float | None = None) -> ModuleType:
        """Wait for the module and return it. Raises TimeoutError, or the exception raised by the import."""
        if not self.wait(seconds):
            raise TimeoutError(f"still importing after {seconds:g} s; the pack may be waiting for something")
        if self._module is None:
            raise self._error or ImportError(f"{self.candidate.origin} could not be loaded as a module")
        return self._module

    def _run(self) -> None:
        try:
            file = self.candidate.file
            name = self.candidate.module or self.candidate.name
            module = import_module(name) if file is None else _run_file(file, self._fresh)
            if not hasattr(module, "pack"):
                module.pack = self.candidate.name  # pyright: ignore[reportAttributeAccessIssue]
            self._module = module
        except KeyboardInterrupt as error:  # raised by the pack: Ctrl-C is raised in the main thread
            self._error = ImportError("KeyboardInterrupt").with_traceback(error.__traceback__)
        except BaseException as error:  # noqa: BLE001 - a pack may raise anything, SystemExit included
            self._error = error


def _run_file(file: Path, fresh: bool) -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    # Files of the same name in different folders get different modules.
    name = f"{PREFIX}{file.parent.name if file.name == '__init__.py' else file.stem}_{crc32(bytes(file)):08x}"
    for loaded in list(sys.modules):  # a copy: other threads may import at the same time
        if loaded == name or loaded.startswith(f"{name}."):
            sys.modules.pop(loaded, None)
    inside = [str(file.parent)] if file.name == "__init__.py" else None
    spec = spec_from_file_location(name, file, submodule_search_locations=inside)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file.name} is not a Python file")
    if fresh:
        take_source(spec)
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses, type hints and relative imports look their module up there
    spec.loader.exec_module(module)
    return module


def pack_modules() -> dict[str, ModuleType]:
    """Return the modules and submodules of the packs loaded from files."""
    return {name: module for name, module in list(sys.modules.items()) if name.startswith(PREFIX)}


def restore_modules(modules: dict[str, ModuleType]) -> None:
    """Restore these modules in sys.modules after a reload that was not applied: packs find their submodules there.

    Other modules are kept: another app in this process may have imported them.
    """
    sys.modules.update(modules)


def import_mistake(candidate: PackCandidate, error: BaseException) -> Mistake:
    """Return the error as a mistake with the last line of the pack's own file that led to it."""
    file = candidate.file
    source = os.path.abspath(file) if file else None
    own = error if isinstance(error, SyntaxError) and error.filename == source else None  # not of a part of the pack
    line = own.lineno if own else None
    trace = None if own else error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == source:
            line = trace.tb_lineno
        trace = trace.tb_next
    where = str(file) if file else candidate.origin
    if own:
        message = f"{type(own).__name__}: {own.msg}"  # without file and line
    else:
        message = f"SystemExit: {error}" if isinstance(error, SystemExit) else describe_error(error)
    return Mistake(message=message, file=where, line=line, key="packs", hint=_import_hint(error))


def _import_hint(error: BaseException) -> str | None:
    """Return what to do about a failed import: the SDK's names are in onetool.sdk, a library may be missing."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        if error.name.partition(".")[0] == "onetool":
            return None
        return f"if {error.name} is a library, install it for the Python that runs OneTool: {sys.executable}"
    if isinstance(error, ImportError) and error.name == "onetool":
        missing = str(error).partition("'")[2].partition("'")[0]
        return f"from onetool.sdk import {missing}" if missing in sdk.__all__ else None
    return None


# Loading from source, without bytecode


class FromSource(SourceFileLoader):
    """A source file loader that ignores the bytecode cache."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


_LOADERS = ((ExtensionFileLoader, EXTENSION_SUFFIXES), (FromSource, SOURCE_SUFFIXES))


class Finder:
    """A finder of the submodules of packs that are loaded from source. Python finds all other modules."""

    def __init__(self) -> None:
        self.packs: set[str] = set()

    def find_spec(self, name: str, path: Sequence[str] | None = None, _: ModuleType | None = None) -> ModuleSpec | None:
        if path is None or name.partition(".")[0] not in self.packs:
            return None
        for folder in path:
            spec = FileFinder(folder, *_LOADERS).find_spec(name)
            if spec is not None and spec.loader is not None:
                return spec
        return None


_finder = Finder()


def take_source(spec: ModuleSpec) -> None:
    """Make Python load a pack's module, and later its submodules, from source."""
    if isinstance(spec.loader, SourceFileLoader):
        spec.loader = FromSource(spec.name, spec.loader.path)
    _finder.packs.add(spec.name)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


# Checking packs: `onetool packs check`


def check_packs(path: Path, known: Snapshot) -> list[Mistake]:
    """Return the mistakes of the pack, or of all packs in the folder, at this path. `known` has the existing tools."""
    candidates = list(in_paths([path]))
    if not candidates:
        return [Mistake(message="no pack found: none of the Python files here can be a pack", file=str(path))]
    return [mistake for candidate in candidates for mistake in _check(candidate, known)]


def _check(candidate: PackCandidate, known: Snapshot) -> Iterator[Mistake]:
    try:
        module = PackImport(candidate, fresh=True).module()
        name, catalogue = pack_name(module), tools_of(module)
    except BaseException as error:  # noqa: BLE001 - a pack may raise anything, SystemExit included
        yield import_mistake(candidate, error)
        return
    yield from catalogue.mistakes
    if not (catalogue.tools or catalogue.prompts or catalogue.resources or catalogue.mistakes):
        yield Mistake(message="the pack has no tools: it has no public function", file=candidate.origin, key=name)
    others = {spec.defined_in.rpartition(":")[0] for spec in known.packs().get(name, {}).values() if spec.defined_in}
    others -= {candidate.origin, str(Path(candidate.origin).resolve())}
    if others:  # the first pack would win
        message = f"the pack name {name!r} is taken by {', '.join(sorted(others))}"
        yield Mistake(message=message, file=candidate.origin, key=name, hint='choose another with pack = "…"')
    first: dict[str, ToolSpec] = {}
    for spec in catalogue.tools:
        if spec.name in first:  # the second would be refused
            file, _, line = (spec.defined_in or "").rpartition(":")
            yield Mistake(message=duplicate(first[spec.name], spec), file=file, line=int(line), key=spec.name)
        first.setdefault(spec.name, spec)
    if not name.isidentifier():
        message = f"the pack name {name!r} can't be used in code"
        hint = "use letters, digits and underscores"
        yield Mistake(message=message, file=candidate.origin, key=name, hint=hint, severity="warning")
    for spec in catalogue.tools:
        yield from _check_tool(spec, module)


def _check_tool(spec: ToolSpec, module: ModuleType) -> Iterator[Mistake]:
    for function in filter(inspect.isfunction, vars(module).values()):
        if f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}" == spec.defined_in:
            break
    else:
        return
    file, _, line = (spec.defined_in or "").rpartition(":")
    place = {"file": file, "line": int(line), "key": spec.name, "severity": "warning"}
    if not inspect.getdoc(function):
        hint = "describe the tool in one line"
        yield Mistake(message="has no docstring: a model sees only its name", hint=hint, **place)
    signature, properties = inspect.signature(function), spec.input_schema.get("properties", {})
    for name, parameter in signature.parameters.items():
        if parameter.annotation is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            yield Mistake(message=f"{name} has no type hint: any value is accepted", **place)
        elif name in properties and not properties[name].get("description"):
            yield Mistake(message=f"{name} is not described in the docstring", **place)
    returns = signature.return_annotation
    if spec.output_schema is None and returns not in (inspect.Signature.empty, None, "None", Any, "Any"):
        yield Mistake(message=f"the return type {returns} has no JSON schema, so results can't be checked", **place)
