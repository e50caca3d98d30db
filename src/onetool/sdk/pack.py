"""A module -> its tools: what `__all__` names, else every public function that is defined in it."""

from collections.abc import Callable, Iterable, Iterator
from inspect import isfunction, unwrap
from types import FunctionType, ModuleType
from typing import Any

import msgspec

from onetool.core.errors import DefinitionError, Mistake
from onetool.core.failure import words_for
from onetool.core.source import Catalogue
from onetool.core.spec import ToolSpec
from onetool.sdk.decorators import marks_of
from onetool.sdk.signature import tool_from_function


def pack_name(module: ModuleType) -> str:
    """`pack = "name"` in the module, else the module's own name."""
    name = getattr(module, "pack", None) or module.__name__.rpartition(".")[2]
    if not (isinstance(name, str) and name.isprintable() and name.strip() == name and "." not in name):
        raise DefinitionError(f"pack = {name!r}: a pack's name is a word without dots")
    return name


def tools_of(module: ModuleType) -> Catalogue:
    """The module's tools, in the order of the file, and a mistake for each function that can't be described."""
    pack = pack_name(module)
    tools: list[ToolSpec] = []
    mistakes: list[Mistake] = []
    for name, function in _functions(module):
        try:
            tools.append(_tool(name, function, pack))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - hints and docstrings are anyone's, and spoil their own tool alone
            mistakes.append(_mistake(f"{pack}.{name}", function, error))
    return Catalogue(tools=tuple(tools), mistakes=tuple(mistakes))


def _tool(name: str, function: FunctionType, pack: str) -> ToolSpec:
    spec = tool_from_function(function, pack)
    called = marks_of(function).name or name  # under its name in the module: `f = lambda …` is `f`
    return msgspec.structs.replace(spec, name=f"{pack}.{called}", defined_in=_place(function))


def _functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    listed: Iterable[str] | None = getattr(module, "__all__", None)
    own = listed is None
    for name in [name for name in vars(module) if not name.startswith("_")] if listed is None else listed:
        value: Any = getattr(module, name, None)
        if value is None:
            raise DefinitionError(f"__all__ names {name!r}, which is not in the module")
        if _is_function(value) and (not own or value.__module__ == module.__name__):
            yield name, value


def _is_function(value: Any) -> bool:
    """A function, or one behind a decorator that keeps it (`functools.cache` makes an object of it)."""
    return isfunction(value) or (hasattr(value, "__wrapped__") and isfunction(unwrap(value)))


def _mistake(tool: str, function: FunctionType, error: BaseException) -> Mistake:
    file, _, line = _place(function).rpartition(":")
    return Mistake(message=words_for(error), file=file, line=int(line), key=tool)


def _place(function: Callable[..., Any]) -> str:
    code = unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"
