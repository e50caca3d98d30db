"""Finds packs (files, folders, entry points `onetool.packs`) and imports their modules, in a thread with a time limit.

A pack may take long to import, or never end: then it goes on in the background, and a call of one of its tools waits.
`check_packs` imports packs to check them: what would fail, and what a model could not understand. It calls no tool.
"""

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

from onetool.core.errors import Mistake, ToolFailure, describe_error
from onetool.core.registry import Snapshot, duplicate
from onetool.core.spec import ToolSpec
from onetool.sdk.pack import pack_name, tools_of

GROUP = "onetool.packs"
HOME = os.path.realpath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))  # where we are installed
MAX_FILE_BYTES = 1024 * 1024


class PackCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """Something that may be a pack: a file to run, or a module to import."""

    name: str  # unless the module says otherwise
    origin: str  # what to call it in a complaint
    file: Path | None = None
    module: str | None = None


def in_paths(paths: Iterable[Path]) -> Iterator[PackCandidate]:
    """Yield the packs: a file, or a folder with an `__init__.py`, is one; any other folder holds packs."""
    for path in paths:
        if path.is_dir() and not (path / "__init__.py").exists():
            yield from in_paths(_inside(path))
        else:
            file = path / "__init__.py" if path.is_dir() else path
            yield PackCandidate(name=path.stem, origin=str(file), file=file)


def _inside(folder: Path) -> list[Path]:
    """Return what in a folder may be a pack: modules and packages, but nothing private and no tests."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.name[0] not in "._"
        and not path.stem.startswith("test_")
        and ((path.suffix == ".py" and path.is_file()) or (path / "__init__.py").is_file())
    )


class PackPart(msgspec.Struct, frozen=True):
    """A file or a folder that packs may be made of."""

    path: Path
    place: (
        str  # where it really is: the path of the packs, or what a link in there leads to; empty for what is not a pack
    )
    is_folder: bool


def parts_of(path: Path) -> Iterator[PackPart]:
    """Yield all that packs at this path are made of, and what lies beside them. Raises OSError where it can't be
    listed.

    Links are followed where importing would: to a pack, and whatever lies in a package. Bytecode that Python keeps is
    left out: nobody has to have seen it, because it is not read (see `take_source`).
    """
    place = os.path.realpath(path)
    holds_packs = path.is_dir() and not (path / "__init__.py").exists()
    if holds_packs:
        yield PackPart(path, "", True)
    packs = set(_inside(path)) if holds_packs else {path}
    waiting = [(one, place if one in packs else "") for one in (sorted(path.iterdir()) if holds_packs else [path])]
    waiting.reverse()
    seen: set[tuple[int, int]] = set()
    while waiting:
        part, place = waiting.pop()
        found = _part(part, place, seen)
        if found is not None:
            yield found
            if found.is_folder:
                with suppress(OSError):  # where we may not look nothing can be imported, and the rest is looked at
                    waiting += [(part / name, found.place) for name in sorted(os.listdir(part), reverse=True)]


def _part(path: Path, place: str, seen: set[tuple[int, int]]) -> PackPart | None:
    """None for what is not there, was there already, or is not a pack's."""
    if os.path.islink(path):
        if not place:
            return None
        real = os.path.realpath(path)
        place = place if real == place or real.startswith(os.path.join(place, "")) else real
    try:
        status = os.stat(path)
    except OSError:  # it is missing, or may not be read
        return None
    if not S_ISDIR(status.st_mode):
        # `__pycache__/name.cpython-311.pyc`. A plain `name.pyc` is a module of its own.
        is_bytecode = path.parent.name == "__pycache__" and path.suffix == ".pyc" and "." in path.stem
        return PackPart(path, place, False) if S_ISREG(status.st_mode) and not is_bytecode else None
    if (status.st_dev, status.st_ino) in seen:
        return None
    seen.add((status.st_dev, status.st_ino))
    return PackPart(path, place, True)


