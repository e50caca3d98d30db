"""Form: what a type hint means to a caller. Every kind of hint becomes one of these."""

from collections.abc import Callable
from typing import Any, Protocol, Self

import msgspec

Schema = dict[str, Any]
Convert = Callable[[Any], Any]


class Form(msgspec.Struct, frozen=True):
    """The JSON Schema of a hint, and the way from a JSON value to what the hint asks for.

    `convert` checks as it goes, so that a union can tell which of its alternatives a value is. Where `as_is` holds,
    whatever fits the schema already is what the hint asks for, and nobody needs to convert it.
    """

    schema: Schema
    convert: Convert
    as_is: bool = False


class Hints(Protocol):
    """What a kind of hint needs of the reader: the forms of its parts, and definitions to share."""

    outgoing: bool  # the schema is for what a function returns, as it looks after `core.plain`
    definitions: dict[str, Schema]

    def form(self, hint: Any) -> Form: ...

    def named(self, hint: Any, name: str, read: Callable[[], Form]) -> Form: ...


class NoForm(TypeError):  # noqa: N818 - what it is, is said best by what it says
    """A hint that has no form in JSON: which, and what to use instead. The parameter is known further up."""

    def __init__(self, hint: Any, advice: str, parameter: str = "") -> None:
        self.hint = hint
        self.advice = advice
        where = f"parameter {parameter!r}: " if parameter else ""
        super().__init__(f"{where}{hint_text(hint)} has no form in JSON: {advice}")


class Wrong(Exception):  # noqa: N818 - an answer, not a bug: whoever called gets it as BadArguments
    """A value that a hint does not allow: what was expected, or what its own constructor said."""

    def __init__(self, expected: str, got: Any = None, said: str = "", path: tuple[str | int, ...] = ()) -> None:
        super().__init__(said or expected)
        self.expected = expected
        self.got = got
        self.said = said
        self.path = path

    def under(self, step: str | int) -> Self:
        """The same, seen from the container of the value."""
        self.path = (step, *self.path)
        return self


def hint_text(hint: Any) -> str:
    """A hint as its author wrote it, more or less."""
    return hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)


def made(build: Callable[..., Any], expected: str) -> Convert:
    """A constructor of Python's own as a conversion. `expected` says more than its messages do."""

    def convert(value: Any) -> Any:
        try:
            return build(value)
        except (TypeError, ValueError, ArithmeticError):
            raise Wrong(expected, value) from None

    return convert
