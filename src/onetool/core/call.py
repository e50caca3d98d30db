"""ToolCall and ToolResult, the input and the output of the executor, and Caller, the user or program that calls.

All interfaces use these types. If the interface can reach the caller during the call (an MCP client, a terminal), a
handler may ask the user, ask the client's model, or request the client's folders. This module defines the questions;
each interface transports them. Time spent waiting for an answer doesn't count towards the call's deadline.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from os import urandom  # not `secrets`, which is slow to import
from time import monotonic
from typing import Annotated, Any, Literal, NotRequired, Protocol, Self, TypedDict

import msgspec
from msgspec import Meta

from onetool.core.errors import (
    MAX_MESSAGE,
    MAX_WHOLE_MESSAGE,
    Need,
    RefusedArguments,
    ToolFailure,
    shorten_message,
)
from onetool.core.json_data import ServerAnswer

Code = Literal["tool_not_found", "invalid_args", "execution_error"]

ToolVersion = tuple[str, str, str]
"""A bundle's ID, a tool's slug in the bundle, and a version. Not every such tool has a name that code can use."""

DRAFT = "draft"  # the source of calls that try out an unsaved tool: logged and audited, but not counted


class ToolCall(msgspec.Struct, frozen=True):
    """A request to run a tool. `source` is the interface that the call came through.

    The JSON form has `id`, `name`, `args` and `source`; the other fields are present only if set.
    """

    id: str
    name: str
    args: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    source: str = "python"
    timeout: float | msgspec.UnsetType | None = msgspec.UNSET  # seconds; overrides the tool's own timeout
    version: ToolVersion | msgspec.UnsetType = msgspec.UNSET  # names a bundle's tool instead of `name`: see `App.call`
    called_via: str | msgspec.UnsetType = msgspec.UNSET  # the tool that passed on this call: `ot.call`


def is_seconds(value: Any) -> bool:
    """Return whether the value is a valid time limit. NaN is not: it would break the timers of the event loop."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


MAX_RETRIES = 10


