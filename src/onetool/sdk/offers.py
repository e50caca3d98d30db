"""`@prompt` and `@resource`: what a pack offers beside tools."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

F = TypeVar("F", bound=Callable[..., Any])

MARK = "__onetool_offer__"
_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:[^\s\x00-\x1f]+")


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """What the decorators keep on the function. Without a uri it is a prompt."""

    name: str | None = None
    title: str | None = None
    uri: str | None = None
    mime_type: str | None = None


def prompt(function: Callable[..., Any] | None = None, /, *, name: str | None = None, title: str | None = None) -> Any:
    """A prompt that people can pick in their client: the function gives its text.

    It may also give a list of content (`text(…)`, `image(…)`, `embedded(…)`), or of `{"role": …, "content": …}`.
    Its parameters are the prompt's arguments, its docstring says what it is for. It is no tool.

    Args:
        name: Another name than the function's.
        title: How a client may show it.
    """
    mark = _marker(Offered(name=name, title=title))
    return mark if function is None else mark(function)


def resource(uri: str, *, name: str | None = None, mime_type: str | None = None) -> Callable[[F], F]:
    """Something that clients can read: the function gives its text, its bytes, or data that is sent as JSON.

    Args:
        uri: Its address, of any scheme: "notes://today". With `{places}`, which are the function's parameters, it
            stands for all addresses of that form: "notes://{day}".
        name: Another name than the function's.
        mime_type: What it is; text/plain, application/json or application/octet-stream when nothing is said.
    """
    if not isinstance(uri, str) or not _URI.fullmatch(uri):
        raise ValueError(f"uri: expected an address with a scheme, such as notes://today, got {uri!r}")
    return _marker(Offered(name=name, uri=uri, mime_type=mime_type))


def offered(function: Callable[..., Any]) -> Offered | None:
    return getattr(function, MARK, None)


def _marker(marks: Offered) -> Callable[[F], F]:
    def mark(function: F) -> F:
        setattr(function, MARK, marks)
        return function

    return mark
