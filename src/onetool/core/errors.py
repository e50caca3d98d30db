"""What can go wrong, as a tree.

OneToolError
├── DefinitionError            a tool's definition can't be accepted
│   ├── SchemaError              its JSON Schema is wrong, hostile, or refers to somewhere else
│   └── DuplicateToolError       its name is taken; the message names both
├── ConfigError                the config can't be used: one Mistake for each thing that is wrong
├── UnknownProviderError       no such provider format
├── ScriptError, SnippetError  code, or what a snippet stands for, can't be run as it is (in script/)
└── ToolFailure                a handler's way to fail with its own words, a reason and hints
    ├── BadArguments             … because of an argument that its schema could not rule out
    ├── RefusedArguments         what calling another tool with wrong arguments raises; a ValueError, too
    └── HandleNotFoundError, ResultExpiredError …   stored results (services/results)

A tool that fails at run time is not an exception but a failed ToolResult: the executor turns whatever a handler
raises into one. Exceptions are for people who define and configure tools.
"""

from collections.abc import Iterable

import msgspec


class OneToolError(Exception):
    """Everything that OneTool itself raises."""


class DefinitionError(OneToolError, ValueError):
    """A definition that can't become a tool. `tool` is its name, where it has one."""

    def __init__(self, message: str, tool: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.tool = tool
        self.hint = hint  # more help than the message may carry, where a document fixes the message's exact text


class SchemaError(DefinitionError):
    """A JSON Schema that is wrong, too costly, or points outside of itself."""


class DuplicateToolError(DefinitionError):
    """The name is taken. The first one stays."""


class UnknownProviderError(OneToolError, ValueError):
    """No format of that name."""


class ToolFailure(OneToolError):  # noqa: N818 - a tool that fails is an outcome, not a bug
    """Raise this in a handler to fail on purpose: the message reaches the caller as it is.

    `reason` is a finer cause than the fixed error code: timeout, denied, rate_limited, source_unavailable, not_found …
    `hints` are things the caller could do about it.
    """

    reason: str | None = None
    hints: tuple[str, ...] = ()

    def __init__(self, message: str, reason: str | None = None, hints: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.hints = tuple(hints)


class BadArguments(ToolFailure):
    """Raise this for an argument that the schema could not rule out: the result's code is `invalid_args`.

    `argument` is its name, where nothing has been done yet: then the call was refused like one that the schema refuses.
    """

    argument: str | None = None


class RefusedArguments(ToolFailure, ValueError):  # noqa: N818 - like its parent
    """Another tool was called with arguments that it does not take. For whoever called that tool it is a failure like
    any other: its own arguments were right."""


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong in what somebody wrote down: where it stands, what it is, what to do."""

    message: str
    file: str | None = None
    line: int | None = None
    key: str | None = None
    hint: str | None = None
    severity: str = "error"

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        text = ": ".join(part for part in (place, self.key, self.message) if part)
        return f"{text} ({self.hint})" if self.hint else text


class ConfigError(OneToolError):
    """The config can't be used. Each mistake is told, not only the first."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))
