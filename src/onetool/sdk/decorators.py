"""The decorators for a pack's functions (`@tool`, `@prompt`, `@resource`) and the content that these may return.

Content (text, images, audio, resources) is a plain dict in the form of MCP; in code, on the command line and over REST
it is data like any other.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec

from onetool.core.call import MAX_RETRIES, is_retries, is_seconds
from onetool.core.spec import Requirement
from onetool.core.text import lazy_pattern

F = TypeVar("F", bound=Callable[..., Any])

TOOL_MARK = "__onetool__"
REQUIRES_MARK = "__onetool_requires__"


class ToolMarks(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `@tool`, kept on the function until a ToolSpec is made of it."""

    name: str | None = None
    pure: bool = False
    idempotent: bool = False
    read_only: bool | None = None
    parallel: bool = False
    hidden: bool = False
    timeout: float | None = None
    retries: int | None = None
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
    read_only: bool | None = None,
    parallel: bool = False,
    hidden: bool = False,
    timeout: float | None = None,
    retries: int | None = None,
    task: Literal["optional", "required"] | None = None,
    tags: Sequence[str] = (),
    examples: Sequence[str] = (),
) -> Any:
    """Mark a function of a pack: `@tool(pure=True, timeout=30)`. The function itself stays as it is.

    Args:
        name: Another name for the tool than the function's.
        pure: Same arguments, same value, no effect: results may be kept and used again.
        idempotent: Doing it twice is like doing it once: it may be tried again.
        read_only: True if it changes nothing outside, False if it does. Lists say `reads` or `changes`.
        parallel: It may run beside other calls that a model makes in one step; those of other tools run in order.
        hidden: It can be called, but is in no list and in no search.
        timeout: How many seconds it may take, all tries together; `defaults.timeout_s` of the config, 8 there, when
            nothing is said.
        retries: How often it is tried again after a failure, with growing pauses: for what may be repeated. When
            nothing is said: `defaults.retries` of the config, 0 there, if it is idempotent, and else never.
        task: It may take long. A client that knows tasks gets one to look after when the call is not done at once;
            "required" refuses all other clients.
        tags: Words to find it by.
        examples: Calls as one would write them, for help texts.
    """
    _check_marks(timeout, retries, task, tags, examples)
    marks = ToolMarks(
        name=name,
        pure=pure,
        idempotent=idempotent or pure,
        read_only=pure or read_only,
        parallel=parallel or pure,
        hidden=hidden,
        timeout=timeout,
        retries=retries,
        task=task,
        tags=tuple(tags),
        examples=tuple(examples),
    )
    return partial(_mark, marks=marks) if function is None else _mark(function, marks)


def _mark(function: F, marks: ToolMarks) -> F:
    setattr(function, TOOL_MARK, marks)
    return function


def _check_marks(
    timeout: float | None, retries: int | None, task: str | None, tags: Sequence[str], examples: Sequence[str]
) -> None:
    if timeout is not None and not is_seconds(timeout):
        raise ValueError(f"timeout: expected a number of seconds above 0, got {timeout}")
    if retries is not None and not is_retries(retries):
        raise ValueError(f"retries: expected a number from 0 to {MAX_RETRIES}, got {retries!r}")
    if task not in (None, "optional", "required"):
        raise ValueError(f'task: expected "optional" or "required", got {task!r}')
    for words, told in ((tags, "tags"), (examples, "examples")):
        if isinstance(words, str) or not all(isinstance(word, str) for word in words):
            raise TypeError(f"{told}: expected a list of texts, got {words!r}")


def marks_of(function: Callable[..., Any]) -> ToolMarks:
    return getattr(function, TOOL_MARK, None) or ToolMarks()


def requirements_of(function: Callable[..., Any]) -> tuple[Requirement, ...]:
    """Return what `requires_cli` and `requires_lib` on a function declare, in the order in which they are written."""
    return getattr(function, REQUIRES_MARK, ())


# Media


def text(words: str) -> dict[str, Any]:
    """Return a piece of text between other content."""
    return {"type": "text", "text": words}


def image(data: bytes, mime_type: str = "image/png") -> dict[str, Any]:
    """Return a picture."""
    return {"type": "image", "data": _base64(data, "image"), "mimeType": mime_type}


def audio(data: bytes, mime_type: str = "audio/wav") -> dict[str, Any]:
    """Return a sound."""
    return {"type": "audio", "data": _base64(data, "audio"), "mimeType": mime_type}


def embedded(uri: str, content: str | bytes, mime_type: str | None = None) -> dict[str, Any]:
    """Return a resource with its content: a file's text, say, under its address."""
    if isinstance(content, bytes):
        inside = {"uri": uri, "mimeType": mime_type or "application/octet-stream", "blob": _base64(content, "embedded")}
    else:
        inside = {"uri": uri, "mimeType": mime_type or "text/plain", "text": content}
    return {"type": "resource", "resource": inside}


def link(uri: str, name: str, description: str | None = None, mime_type: str | None = None) -> dict[str, Any]:
    """Return a link to a resource, for the client to read if it wants to."""
    more = {"description": description, "mimeType": mime_type}
    return {"type": "resource_link", "uri": uri, "name": name, **{k: v for k, v in more.items() if v is not None}}


def _base64(data: bytes, function: str) -> str:
    from base64 import b64encode

    if isinstance(data, str):
        raise TypeError(f"{function}() takes bytes, not str: read files with Path.read_bytes()")
    return b64encode(data).decode()


# `@prompt` and `@resource`: what a pack offers beside tools.

OFFER_MARK = "__onetool_offer__"
_URI = lazy_pattern(r"[a-zA-Z][a-zA-Z0-9+.-]*:[^\s\x00-\x1f]+")


class OfferMarks(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `@prompt` or `@resource`, kept on the function. Without a uri it is a prompt."""

    name: str | None = None
    title: str | None = None
    uri: str | None = None
    mime_type: str | None = None


def prompt(function: Callable[..., Any] | None = None, /, *, name: str | None = None, title: str | None = None) -> Any:
    """Mark a prompt that people can pick in their client: the function gives its text.

    It may also give a list of content (`text(…)`, `image(…)`, `embedded(…)`), or of `{"role": …, "content": …}`.
    Its parameters are the prompt's arguments, its docstring says what it is for. It is not a tool.

    Args:
        name: Another name than the function's.
        title: How a client may show it.
    """
    mark = _mark_offer(OfferMarks(name=name, title=title))
    return mark if function is None else mark(function)


def resource(uri: str, *, name: str | None = None, mime_type: str | None = None) -> Callable[[F], F]:
    """Mark something that clients can read: the function gives its text, its bytes, or data that is sent as JSON.

    Args:
        uri: Its address, of any scheme: "notes://today". With `{places}`, which are the function's parameters, it
            stands for all addresses of that form: "notes://{day}".
        name: Another name than the function's.
        mime_type: What it is; text/plain, application/json or application/octet-stream when nothing is said.
    """
    if not isinstance(uri, str) or not _URI.fullmatch(uri):
        raise ValueError(f"uri: expected an address with a scheme, such as notes://today, got {uri!r}")
    return _mark_offer(OfferMarks(name=name, uri=uri, mime_type=mime_type))


def offer_marks_of(function: Callable[..., Any]) -> OfferMarks | None:
    return getattr(function, OFFER_MARK, None)


def _mark_offer(marks: OfferMarks) -> Callable[[F], F]:
    def mark(function: F) -> F:
        setattr(function, OFFER_MARK, marks)
        return function

    return mark
