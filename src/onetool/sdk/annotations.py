"""What a function's signature says, as plain fields: how each argument is called, its hint, its default."""

from collections import abc
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter, isasyncgenfunction, isgeneratorfunction, unwrap
from typing import Any, Unpack, get_args, get_origin, get_type_hints

from onetool.sdk.hints.fields import Field, fields_of
from onetool.sdk.hints.form import NoForm
from onetool.sdk.hints.names import evaluated
from onetool.sdk.hints.property import NOTHING

_PROMISES = (abc.Awaitable, abc.Coroutine)
_STREAMS = (abc.Iterable, abc.Iterator, abc.Generator, abc.AsyncIterable, abc.AsyncIterator, abc.AsyncGenerator)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The hints by name, those that were written as text included. One that names nothing stays as it is."""
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - text is evaluated, so it may raise anything
        names = names_of(function)
        return {name: evaluated(hint, names) for name, hint in function.__annotations__.items()}


def names_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The names that hints of the function can use."""
    return getattr(unwrap(function), "__globals__", {})


def arguments_of(parameters: Mapping[str, Parameter], hints: Mapping[str, Any]) -> Iterator[Field]:
    """The arguments by name, however Python would have them passed: `*args` is one of them, an array."""
    for name, parameter in parameters.items():
        hint = hints.get(name, Any)
        if parameter.kind is Parameter.VAR_POSITIONAL:
            yield Field(name, name, _all_of(hint), required=False)
        elif parameter.kind is not Parameter.VAR_KEYWORD:
            yield Field(name, name, hint, parameter.default is Parameter.empty, _default(parameter))
        elif get_origin(hint) is Unpack:
            yield from fields_of(get_args(hint)[0])


def _default(parameter: Parameter) -> Any:
    default = parameter.default
    if type(default).__name__ == "FieldInfo":  # pydantic's; the function itself would get it as a value
        raise NoForm("a default of Field(…)", "write it into the hint, Annotated[…, Field(…)]", parameter.name)
    return NOTHING if default is Parameter.empty else default


def others_of(parameters: Mapping[str, Parameter], hints: Mapping[str, Any]) -> tuple[str, Any] | None:
    """The name and the hint of `**kwargs`, which takes further arguments; unless it lists them."""
    for name, parameter in parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            hint = hints.get(name, Any)
            return None if get_origin(hint) is Unpack else (name, hint)
    return None


def returned_by(function: Callable[..., Any], hints: Mapping[str, Any]) -> Any:
    """The hint of what a caller gets: of a generator the list of what it yields, of a promise what it promises."""
    hint = hints.get("return", Any)
    origin, args = get_origin(hint), get_args(hint)
    if args and origin in _STREAMS and (isgeneratorfunction(function) or isasyncgenfunction(function)):
        return list[args[0]]
    return args[-1] if origin in _PROMISES and args else hint


def _all_of(hint: Any) -> Any:
    """`*args: int` are any number of them; `*args: *tuple[int, str]` are those two."""
    if get_origin(hint) is Unpack:
        return get_args(hint)[0]
    return tuple[get_args(hint)] if getattr(hint, "__unpacked__", False) else list[hint]
