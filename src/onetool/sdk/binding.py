"""Validated JSON arguments -> a call of the function with what its hints ask for."""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any

import msgspec

from onetool.core.call import Problem
from onetool.core.errors import BadArguments
from onetool.core.secrecy import MASK, secret_names
from onetool.core.spec import Handler
from onetool.sdk.hints import Form, Wrong

Arrange = Callable[[dict[str, Any]], tuple[list[Any], dict[str, Any]]]
"""Arguments by name -> what to pass by position, and what by name."""

_SHOWN = 60  # characters of a wrong value that are worth showing


def bind(
    function: Callable[..., Any], parameters: Mapping[str, Parameter], forms: Mapping[str, Form], others: Form | None
) -> Handler:
    """The function itself where JSON already is what it wants; else one that first converts, and places.

    `forms` are those of the arguments by name, `others` that of all further ones, which `**kwargs` takes.
    """
    arrange = _arrangement(parameters, forms, others)
    if isasyncgenfunction(function):
        return _collecting_async(function, arrange)
    if isgeneratorfunction(function):
        return _collecting(function, arrange)
    if arrange is _by_name:
        return function
    return _calling_async(function, arrange) if iscoroutinefunction(function) else _calling(function, arrange)


def _calling(function: Callable[..., Any], arrange: Arrange) -> Handler:
    @wraps(function)
    def call(**arguments: Any) -> Any:
        positional, named = arrange(arguments)
        return function(*positional, **named)

    return call


def _calling_async(function: Callable[..., Any], arrange: Arrange) -> Handler:
    @wraps(function)
    async def call(**arguments: Any) -> Any:
        positional, named = arrange(arguments)
        return await function(*positional, **named)

    return call


def _collecting(function: Callable[..., Any], arrange: Arrange) -> Handler:
    """A generator is no data; the list of what it yields is."""

    @wraps(function)
    def call(**arguments: Any) -> list[Any]:
        positional, named = arrange(arguments)
        return list(function(*positional, **named))

    return call


def _collecting_async(function: Callable[..., Any], arrange: Arrange) -> Handler:
    @wraps(function)
    async def call(**arguments: Any) -> list[Any]:
        positional, named = arrange(arguments)
        return [item async for item in function(*positional, **named)]

    return call


def _arrangement(parameters: Mapping[str, Parameter], forms: Mapping[str, Form], others: Form | None) -> Arrange:
    """The cheapest that will do, chosen once and not at every call."""
    converts = {name: form for name, form in forms.items() if not form.as_is}
    others = None if others is None or others.as_is else others
    by_position = _by_position(parameters)
    if not by_position:
        return _converting(converts, forms, others) if converts or others else _by_name

    convert = _converting(converts, forms, others)

    def arrange(arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        _, named = convert(arguments)
        positional: list[Any] = []
        for parameter in by_position:
            value = named.pop(parameter.name, parameter.default)
            if parameter.kind is Parameter.VAR_POSITIONAL:
                positional += () if value is Parameter.empty else value
            elif value is Parameter.empty:
                raise BadArguments(f"{parameter.name}: expected a value (required), got nothing")
            else:
                positional.append(value)
        return positional, named

    return arrange


def _by_position(parameters: Mapping[str, Parameter]) -> list[Parameter]:
    """The parameters that can't be passed by name: all that stand before `*args`, if there is one, or before `/`."""
    listed = list(parameters.values())
    kinds = [parameter.kind for parameter in listed]
    if Parameter.VAR_POSITIONAL in kinds:
        return listed[: kinds.index(Parameter.VAR_POSITIONAL) + 1]
    return [parameter for parameter in listed if parameter.kind is Parameter.POSITIONAL_ONLY]


def _by_name(arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    return [], arguments


def _converting(converts: Mapping[str, Form], forms: Mapping[str, Form], others: Form | None) -> Arrange:
    def convert(arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        for name in arguments:
            form = converts.get(name)
            if form is None and others is not None and name not in forms:
                form = others
            if form is not None:
                try:
                    arguments[name] = form.convert(arguments[name])
                except Wrong as wrong:
                    raise _bad_arguments(wrong.under(name), form) from None
        return [], arguments

    return convert


def _bad_arguments(wrong: Wrong, form: Form) -> BadArguments:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in wrong.path).removeprefix(".")
    if wrong.said:
        return BadArguments(f"{path}: {wrong.said}")
    names: dict[str, Any] = {str(step): {} for step in wrong.path} | {str(wrong.path[0]): form.schema}
    got = MASK if secret_names({"properties": names}) else _shown(wrong.got)
    return BadArguments(str(Problem(path=path, expected=wrong.expected, got=got)))


def _shown(value: Any) -> str:
    """Containers may hold a secret, and are long: what they are says enough."""
    if isinstance(value, dict):
        return f"object with {', '.join(map(str, value)) or 'nothing'}"[:_SHOWN]
    if isinstance(value, list):
        return f"array of {len(value)}"
    text = msgspec.json.encode(value, enc_hook=repr).decode()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
