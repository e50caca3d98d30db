"""Only plain data leaves a tool: what a handler returns becomes JSON types, here and nowhere else.

A value looks the same to every reader, whether the tool ran in this process or behind a wire. Dates become ISO text,
bytes become base64, dataclasses, enums, sets and models become what JSON has for them.
"""

from collections.abc import Iterable
from inspect import iscoroutine
from os import PathLike, fspath
from typing import Any, cast

import msgspec

from onetool.core.answer import Answer
from onetool.core.errors import ToolFailure
from onetool.core.failure import words_for

MOST_PARTS = 5_000_000  # forty times `x = [x, x]` is small, and has more than any memory when it is copied

_HOLDERS = frozenset((list, tuple, dict))
_PLAIN: tuple[Any, ...] = (str, int, float, list, dict)


def plain(value: Any) -> Any:
    """The value as plain data; ToolFailure when it is none. Of an answer that was sent to us, the value in it."""
    if type(value) is Answer:
        return Answer(plain(value.value), value.sent)
    if type(value) in _HOLDERS and _is_endless(value):
        raise ToolFailure(f"returned more than {MOST_PARTS:,} parts", reason="output_invalid")
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_form)
    except RecursionError:
        raise ToolFailure("returned data that is nested too deep or contains itself", reason="output_invalid") from None
    except BaseException as error:  # noqa: BLE001 - a model may raise anything while it is asked for its data
        raise ToolFailure(f"returned something that is not data: {words_for(error)}", reason="output_invalid") from None


def _form(value: Any) -> Any:
    """What the encoder does not know: subclasses of plain types, paths, and models that can dump themselves."""
    if iscoroutine(value):
        value.close()
        raise TypeError("something that was not awaited: write `await` before the call")
    for plain_type in _PLAIN:
        if isinstance(value, plain_type):
            return plain_type(value)
    if isinstance(value, PathLike):
        return fspath(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if hasattr(type(value), "model_dump"):  # pyright: ignore[reportUnknownArgumentType] - of its class: a mock has every attribute
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no form in JSON; return text, numbers, lists or dicts")


def _is_endless(value: Any) -> bool:
    """Whether it has more parts than that when written out: what stands in several places counts each time.

    Each list and dict is weighed once, so that this takes as long as what there is, and not as what it would become.
    """
    weights: dict[int, int] = {}
    waiting: list[Any] = [value]
    while waiting:
        one: Any = waiting[-1]
        inside = _holders_in(one)
        if inside and id(one) not in weights:
            weights[id(one)] = 0  # until what is inside has been weighed, and for ever where it contains itself
            waiting += [part for part in inside if id(part) not in weights]
            continue
        waiting.pop()
        weights[id(one)] = len(one) + sum(weights[id(part)] for part in inside)
        if weights[id(one)] > MOST_PARTS:
            return True
    return False


def _holders_in(holder: Any) -> list[Any]:
    parts = cast(Iterable[Any], holder.values() if hasattr(holder, "values") else holder)
    return [part for part in parts if type(part) in _HOLDERS]
