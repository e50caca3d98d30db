"""A module -> what it offers: the functions that `__all__` names, else every public one that is defined in it.

A function is a tool, unless it is marked as a prompt or as a resource.
"""

from collections.abc import Callable, Iterable, Iterator
from inspect import isfunction, unwrap
from types import FunctionType, ModuleType
from typing import Any

import msgspec

from onetool.core.errors import DefinitionError, Mistake, describe_error
from onetool.core.registry import Catalogue, Prompt, Resource
from onetool.core.spec import Handler, ToolSpec, is_address
from onetool.sdk.decorators import OfferMarks, marks_of, offer_marks_of
from onetool.sdk.signature import tool_from_function


def pack_name(module: ModuleType) -> str:
    """`pack = "name"` in the module, else the module's own name."""
    name = getattr(module, "pack", None) or module.__name__.rpartition(".")[2]
    if not (isinstance(name, str) and name.isprintable() and name.strip() == name and "." not in name):
        raise DefinitionError(f"pack = {name!r}: a pack's name is a word without dots")
    return name


def docs_url(module: ModuleType) -> str | None:
    """`docs_url = "https://…"` in the module: where the pack is documented. DefinitionError for anything else."""
    url = getattr(module, "docs_url", None)
    if url is not None and not is_address(url):
        raise DefinitionError(f"docs_url = {url!r:.100}: expected an address such as https://example.com/docs")
    return url


def tools_of(module: ModuleType) -> Catalogue:
    """What the module offers, in the order of the file, and a mistake for each function that can't be described."""
    pack, docs = pack_name(module), None
    found: list[ToolSpec | Prompt | Resource] = []
    mistakes: list[Mistake] = []
    try:
        docs = docs_url(module)
    except DefinitionError as error:  # no reason to lose its tools
        mistakes.append(Mistake(message=str(error), file=module.__file__, key=pack))
    for name, function in _functions(module):
        try:
            spec, marks = msgspec.structs.replace(_tool(name, function, pack), docs_url=docs), offer_marks_of(function)
            found.append(spec if marks is None else _offer(name, spec, marks))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - hints and docstrings are anyone's, and spoil their own tool alone
            mistakes.append(_mistake(f"{pack}.{name}", function, error))
    return Catalogue(
        tools=tuple(one for one in found if isinstance(one, ToolSpec)),
        prompts=tuple(one for one in found if isinstance(one, Prompt)),
        resources=tuple(one for one in found if isinstance(one, Resource)),
        mistakes=tuple(mistakes),
    )


def _offer(name: str, spec: ToolSpec, marks: OfferMarks) -> Prompt | Resource:
    """What it gives is for the interface to shape, so that nothing is checked there."""
    spec = msgspec.structs.replace(spec, output_schema=None, hidden=True)
    if marks.uri is None:
        return Prompt(name=marks.name or name, spec=spec, title=marks.title)
    spec = msgspec.structs.replace(spec, handler=_told_apart(spec))
    made = Resource(uri=marks.uri, name=marks.name or name, spec=spec, mime_type=marks.mime_type)
    if len(set(made.variables)) < len(made.variables):
        raise DefinitionError(f"its address names a place twice: {made.uri}")
    known = set(spec.input_schema["properties"])
    if set(made.variables) - known or set(spec.input_schema.get("required", ())) - set(made.variables):
        raise DefinitionError(f"its places {list(made.variables)} are not its parameters {sorted(known)}")
    return made


def _told_apart(spec: ToolSpec) -> Handler:
    """What a resource's function gives, as what it is: in plain data, bytes would be a text like any other."""
    handler: Any = spec.handler

    def kind(value: Any) -> dict[str, Any]:
        return {"blob" if isinstance(value, bytes) else "text" if isinstance(value, str) else "data": value}

    if spec.is_async:

        async def read_async(**args: Any) -> Any:
            return kind(await handler(**args))

        return read_async

    return lambda **args: kind(handler(**args))


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
    return Mistake(message=describe_error(error), file=file, line=int(line), key=tool)


def _place(function: Callable[..., Any]) -> str:
    code = unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"
