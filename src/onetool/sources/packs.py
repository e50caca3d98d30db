"""Packs: Python modules whose functions are tools."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any

from onetool.core.errors import Mistake
from onetool.core.source import Catalogue
from onetool.core.spec import Handler, ToolSpec
from onetool.sdk.signature import tool_from_function

BUILTIN = ("time", "tools", "shell", "fs")


class BuiltinPacks:
    """The packs that come with OneTool."""

    name = "built-in packs"

    def load(self) -> Catalogue:
        return Catalogue(tools=tuple(spec for pack in BUILTIN for spec in tools_of(_builtin(pack))))


class PackFiles:
    """Packs in files and folders of the user's. One that fails to import is reported; the others work."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.name = "packs"
        self._paths = tuple(paths)

    def load(self) -> Catalogue:
        tools: list[ToolSpec] = []
        mistakes: list[Mistake] = []
        for path in self._paths:
            if not path.exists():
                mistakes.append(Mistake(message="no such file or folder", file=str(path), key="packs"))
            for file in _pack_files(path):
                try:
                    tools += tools_of(_import_file(file))
                except BaseException as error:  # noqa: BLE001 - a pack may raise anything, SystemExit included
                    mistakes.append(_import_mistake(file, error))
        return Catalogue(tools=tuple(tools), mistakes=tuple(mistakes))


class BuiltinFunctions(Mapping[str, Handler]):
    """The built-in packs' functions by tool name; a pack is imported when one of its names is asked for."""

    def __getitem__(self, name: str) -> Handler:
        pack = name.partition(".")[0]
        if pack in BUILTIN:
            for spec in tools_of(_builtin(pack)):
                if spec.name == name and spec.handler is not None:
                    return spec.handler
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (spec.name for pack in BUILTIN for spec in tools_of(_builtin(pack)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def tools_of(module: ModuleType) -> list[ToolSpec]:
    """A module's tools: what `__all__` names, else every public function that is defined in it."""
    pack = getattr(module, "pack", None) or module.__name__.rpartition(".")[2]
    return [tool_from_function(function, pack) for function in _functions(module)]


def _functions(module: ModuleType) -> Iterator[Callable[..., Any]]:
    listed: Iterable[str] | None = getattr(module, "__all__", None)
    for name in listed if listed is not None else vars(module):
        value = getattr(module, name)
        if isfunction(value) and (
            listed is not None or (not name.startswith("_") and value.__module__ == module.__name__)
        ):
            yield value


def _builtin(pack: str) -> ModuleType:
    return import_module(f"onetool.packs.{pack}")


def _pack_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.glob("*.py") if not file.name.startswith("_")) if path.is_dir() else []


def _import_file(file: Path) -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    name = f"onetool_pack_{file.stem}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file.name} is not a Python file")
    module = module_from_spec(spec)
    module.pack = file.stem  # pyright: ignore[reportAttributeAccessIssue] - the file may say otherwise
    sys.modules[name] = module  # dataclasses and type hints look their module up there
    spec.loader.exec_module(module)
    return module


def _import_mistake(file: Path, error: BaseException) -> Mistake:
    line = error.lineno if isinstance(error, SyntaxError) else _line_in(file, error)
    return Mistake(message=f"{type(error).__name__}: {error}", file=str(file), line=line, key="packs")


def _line_in(file: Path, error: BaseException) -> int | None:
    """The last line of that file on the way to the error."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
