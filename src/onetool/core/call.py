"""A call: ToolCall and ToolResult, the input and the output of the executor, and Caller, who is at the other end.

All interfaces make the same of a call. Where the caller can be talked to while the call runs, as a client of ours or a
terminal can, a handler may ask: the person, the model behind the client, or which folders the client works in. How a
question travels is the interface's business; what it is, is said here. Time spent waiting for an answer counts for
nobody.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from os import urandom  # not `secrets`, which takes longer to load than most of us
from time import monotonic
from typing import Annotated, Any, Literal, NotRequired, Protocol, Self, TypedDict

import msgspec
from msgspec import Meta

from onetool.core.errors import Need, RefusedArguments, ToolFailure
from onetool.core.json_data import ServerAnswer

Code = Literal["tool_not_found", "invalid_args", "execution_error"]


ToolVersion = tuple[str, str, str]
"""The ID of a bundle, the slug of a tool in it, and a version. It may have no name in code."""


DRAFT = "draft"  # the source of a call that tries a tool which is not stored: logged and audited, counted nowhere


class ToolCall(msgspec.Struct, frozen=True):
    """A request to run a tool. `source` is the interface that the call came through.

    As JSON it has `id`, `name`, `args` and `source`: the others are left out unless they are set.
    """

    id: str
    name: str
    args: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    source: str = "python"
    timeout: float | msgspec.UnsetType | None = msgspec.UNSET  # seconds, if the caller wants another deadline
    version: ToolVersion | msgspec.UnsetType = msgspec.UNSET  # of a bundle's tool: `App.call` finds its name
    called_via: str | msgspec.UnsetType = msgspec.UNSET  # the tool that code named this one to: `ot.call`


def is_seconds(value: Any) -> bool:
    """Return whether the value can be a time limit. NaN is refused: it would break the timers of the event loop."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


MAX_RETRIES = 10