def installed() -> Iterator[PackCandidate]:
    """Entry points of installed distributions.

    Not by importlib.metadata, whose import alone takes longer than all of our start: only files that name our group
    are parsed. The folder that one stands in is often on the path, and nothing is installed there, but us perhaps.
    """
    folders = dict.fromkeys(os.path.realpath(folder) for folder in sys.path)
    here = os.path.realpath("")
    if here != HOME:
        folders.pop(here, None)
    for folder in folders:
        for file in _entry_point_files(folder):
            origin = os.path.basename(os.path.dirname(file))
            for name, module in _entries(file):
                yield PackCandidate(name=name, origin=f"{origin}: {module}", module=module)


def _entry_point_files(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder or ".") as entries:
            yield from sorted(  # of two packs with one name the first stays: always the same one
                os.path.join(entry.path, "entry_points.txt")
                for entry in entries
                if entry.name.endswith((".dist-info", ".egg-info"))
            )
    except OSError:
        return


def _entries(file: str) -> list[tuple[str, str]]:
    # Not by `open`, which does more: there may be a hundred files. A pipe would keep us waiting.
    try:
        number = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:  # most distributions have none
        return []
    try:
        text = os.read(number, MAX_FILE_BYTES) if S_ISREG(os.fstat(number).st_mode) else b""
    except OSError:
        return []
    finally:
        os.close(number)
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
        """Begin, if it has not begun, and wait; whether it is done."""
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._run, name=f"import {self.candidate.name}", daemon=True)
                self._thread.start()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def module(self, seconds: float | None = None) -> ModuleType:
        """Return the module, when it is done; raises what the import raised, or TimeoutError."""
        if not self.wait(seconds):
            raise TimeoutError(f"still importing after {seconds:g} s; it may be waiting for something")
        if self._module is None:
            raise self._error or ImportError(f"{self.candidate.origin} gave no module")
        return self._module

    def module_for_a_call(self) -> ModuleType:
        """Return the module for a call of a tool: a failed import is a failure of that tool."""
        try:
            return self.module()
        except BaseException as error:  # noqa: BLE001 - a pack may raise anything
            mistake = import_mistake(self.candidate, error)
            raise ToolFailure(f"the pack can't be imported: {mistake}", reason="source_unavailable") from None

    def _run(self) -> None:
        try:
            file = self.candidate.file
            name = self.candidate.module or self.candidate.name
            module = import_module(name) if file is None else _run_file(file, self._fresh)
            if not hasattr(module, "pack"):
                module.pack = self.candidate.name  # pyright: ignore[reportAttributeAccessIssue]
            self._module = module
        except KeyboardInterrupt as error:  # raised by the pack: a person's goes to the main thread
            self._error = ImportError("KeyboardInterrupt").with_traceback(error.__traceback__)
        except BaseException as error:  # noqa: BLE001 - a pack may raise anything, SystemExit included
            self._error = error


def _run_file(file: Path, fresh: bool) -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    # Two files may have one name; each is a module of its own.
    name = f"{PREFIX}{file.parent.name if file.name == '__init__.py' else file.stem}_{crc32(bytes(file)):08x}"
    for loaded in list(sys.modules):  # a copy: other threads import meanwhile
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
    """Return the modules of packs that come from files, and what is inside of them."""
    return {name: module for name, module in list(sys.modules.items()) if name.startswith(PREFIX)}


def restore_modules(modules: dict[str, ModuleType]) -> None:
    """Restore these modules in sys.modules, after a reload that was not applied: packs look their own parts up there.

    Others are left: another app in this process may have imported them.
    """
    sys.modules.update(modules)


def import_mistake(candidate: PackCandidate, error: BaseException) -> Mistake:
    """Return what went wrong, and in which line of the pack's own file."""
    file = candidate.file
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = None if isinstance(error, SyntaxError) else error.__traceback__
    while trace is not None:  # the last line of that file on the way to the error
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    where = str(file) if file else candidate.origin
    message = f"SystemExit: {error}" if isinstance(error, SystemExit) else describe_error(error)
    return Mistake(message=message, file=where, line=line, key="packs")


# Loading from source, without bytecode


