"""Validated JSON arguments -> what the function's hints ask for."""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

import msgspec

from onetool.core.errors import BadArguments

# JSON has these as they are; `int` is not among them, since JSON Schema calls 5.0 an integer too.
_AS_THEY_ARE = (str, bool, float, list, dict, Any, None)


def bind(function: Callable[..., Any], hints: Mapping[str, Any]) -> Callable[..., Any]:
    """The function itself, or one that first converts the arguments whose hints ask for more than JSON has."""
    wanted = {name: hint for name, hint in hints.items() if hint not in _AS_THEY_ARE and name != "return"}
    if not wanted:
        return function
    if iscoroutinefunction(function):

        @wraps(function)
        async def call_async(**args: Any) -> Any:
            return await function(**_converted(args, wanted))

        return call_async

    @wraps(function)
    def call(**args: Any) -> Any:
        return function(**_converted(args, wanted))

    return call


def _converted(args: dict[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    for name in args.keys() & wanted.keys():
        try:
            args[name] = msgspec.convert(args[name], wanted[name])
        except msgspec.ValidationError as error:
            raise BadArguments(f"{name}: {error}") from None
    return args
