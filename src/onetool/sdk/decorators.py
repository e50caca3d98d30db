"""The decorators for a pack's functions (`@tool`, `@prompt`, `@resource`) and the content that these may return.

Content (text, images, audio, resources) is a plain dict in MCP format. In code, on the command line and over REST,
content is ordinary data.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, Never, TypeVar

import msgspec

from onetool.core.call import MAX_RETRIES, is_retries, is_seconds
from onetool.core.spec import Requirement
from onetool.core.text import lazy_pattern, or_rather

F = TypeVar("F", bound=Callable[..., Any])
TOOL_MARK = "__onetool__"
REQUIRES_MARK = "__onetool_requires__"


class ToolMarks(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `@tool`, stored on the function until its ToolSpec is made."""

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
    **unknown: Never,
) -> Any:
    """Set the properties of a tool: `@tool(pure=True, timeout=30)`. The function itself is unchanged.

    Args:
        name: The name of the tool, by default the function's.
        pure: Same arguments, same value, no side effects: results may be cached.
        idempotent: Repeating the call has no further effect: it may be retried.
        read_only: True if the tool has no side effects, False if it has. Lists show `reads` or `changes`.
        parallel: May run in parallel with other calls of the same step of a model; other tools run in order.
        hidden: The tool can be called, but is not listed or found by searches.
        timeout: The time limit in seconds, including retries. Default: `defaults.timeout_s` in the config (8).
        retries: The number of retries after a failure, with growing pauses, for tools that may be repeated. Default:
            `defaults.retries` in the config (0) for idempotent tools, else 0.
        task: For long-running tools. Clients that support MCP tasks get a task if the call does not finish immediately;
            "required" refuses all other clients.
        tags: Words for finding the tool.
        examples: Example calls for help texts.
    """
    for option in unknown:
        raise TypeError(f"@tool has no option {option}{or_rather(option, ToolMarks.__struct_fields__)}")
    if timeout is not None and not is_seconds(timeout):
        raise ValueError(f"timeout: expected a number of seconds above 0, got {timeout}")
    if retries is not None and not is_retries(retries):
        raise ValueError(f"retries: expected a number from 0 to {MAX_RETRIES}, got {retries!r}")
    if task not in (None, "optional", "required"):
        raise ValueError(f'task: expected "optional" or "required", got {task!r}')
    for texts, option in ((tags, "tags"), (examples, "examples")):
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{option}: expected a list of strings, got {texts!r}")
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
    return partial(_mark, TOOL_MARK, marks) if function is None else _mark(TOOL_MARK, marks, function)


def _mark(name: str, marks: object, function: F) -> F:
    setattr(function, name, marks)
    return function


def marks_of(function: Callable[..., Any]) -> ToolMarks:
    return getattr(function, TOOL_MARK, None) or ToolMarks()


def requirements_of(function: Callable[..., Any]) -> tuple[Requirement, ...]:
    """Return the requirements that `requires_cli` and `requires_lib` declare on a function, in source order."""
    return getattr(function, REQUIRES_MARK, ())


# Media


def text(words: str) -> dict[str, Any]:
    """Return a text block, for use with other content."""
    return {"type": "text", "text": words}


def image(data: bytes, mime_type: str = "image/png") -> dict[str, Any]:
    """Return an image."""
    return {"type": "image", "data": _base64(data, "image"), "mimeType": mime_type}


def audio(data: bytes, mime_type: str = "audio/wav") -> dict[str, Any]:
    """Return audio."""
    return {"type": "audio", "data": _base64(data, "audio"), "mimeType": mime_type}


def embedded(uri: str, content: str | bytes, mime_type: str | None = None) -> dict[str, Any]:
    """Return a resource with its content, such as the text of a file with its URI."""
    if isinstance(content, bytes):
        inner = {"uri": uri, "mimeType": mime_type or "application/octet-stream", "blob": _base64(content, "embedded")}
    else:
        inner = {"uri": uri, "mimeType": mime_type or "text/plain", "text": content}
    return {"type": "resource", "resource": inner}


def link(uri: str, name: str, description: str | None = None, mime_type: str | None = None) -> dict[str, Any]:
    """Return a link to a resource that the client may read."""
    optional = {"description": description, "mimeType": mime_type}
    return {"type": "resource_link", "uri": uri, "name": name, **{k: v for k, v in optional.items() if v is not None}}


def _base64(data: bytes, function: str) -> str:
    from base64 import b64encode

    if isinstance(data, str):
        raise TypeError(f"{function}() takes bytes, not str: read files with Path.read_bytes()")
    return b64encode(data).decode()


# `@prompt` and `@resource`

OFFER_MARK = "__onetool_offer__"
_URI = lazy_pattern(r"[a-zA-Z][a-zA-Z0-9+.-]*:[^\s\x00-\x1f]+")


class OfferMarks(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `@prompt` or `@resource`, stored on the function. Prompts have no uri."""

    name: str | None = None
    title: str | None = None
    uri: str | None = None
    mime_type: str | None = None


def prompt(function: Callable[..., Any] | None = None, /, *, name: str | None = None, title: str | None = None) -> Any:
    """Declare a prompt that users can pick in their client. The function returns its text.

    The function may also return a list of content (`text(…)`, `image(…)`, `embedded(…)`), or of `{"role": …, "content":
    …}`. Its parameters are the prompt's arguments, and its docstring is the description. The function is not a tool.

    Args:
        name: The name of the prompt, by default the function's.
        title: A title for clients to show.
    """
    marks = OfferMarks(name=name, title=title)
    return partial(_mark, OFFER_MARK, marks) if function is None else _mark(OFFER_MARK, marks, function)


def resource(uri: str, *, name: str | None = None, mime_type: str | None = None) -> Callable[[F], F]:
    """Declare a resource that clients can read. The function returns its text, bytes, or data to be sent as JSON.

    Args:
        uri: The resource's URI, with any scheme: "notes://today". With variables, which are the function's parameters,
            it is a URI template: "notes://{day}".
        name: The name of the resource, by default the function's.
        mime_type: The media type. Default: text/plain, application/json or application/octet-stream, depending on the
            value.
    """
    if not isinstance(uri, str) or not _URI.fullmatch(uri):
        raise ValueError(f"uri: expected a URI with a scheme, such as notes://today, got {uri!r}")
    return partial(_mark, OFFER_MARK, OfferMarks(name=name, uri=uri, mime_type=mime_type))


def offer_marks_of(function: Callable[..., Any]) -> OfferMarks | None:
    return getattr(function, OFFER_MARK, None)
