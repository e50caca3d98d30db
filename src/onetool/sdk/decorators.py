"""`@tool(...)`: what type hints and a docstring can't say of a function."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from onetool.core.call import is_seconds

F = TypeVar("F", bound=Callable[..., Any])

MARK = "__onetool__"


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """What the decorator keeps on the function, for whoever makes a ToolSpec of it."""

    name: str | None = None
    pure: bool = False
    idempotent: bool = False
    read_only: bool = False
    parallel: bool = False
    hidden: bool = False
    timeout: float | None = None
    task: Literal["optional", "required"] | None = None
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    pure: bool = False,
    idempotent: bool = False,
    read_only: bool = False,
    parallel: bool = False,
    hidden: bool = False,
    timeout: float | None = None,
    task: Literal["optional", "required"] | None = None,
    tags: Sequence[str] = (),
    examples: Sequence[str] = (),
) -> Any:
    """Mark a function of a pack: `@tool(pure=True, timeout=30)`. The function itself stays as it is.

    Args:
        name: Another name for the tool than the function's.
        pure: Same arguments, same value, no effect: results may be kept and used again.
        idempotent: Doing it twice is like doing it once: it may be tried again.
        read_only: It changes nothing outside.
        parallel: It may run beside other calls that a model makes in one step; those of other tools run in order.
        hidden: It can be called, but is in no list and in no search.
        timeout: How many seconds it may take; 8 when nothing is said.
        task: It may take long. A client that knows tasks gets one to look after when the call is not done at once;
            "required" refuses all other clients.
        tags: Words to find it by.
        examples: Calls as one would write them, for help texts.
    """
    if timeout is not None and not is_seconds(timeout):
        raise ValueError(f"timeout: expected a number of seconds above 0, got {timeout}")
    if task not in (None, "optional", "required"):
        raise ValueError(f'task: expected "optional" or "required", got {task!r}')
    for words, told in ((tags, "tags"), (examples, "examples")):
        if isinstance(words, str) or not all(isinstance(word, str) for word in words):
            raise TypeError(f"{told}: expected a list of texts, got {words!r}")
    marks = Marks(
        name=name,
        pure=pure,
        idempotent=idempotent or pure,
        read_only=read_only or pure,
        parallel=parallel or pure,
        hidden=hidden,
        timeout=timeout,
        task=task,
        tags=tuple(tags),
        examples=tuple(examples),
    )

    def mark(function: F) -> F:
        setattr(function, MARK, marks)
        return function

    return mark if function is None else mark(function)


def marks_of(function: Callable[..., Any]) -> Marks:
    return getattr(function, MARK, None) or Marks()