def is_retries(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_RETRIES


class WrongArgument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One wrong argument: its path, the expected and the actual value, and a hint such as a similar name."""

    path: Annotated[str, Meta(description="The argument's path in dotted form: `options.limit[0]`.")]
    expected: str
    got: str
    hint: str | None = None
    pointer: Annotated[str, Meta(description="The same path as a JSON pointer: `/options/limit/0`.")] = ""

    def __str__(self) -> str:
        text = f"{self.path}: {self.got}" if self.path else self.got
        if self.expected:
            text = f"{self.path or 'value'}: expected {self.expected}, got {self.got}"
        return f"{text} ({self.hint})" if self.hint else text


class ToolError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The failure of a call. `reason` may be more specific than `code`."""

    code: Annotated[Code, Meta(description="The kind of failure. `reason` may have a more specific cause.")]
    message: str
    reason: Annotated[str | None, Meta(description="timeout, denied, rate_limited … or the tool's own.")] = None
    hints: Annotated[tuple[str, ...], Meta(description="What the caller can do.")] = ()
    details: Annotated[tuple[WrongArgument, ...], Meta(description="The wrong arguments, for `invalid_args`.")] = ()
    needs: Annotated[tuple[Need, ...], Meta(description="What has to be allowed or set for the call to work.")] = ()

    def cleaned(self, clean: Callable[[Any], Any]) -> "ToolError":
        """Return a copy with secrets masked in every string."""
        return msgspec.convert({**clean(msgspec.to_builtins(self)), "code": self.code}, ToolError)

    def shortened(self) -> "ToolError":
        """Return a copy with a message of limited length."""
        return msgspec.structs.replace(self, message=shorten_message(self.message))


def wrong_arguments(tool: object) -> str:
    """Return the prefix of the message for a call with wrong arguments."""
    return f"Invalid arguments for {tool}:"


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one call: `data` on success, `error` on failure. `meta` has tool, source and duration_ms."""

    ok: bool
    data: Any = None
    error: ToolError | None = None
    meta: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])

    def cleaned(self, clean: Callable[[Any], Any]) -> Self:
        """Return a copy with secrets masked, for records."""
        return msgspec.structs.replace(self, data=clean(self.data), error=self.error and self.error.cleaned(clean))

    def value(self) -> Any:
        """Return the data. Raises ToolFailure for a failed call: RefusedArguments if the arguments were wrong."""
        if self.error is not None:
            kind = RefusedArguments if self.error.code == "invalid_args" else ToolFailure
            raise kind(
                self.whole_message or self.raised,
                reason=self.error.reason,
                hints=self.error.hints,
                needs=self.error.needs,
            )
        return self.data

    @property
    def whole_message(self) -> str:
        """The tool's whole message if `error` has only its beginning and end, else an empty string."""
        return ""

    @property
    def raised(self) -> str:
        """The message of the exception that is raised in code.

        A handler's own message about its arguments comes without the prefix that names the tool: the code names the
        tool itself.
        """
        return "" if self.error is None else self._in_code(self.error.message)

    def _in_code(self, message: str) -> str:
        if self.error is None or self.error.code != "invalid_args" or self.error.details:
            return message
        return message.removeprefix(f"{wrong_arguments(self.meta.get('tool'))} ")

    def plain(self) -> "ToolResult":
        """Return the result without the parts that are not for JSON."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON types, for printing and for the wire."""
        return msgspec.to_builtins(self)


class LongFailure(ToolResult, frozen=True, kw_only=True):
    """A failure whose message is shortened. `text` is the whole message, with secrets masked."""

    text: str

    @property
    def whole_message(self) -> str:
        return self._in_code(self.text)

    def cleaned(self, clean: Callable[[Any], Any]) -> Self:
        return msgspec.structs.replace(super().cleaned(clean), text=clean(self.text))

    def plain(self) -> ToolResult:
        return ToolResult(ok=self.ok, data=self.data, error=self.error, meta=self.meta)

    def to_dict(self) -> dict[str, Any]:
        return self.plain().to_dict()


class ServerResult(ToolResult, frozen=True, kw_only=True):
    """A result or error from an MCP server. `sent` returns the server's original answer, with secrets masked.

    The MCP interface uses `sent`; all others use the plain result.
    """

    sent: Callable[[], ServerAnswer]

    @property
    def whole_message(self) -> str:
        if self.error is None:
            return ""
        whole = "\n".join(block["text"] for block in self.sent().content if block["type"] == "text").strip()
        return whole[:MAX_WHOLE_MESSAGE] if len(whole) > MAX_MESSAGE else ""

    def cleaned(self, clean: Callable[[Any], Any]) -> Self:
        sent = self.sent
        return msgspec.structs.replace(super().cleaned(clean), sent=lambda: ServerAnswer(*clean([*sent()])))

    def plain(self) -> ToolResult:
        return ToolResult(ok=self.ok, data=self.data, error=self.error, meta=self.meta)

    def to_dict(self) -> dict[str, Any]:
        return self.plain().to_dict()


# A page of a large result


class Next(TypedDict):
    """The position at which a truncated page continues."""

    offset: int
    column: int


class Page(TypedDict):
    """Some lines of a result.

    `total_lines` counts all lines of the result; `has_more` refers to the requested lines.
    """

    lines: list[str]
    numbers: NotRequired[list[int]]  # for a search: the line numbers of the matches
    total_lines: int
    returned: int
    offset: int
    column: NotRequired[int]  # the offset into the first line, if not 0
    has_more: bool
    cut: NotRequired[bool]  # the page was truncated …
    next: NotRequired[Next]  # … and continues here


# Ids, unique across processes

_process = urandom(8).hex()
_numbers = count(1)


def new_id() -> str:
    return f"{_process}-{next(_numbers)}"


# The caller

Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the caller. `key` distinguishes the questions of one call."""

    key: str


class ForPerson(Question, frozen=True, kw_only=True):
    """A form: a message, and the schema of the requested object. The answer is that object."""

    message: str
    schema: Mapping[str, Any]


class ForModel(Question, frozen=True, kw_only=True):
    """Messages for the client's model. The answer is the model's text."""

    messages: tuple[Mapping[str, Any], ...]
    max_tokens: int
    system: str | None = None


class ForRoots(Question, frozen=True, kw_only=True):
    """A request for the folders and files that the client works on. The answer is a list."""


class CannotAsk(ToolFailure):
    """The caller can't answer this kind of question. `capability` is the missing capability."""

    def __init__(self, capability: str, message: str) -> None:
        super().__init__(message, reason="cannot_ask")
        self.capability = capability


class Declined(ToolFailure):
    """The user declined or cancelled."""

    def __init__(self, action: str) -> None:
        super().__init__(f"the person {'declined' if action == 'decline' else 'cancelled'}", reason="declined")
        self.action = action


class Pauses(msgspec.Struct, eq=False):
    """The total time that a call has waited for its caller. Updated on the event loop, read by any thread.

    While a call waits, the clocks of the calls that made it stop, too; the clocks of parallel calls continue. Callbacks
    get True when a pause begins and False when it ends: a slot that is held by the call can be used by others during
    the pause.
    """

    _outer: "Pauses | None" = None
    _total: float = 0.0
    _since: float = 0.0
    _depth: int = 0
    _callbacks: list[Callable[[bool], None]] = msgspec.field(default_factory=list[Callable[[bool], None]])

    def waited(self) -> float:
        return self._total + (monotonic() - self._since if self._depth else 0.0)

    @contextmanager
    def notifying(self, callback: Callable[[bool], None]) -> Generator[None]:
        """Call the function when pauses begin and end, within this context."""
        self._callbacks.append(callback)
        if self._depth:
            callback(True)
        try:
            yield
        finally:
            self._callbacks.remove(callback)
            if self._depth:
                callback(False)

    def __enter__(self) -> None:
        if self._depth == 0:
            self._since = monotonic()
            for callback in self._callbacks:
                callback(True)
        self._depth += 1
        if self._outer is not None:
            self._outer.__enter__()

    def __exit__(self, *_: object) -> None:
        if self._outer is not None:
            self._outer.__exit__()
        if self._depth == 1:
            self._total, self._since = self._total + monotonic() - self._since, monotonic()  # before `_depth` is 0
        self._depth -= 1
        if self._depth == 0:
            for callback in self._callbacks:
                callback(False)


class Caller(Protocol):
    """The channel from a running call to its caller, for questions and messages."""

    def can(self, what: str) -> bool:
        """Return whether the caller has a capability: elicitation, sampling, roots, or the ID of an extension."""
        ...

    def lacks(self, error: CannotAsk) -> None:
        """Record a capability that a tool needed and the caller lacks, for the reply."""

    def log(self, level: Level, data: Any, logger: str | None) -> None: ...

    async def ask(self, question: Question) -> Any:
        """Ask the caller a question, and return the answer. Raises CannotAsk, Declined, or another ToolFailure."""
        ...


current_caller: ContextVar[Caller | None] = ContextVar("onetool_current_caller", default=None)


def client_name() -> str:
    """Return the client's name; empty for users of the command line, Python code, and clients that sent no name."""
    caller = current_caller.get()
    return "" if caller is None else getattr(caller, "client_name", "")


def can_run() -> bool:
    """Return whether the caller can run code."""
    return getattr(current_caller.get(), "can_run", True)
