"""ToolCall and ToolResult: the input and the output of the executor, whichever interface the call came through."""

from collections.abc import Callable, Mapping
from itertools import count
from os import urandom  # not `secrets`, which takes longer to load than most of us
from typing import Any, Literal, Self

import msgspec

from onetool.core.errors import RefusedArguments, ToolFailure
from onetool.core.json_data import ServerAnswer

Code = Literal["tool_not_found", "invalid_args", "execution_error"]


class ToolCall(msgspec.Struct, frozen=True):
    """A request to run a tool. `source` is the interface that the call came through."""

    id: str
    name: str
    args: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    source: str = "python"
    timeout: float | None = None  # seconds, when the caller wants another deadline than the tool's


def is_seconds(value: Any) -> bool:
    """Whether it can be a time limit. NaN is refused: it would break the timers of the event loop."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


class WrongArgument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One wrong argument: where it is, what was expected, what came, and what may have been meant."""

    path: str  # as a person writes it: options.limit[0]
    expected: str
    got: str
    hint: str | None = None
    pointer: str = ""  # as RFC 6901 writes it: /options/limit/0

    def __str__(self) -> str:
        text = f"{self.path}: {self.got}" if self.path else self.got
        if self.expected:
            text = f"{self.path or 'value'}: expected {self.expected}, got {self.got}"
        return f"{text} ({self.hint})" if self.hint else text


class ToolError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a call failed. `code` is one of three; a finer cause goes into `reason`."""

    code: Code
    message: str
    reason: str | None = None
    hints: tuple[str, ...] = ()
    details: tuple[WrongArgument, ...] = ()

    def cleaned(self, clean: Callable[[Any], Any]) -> "ToolError":
        """A copy with secrets masked in every text."""
        texts = {"message": self.message, "reason": self.reason, "hints": self.hints, "details": self.details}
        return msgspec.convert({"code": self.code, **clean(msgspec.to_builtins(texts))}, ToolError)


def wrong_arguments(tool: object) -> str:
    """What the message of a call with wrong arguments begins with."""
    return f"Invalid arguments for {tool}:"


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one call: `data` when ok, `error` when not. `meta` has tool, source and duration_ms."""

    ok: bool
    data: Any = None
    error: ToolError | None = None
    meta: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])

    def cleaned(self, clean: Callable[[Any], Any]) -> Self:
        """A copy with secrets masked, for records."""
        return msgspec.structs.replace(self, data=clean(self.data), error=self.error and self.error.cleaned(clean))

    def value(self) -> Any:
        """The data; ToolFailure where there is none, which is a ValueError too, where the arguments were wrong."""
        if self.error is not None:
            kind = RefusedArguments if self.error.code == "invalid_args" else ToolFailure
            raise kind(self.raised, reason=self.error.reason, hints=self.error.hints)
        return self.data

    @property
    def raised(self) -> str:
        """The text of the exception that code gets for a failure. What a handler said of its arguments is in its own
        words: the tool's name stands before them only for those who see no more than the message."""
        if self.error is None:
            return ""
        if self.error.code != "invalid_args" or self.error.details:
            return self.error.message
        return self.error.message.removeprefix(f"{wrong_arguments(self.meta.get('tool'))} ")

    def to_dict(self) -> dict[str, Any]:
        """As JSON types, for printing and for the wire."""
        return msgspec.to_builtins(self)


class ServerResult(ToolResult, frozen=True, kw_only=True):
    """The result of an MCP server. `sent` gives its answer as it came, with secrets masked.

    The MCP interface uses `sent`. All others use the plain result.
    """

    sent: Callable[[], ServerAnswer]

    def cleaned(self, clean: Callable[[Any], Any]) -> Self:
        sent = self.sent
        return msgspec.structs.replace(super().cleaned(clean), sent=lambda: ServerAnswer(*clean([*sent()])))

    def plain(self) -> ToolResult:
        return ToolResult(ok=self.ok, data=self.data, error=self.error, meta=self.meta)

    def to_dict(self) -> dict[str, Any]:
        return self.plain().to_dict()


# Ids, unique across processes


_process = urandom(8).hex()
_numbers = count(1)


def new_id() -> str:
    return f"{_process}-{next(_numbers)}"
