"""`@tool(...)`: what type hints and a docstring can't say of a function."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

F = TypeVar("F", bound=Callable[..., Any])

MARK = "__onetool__"


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """What the decorator keeps on the function, for whoever makes a ToolSpec of it."""

    name: str | None = None
    pure: bool = False
    idempotent: bool = False
    read_only: bool = False
    hidden: bool = False
    timeout: float | None = None
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


def tool(
    *,
    name: str | None = None,
    pure: bool = False,
    idempotent: bool = False,
    read_only: bool = False,
    hidden: bool = False,
    timeout: float | None = None,
    tags: Iterable[str] = (),
    examples: Iterable[str] = (),
) -> Callable[[F], F]:
    """Mark a function of a pack: `@tool(pure=True, timeout=30)`. The function itself stays as it is."""
    marks = Marks(
        name=name,
        pure=pure,
        idempotent=idempotent or pure,
        read_only=read_only or pure,
        hidden=hidden,
        timeout=timeout,
        tags=tuple(tags),
        examples=tuple(examples),
    )

    def mark(function: F) -> F:
        setattr(function, MARK, marks)
        return function

    return mark


def marks_of(function: Callable[..., Any]) -> Marks:
    return getattr(function, MARK, None) or Marks()