def is_retries(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_RETRIES


class WrongArgument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One wrong argument: where it is, what was expected, what came, and what may have been meant."""

    path: Annotated[str, Meta(description="As a person writes it: `options.limit[0]`.")]
    expected: str
    got: str
    hint: str | None = None
    pointer: Annotated[str, Meta(description="JSON pointer into the arguments: `/options/limit/0`.")] = ""

    def __str__(self) -> str:
        text = f"{self.path}: {self.got}" if self.path else self.got
        if self.expected:
            text = f"{self.path or 'value'}: expected {self.expected}, got {self.got}"
        return f"{text} ({self.hint})" if self.hint else text


class ToolError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a call failed. `code` is one of three; a finer cause goes into `reason`."""

    code: Annotated[Code, Meta(description="One of three. The finer cause is in `reason`.")]
    message: str
    reason: Annotated[str | None, Meta(description="timeout, denied, rate_limited … or the tool's own.")] = None
    hints: Annotated[tuple[str, ...], Meta(description="What could be done about it.")] = ()
    details: Annotated[tuple[WrongArgument, ...], Meta(description="Of `invalid_args`: each wrong argument.")] = ()
    needs: Annotated[tuple[Need, ...], Meta(description="What has to be allowed or set before it can work.")] = ()

    def cleaned(self, clean: Callable[[Any], Any]) -> "ToolError":
        """Return a copy with secrets masked in every text."""
        return msgspec.convert({**clean(msgspec.to_builtins(self)), "code": self.code}, ToolError)


def wrong_arguments(tool: object) -> str:
    """Return the beginning of the message for a call with wrong arguments."""
    return f"Invalid arguments for {tool}:"


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one call: `data` when ok, `error` when not. `meta` has tool, source and duration_ms."""

    ok: bool
    data: Any = None
    error: ToolError | None = None
    meta: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])

    def cleaned(self, clean: Callable[[Any], Any]) -> Self:
        """Return a copy with secrets masked, for records."""
        return msgspec.structs.replace(self, data=clean(self.data), error=self.error and self.error.cleaned(clean))

    def value(self) -> Any:
        """Return the data. Raises ToolFailure for an error: RefusedArguments where the arguments were wrong."""
        if self.error is not None:
            kind = RefusedArguments if self.error.code == "invalid_args" else ToolFailure
            raise kind(self.raised, reason=self.error.reason, hints=self.error.hints, needs=self.error.needs)
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
        """Return the result as JSON types, for printing and for the wire."""
        return msgspec.to_builtins(self)


class ServerResult(ToolResult, frozen=True, kw_only=True):
    """The result or the error of an MCP server. `sent` gives its answer as it came, with secrets masked.

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


# A page of a large result


class Next(TypedDict):
    """Where a page that was cut goes on."""

    offset: int
    column: int


class Page(TypedDict):
    """Some lines of a result. `total_lines` counts all that there are, `has_more` means those that were asked for."""

    lines: list[str]
    numbers: NotRequired[list[int]]  # of a search: which lines of the result these are
    total_lines: int
    returned: int
    offset: int
    column: NotRequired[int]  # where the first line begins, unless that is its beginning
    has_more: bool
    cut: NotRequired[bool]  # it was too large to be sent …
    next: NotRequired[Next]  # … and goes on here


# Ids, unique across processes

_process = urandom(8).hex()
_numbers = count(1)


def new_id() -> str:
    return f"{_process}-{next(_numbers)}"


# Whoever is at the other end

Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the caller. `key` distinguishes the questions of one call."""

    key: str


class ForPerson(Question, frozen=True, kw_only=True):
    """A form: a message, and the schema of the object that is wanted. The answer is that object."""

    message: str
    schema: Mapping[str, Any]


class ForModel(Question, frozen=True, kw_only=True):
    """Messages for the model behind the client. The answer is its text."""

    messages: tuple[Mapping[str, Any], ...]
    max_tokens: int
    system: str | None = None


class ForRoots(Question, frozen=True, kw_only=True):
    """Which folders and files the client works on. The answer is a list of them."""


class CannotAsk(ToolFailure):
    """The caller has no way to answer such a question. `capability` is what it lacks."""

    def __init__(self, capability: str, message: str) -> None:
        super().__init__(message, reason="cannot_ask")
        self.capability = capability


class Declined(ToolFailure):
    """The person said no, or nothing."""

    def __init__(self, action: str) -> None:
        super().__init__(f"the person {'declined' if action == 'decline' else 'cancelled'}", reason="declined")
        self.action = action


class Pauses(msgspec.Struct, eq=False):
    """The total time that a call has waited for its caller. Updated on the event loop, read by any thread.

    A call that waits holds up those that called it, so that the clocks of all of these stand still; what runs beside it
    goes on. Callbacks are for holders of things that others could use meanwhile: they get True when a pause begins, and
    False when it ends.
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
            self._total, self._since = self._total + monotonic() - self._since, monotonic()  # before it counts no more
        self._depth -= 1
        if self._depth == 0:
            for callback in self._callbacks:
                callback(False)


class Caller(Protocol):
    """What a running call can do with the one who made it."""

    def can(self, what: str) -> bool:
        """Return whether the caller has a capability: elicitation, sampling, roots, or an extension by its id."""
        ...

    def lacks(self, error: CannotAsk) -> None:
        """Record a capability that a tool wanted and the caller lacks, for the reply."""
        ...

    def log(self, level: Level, data: Any, logger: str | None) -> None: ...

    async def ask(self, question: Question) -> Any:
        """Return the answer. Raises CannotAsk, Declined, or another ToolFailure."""
        ...


current_caller: ContextVar[Caller | None] = ContextVar("onetool_current_caller", default=None)


def client_name() -> str:
    """Return the client's own name; empty for people, Python code, and clients that did not give one."""
    caller = current_caller.get()
    return "" if caller is None else getattr(caller, "client_name", "")


def can_run() -> bool:
    """Return whether the caller can run code."""
    return getattr(current_caller.get(), "can_run", True)
