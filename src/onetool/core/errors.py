"""The exceptions of OneTool, and functions that describe any exception in one line.

OneToolError
├── DefinitionError            a tool's definition can't be accepted
│   ├── SchemaError              its JSON Schema is invalid, too costly, or refers to another document
│   └── DuplicateToolError       its name is taken; the message names both tools
├── ConfigError                the config can't be used: one Mistake for each thing that is wrong
├── UnknownProviderError       no such provider format
├── ScriptError, SnippetError  code, or the call of a snippet, can't be run (in script/)
└── ToolFailure                raised by a handler to fail with its own message, reason and hints
    ├── BadArguments             because of an argument that the schema could not rule out
    └── HandleNotFoundError, ResultExpiredError …   stored results (services/results)

A tool that fails at run time is not an exception but a failed ToolResult: the executor catches whatever a handler
raises. Exceptions are for users who define and configure tools.
"""

import os
from collections.abc import Callable, Iterable
from typing import Annotated, cast

import msgspec
from msgspec import Meta


class OneToolError(Exception):
    """Base class for OneTool's exceptions."""


class DefinitionError(OneToolError, ValueError):
    """An invalid tool definition. `tool` is its name, if it has one."""

    def __init__(self, message: str, tool: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.tool = tool
        self.hint = hint  # further help, for messages whose exact text is specified


class SchemaError(DefinitionError):
    """A JSON Schema that is invalid, too costly, or refers to another document."""


class DuplicateToolError(DefinitionError):
    """The name of the tool is taken; the first tool stays registered."""


class UnknownProviderError(OneToolError, ValueError):
    """An unknown provider format."""


class Need(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host to be allowed or a secret to be set before a tool can work."""

    command: Annotated[str, Meta(description="The command that allows the host or sets the secret.")]
    host: Annotated[str | None, Meta(description="The host to be allowed.")] = None
    private: Annotated[bool, Meta(description="The host is, or resolves to, this machine or its network.")] = False
    secret: Annotated[str | None, Meta(description="The name of the secret to be set.")] = None
    hosts: Annotated[tuple[str, ...], Meta(description="The hosts that the secret will be bound to.")] = ()
    stored: Annotated[bool, Meta(description="The secret is stored, but not bound to these hosts (use `command`).")] = (
        False
    )


class ToolFailure(OneToolError):  # noqa: N818 - a tool that fails is an outcome, not a bug
    """Raised by a handler to fail with a message that reaches the caller unchanged. `reason` is more specific than the
    error code: timeout, denied, rate_limited, source_unavailable, not_found … `hints` say what the caller can do.

    `needs` lists the hosts and secrets that the user has to allow or set first.
    """

    reason: str | None = None
    hints: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()

    def __init__(
        self, message: str, reason: str | None = None, hints: Iterable[str] = (), needs: Iterable[Need] = ()
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.hints = tuple(hints)
        self.needs = tuple(needs)


class BadArguments(ToolFailure):
    """Raised by a handler for an argument that the schema could not rule out. The result's code is `invalid_args`.

    Pass the argument's name as `argument` only if the handler has not changed anything yet: the call is then reported
    as if the schema had refused it.
    """

    argument: str | None = None


class RefusedArguments(ToolFailure, ValueError):  # noqa: N818 - like its parent
    """Raised when a tool called another tool with wrong arguments. The outer tool's caller sees an ordinary failure,
    because its own arguments were right.
    """


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake in a file: where, what, and how to fix it."""

    message: str
    file: str | None = None
    line: int | None = None
    key: str | None = None
    hint: str | None = None
    severity: str = "error"
    needs: tuple[Need, ...] = ()
    reason: str = ""  # the kind of mistake, for programs

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        text = ": ".join(part for part in (place, self.key, self.message) if part)
        return f"{text} ({self.hint})" if self.hint else text


class ConfigError(OneToolError):
    """An invalid config. Lists every mistake, not only the first."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


# Describing exceptions

PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MAX_IN_GROUP = 5
MAX_MESSAGE = 2_000
MAX_WHOLE_MESSAGE = 1024 * 1024


def describe_error(error: BaseException, depth: int = 0, most: int = MAX_MESSAGE) -> str:
    """Return the type and message of an exception. The exception's text may be missing, huge or broken, and its causes
    may be nested without end.

    The class name is left out for OneTool's own exceptions, whose messages are complete.
    """
    text, name = message_of(error, most), type(error).__name__
    if isinstance(error, SystemExit):
        return f"the tool tried to end the process (SystemExit: {text})"
    if isinstance(error, BaseExceptionGroup) and depth == 0:
        inner = cast(tuple[BaseException, ...], error.exceptions)  # pyright: ignore[reportUnknownMemberType]
        text += ": " + "; ".join(describe_error(one, depth + 1) for one in inner[:MAX_IN_GROUP])
    if isinstance(error, OneToolError) and text:
        return text
    return f"{name}: {text}" if text else name


def message_of(error: BaseException, most: int = MAX_MESSAGE) -> str:
    """Return at most `most` characters of the exception's message; empty if str() fails."""
    try:
        return str(error)[:most]
    except BaseException:  # noqa: BLE001 - a broken __str__ must not hide the failure, nor end the process
        return ""


HEAD, TAIL = 1_250, 600  # characters kept of a message that is too long, with room for what stands between


def shorten_message(message: str, read_on: Callable[[int], str] | None = None) -> str:
    """Return the beginning and the end of a long message, with its lines: tracebacks end with what matters.

    `read_on` returns how to read the whole message from a line.
    """
    if len(message) <= MAX_MESSAGE:
        return message
    head, tail = message[:HEAD], message[-TAIL:]
    if "\n" in head[HEAD // 2 :]:
        head = head[: head.rfind("\n") + 1]
    if "\n" in tail[: TAIL // 2]:
        tail = tail[tail.find("\n") + 1 :]
    left_out = f"{len(message) - len(head) - len(tail):,} characters left out"
    where = "" if read_on is None else f": {read_on(head.count(chr(10)) + 1)}"
    return f"{head.removesuffix(chr(10))}\n… {left_out}{where} …\n{tail}"


def raised_at(error: BaseException) -> tuple[str, ...]:
    """Return the file and line of the last frame outside of OneTool."""
    place, trace = None, error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(PACKAGE_FOLDER):
            place = f"raised at {os.path.basename(file)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return (place,) if place else ()


MAX_SHOWN_VALUE = 60  # characters of a wrong value in a message


def cut(text: str, most: int) -> str:
    """Truncate a string to `most` characters, ending in an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
