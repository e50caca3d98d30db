"""A module -> its tools: what `__all__` names, else every public function that is defined in it."""

from collections.abc import Callable, Iterable, Iterator
from inspect import isfunction
from types import ModuleType
from typing import Any

from onetool.core.errors import DefinitionError
from onetool.core.spec import ToolSpec
from onetool.sdk.signature import tool_from_function


def pack_name(module: ModuleType) -> str:
    """`pack = "name"` in the module, else the module's own name."""
    name = getattr(module, "pack", None) or module.__name__.rpartition(".")[2]
    if not (isinstance(name, str) and name.isprintable() and name.strip() == name and "." not in name):
        raise DefinitionError(f"pack = {name!r}: a pack's name is a word without dots")
    return name


def tools_of(module: ModuleType) -> list[ToolSpec]:
    """The module's tools, in the order of the file. Raises for a function that can't be described."""
    pack = pack_name(module)
    return [tool_from_function(function, pack) for function in _functions(module)]


def _functions(module: ModuleType) -> Iterator[Callable[..., Any]]:
    listed: Iterable[str] | None = getattr(module, "__all__", None)
    if listed is None:
        names = (name for name in vars(module) if not name.startswith("_"))
        yield from (f for f in map(vars(module).get, names) if isfunction(f) and f.__module__ == module.__name__)
        return
    for name in listed:
        value = getattr(module, name, None)
        if value is None:
            raise DefinitionError(f"__all__ names {name!r}, which is not in the module")
        if isfunction(value):
            yield value