class FromSource(SourceFileLoader):
    """As Python loads a source file, without the cache."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


_WAYS = ((ExtensionFileLoader, EXTENSION_SUFFIXES), (FromSource, SOURCE_SUFFIXES))


class Finder:
    """Finds what is inside of packs that are loaded from source. All else is left to Python."""

    def __init__(self) -> None:
        self.packs: set[str] = set()

    def find_spec(self, name: str, path: Sequence[str] | None = None, _: ModuleType | None = None) -> ModuleSpec | None:
        if path is None or name.partition(".")[0] not in self.packs:
            return None
        for folder in path:
            spec = FileFinder(folder, *_WAYS).find_spec(name)
            if spec is not None and spec.loader is not None:
                return spec
        return None


_finder = Finder()


def take_source(spec: ModuleSpec) -> None:
    """Have a pack's module, and later those inside of it, loaded from source."""
    if isinstance(spec.loader, SourceFileLoader):
        spec.loader = FromSource(spec.name, spec.loader.path)
    _finder.packs.add(spec.name)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


# Checking packs: `onetool packs check`


def check_packs(path: Path, known: Snapshot) -> list[Mistake]:
    """Everything about the pack, or the folder of packs, at this path. `known` are the tools that there are already."""
    candidates = list(in_paths([path]))
    if not candidates:
        return [Mistake(message="there is no pack here: no Python file that could be one", file=str(path))]
    return [mistake for candidate in candidates for mistake in _check(candidate, known)]


def _check(candidate: PackCandidate, known: Snapshot) -> Iterator[Mistake]:
    try:
        module = PackImport(candidate, fresh=True).module()
        name, found = pack_name(module), tools_of(module)
    except BaseException as error:  # noqa: BLE001 - a pack may raise anything, SystemExit included
        yield import_mistake(candidate, error)
        return
    yield from found.mistakes
    if not (found.tools or found.prompts or found.resources or found.mistakes):
        yield Mistake(message="it has no tools: no public function", file=candidate.origin, key=name)
    others = {spec.defined_in.rpartition(":")[0] for spec in known.packs().get(name, {}).values() if spec.defined_in}
    others -= {candidate.origin, str(Path(candidate.origin).resolve())}
    if others:  # the one that comes first would win
        message = f"the pack name {name!r} is taken by {', '.join(sorted(others))}"
        yield Mistake(message=message, file=candidate.origin, key=name, hint='choose another with pack = "…"')
    first: dict[str, ToolSpec] = {}
    for spec in found.tools:
        if spec.name in first:  # the second would be refused
            file, _, line = (spec.defined_in or "").rpartition(":")
            yield Mistake(message=duplicate(first[spec.name], spec), file=file, line=int(line), key=spec.name)
        first.setdefault(spec.name, spec)
    if not name.isidentifier():
        message = f"the pack name {name!r} can't be written in code as it is"
        yield Mistake(message=message, file=candidate.origin, key=name, hint="take a word", severity="warning")
    for spec in found.tools:
        yield from _check_tool(spec, module)


def _check_tool(spec: ToolSpec, module: ModuleType) -> Iterator[Mistake]:
    functions = (value for value in vars(module).values() if inspect.isfunction(value))
    places = ((one, f"{one.__code__.co_filename}:{one.__code__.co_firstlineno}") for one in functions)
    function = next((one for one, place in places if place == spec.defined_in), None)
    if function is None:
        return
    file, _, line = (spec.defined_in or "").rpartition(":")
    place = {"file": file, "line": int(line), "key": spec.name, "severity": "warning"}
    if not inspect.getdoc(function):
        yield Mistake(
            message="has no docstring: a model sees only its name", hint="say what it does in a line", **place
        )
    for parameter in inspect.signature(function).parameters.values():
        described = spec.input_schema.get("properties", {}).get(parameter.name, {})
        if parameter.annotation is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            yield Mistake(message=f"{parameter.name} has no type hint: it takes anything", **place)
        elif parameter.name in spec.input_schema.get("properties", {}) and not described.get("description"):
            yield Mistake(message=f"{parameter.name} is not described in the docstring", **place)
    returns = inspect.signature(function).return_annotation
    if spec.output_schema is None and returns not in (inspect.Signature.empty, None, "None", Any, "Any"):
        yield Mistake(message=f"what it returns ({returns}) has no form in JSON that could be checked", **place)
