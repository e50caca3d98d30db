"""CallContext, a context variable with the running call, and the events that are recorded when calls end.

The executor sets the context around every handler, and the SDK reads it. With a context variable, concurrent calls each
see their own context, even in threads, and code outside of a call sees none.
"""

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from time import monotonic, time
from typing import Any, Protocol

import msgspec

from onetool.core.call import Pauses, ToolCall, ToolError, ToolResult
from onetool.core.errors import ToolFailure
from onetool.core.json_data import size_of, sorted_json
from onetool.core.principal import LOCAL, Principal
from onetool.core.redaction import MASK, mask_arguments, mask_credentials, mask_values, secret_values
from onetool.core.registry import Snapshot
from onetool.core.spec import ToolSpec
from onetool.core.trace import RequestTrace, Span, current_trace

Progress = Callable[[float, float | None, str | None], None]
"""Receives the progress of a call: steps done, total steps (if known), and a message."""

Gate = Callable[[ToolCall, ToolSpec], Awaitable[ToolFailure | None]]
"""Decides on a valid call before its handler runs: None lets the call pass."""


class CallWatch(Protocol):
    """A watcher of the calls that the code of a run makes, in any thread.

    Its methods must be quick and must not raise.
    """

    def began(self, call: ToolCall) -> None: ...
    def ended(self, call: ToolCall, result: ToolResult) -> None: ...


class ToolLookup(Protocol):
    """A source of tools for the executor: a registry, a snapshot of one, or a single tool."""

    def get(self, name: str) -> ToolSpec | None: ...
    def names(self) -> Collection[str]: ...


class CallTool(Protocol):
    """The entry point of every call: `App.call`, or `Executor.execute` without an app."""

    def __call__(
        self,
        call: ToolCall,
        allowed: Collection[str] | None = None,
        progress: Progress | None = None,
        *,
        tools: ToolLookup | None = None,
        gate: Gate | None = None,
        for_tool: bool = False,
    ) -> Coroutine[Any, Any, ToolResult]: ...


class Environment(Protocol):
    """The parts of the app that a running tool can use: the settings and secrets of its pack, and other tools."""

    def settings(self, pack: str) -> Mapping[str, Any]: ...
    def secret(self, name: str) -> str | None: ...
    def redact(self, value: Any, sent: Any = None) -> Any: ...
    def snapshot(self) -> Snapshot: ...

    async def call_tool(self, call: ToolCall) -> ToolResult:
        """Call another tool for a function of a pack. The value isn't masked."""
        ...


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """One running call: its tool, its arguments, its deadline and its limits."""

    spec: ToolSpec
    call: ToolCall
    environment: Environment | None = None
    tools: Snapshot | None = None  # the caller's catalogue, if it is not the current one
    chain: tuple[str, ...] = ()  # the nested tools, outermost first
    seconds: float = float("inf")  # the timeout …
    deadline: float = float("inf")  # … and the deadline, in terms of time.monotonic
    pauses: Pauses | None = None  # waiting time that does not count; None without a caller to wait for
    allowed: Collection[str] | None = None
    outer_args: Mapping[str, Any] | None = None  # the arguments of the tool that made this call, if any
    progress: Progress | None = None
    run: str | None = None  # the run's ID, if this call is a run
    gate: Gate | None = None  # for a run: checks the calls of its code, but not the calls that tools make
    watch: CallWatch | None = None  # for a run: sees the same calls
    loop: Any = None  # the event loop that async tools of this chain of calls run on
    retries: int = 0  # further attempts after a failure
    span: str = ""  # the call's span ID in the request's trace
    notes: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])  # additions to the result's meta

    @property
    def in_code(self) -> bool:
        """Whether the code of a run made this call, directly or through other tools."""
        return "run" in self.chain

    def left(self) -> float:
        paused = 0.0 if self.pauses is None else self.pauses.waited()
        return self.deadline + paused - monotonic()


STARTUP = "startup_ms"  # in the `meta` of a result: how long the call waited for its server to start
SENT_TO = "sent_to"  # in the notes of a trial: the hosts of its requests
UPSTREAM = "upstream"  # in the `meta` of an HTTP tool's result: status, time and size of the last response

current_call: ContextVar[CallContext | None] = ContextVar("onetool_current_call", default=None)


def note_call(key: str, value: Any) -> None:
    """Add an entry to the meta of the running call's result."""
    if (context := current_call.get()) is not None:
        context.notes[key] = value


def note_startup(seconds: float) -> None:
    """Add the time that the running call has waited for its server to start, which is not part of its duration."""
    if (context := current_call.get()) is not None:
        context.notes[STARTUP] = round(context.notes.get(STARTUP, 0.0) + seconds * 1000, 3)


def add_note(key: str, value: Any) -> None:
    """Add a value to a list in the running call's notes, once."""
    if (context := current_call.get()) is not None:
        values = context.notes.setdefault(key, [])
        if value not in values:
            values.append(value)


def begin_span(name: str) -> Span | None:
    """Begin the span of a request to another system for the running call. Return None if spans are not exported."""
    if (trace := current_trace.get()) is None or trace.record_span is None:
        return None
    context = current_call.get()
    return Span(name, trace, trace.record_span, trace.span_id if context is None else context.span)


def paused_for_caller() -> AbstractContextManager[None]:
    """Return a context in which the running call waits for its caller, and time does not count."""
    context = current_call.get()
    return nullcontext() if context is None or context.pauses is None else context.pauses


# Events


class CallEvent(msgspec.Struct, frozen=True):
    """A finished call: a span named after the tool. All parts are immutable."""

    id: str
    tool: str
    source: str
    spec: ToolSpec | None
    args: bytes  # as sorted JSON; may contain secrets, so hash them or use `shown_args`
    bytes_in: int
    bytes_out: int  # of the value as the caller gets it, or of the error
    duration_ms: float
    error: ToolError | None
    client: str  # the calling program's name, if it sent one
    run: str | None  # the run whose code made the call; None for calls made by tools
    principal: Principal  # the caller …
    address: str  # … and its address, over HTTP
    value: Any = None  # for tools whose return type is inferred: only names and types are read
    trace: RequestTrace | None = None  # the call's request …
    span: str = ""  # … the call's span …
    parent: str = ""  # … and the parent span: a call, a run or the request
    ended_at: float = msgspec.field(default_factory=time)  # seconds since 1970
    hosts: tuple[str, ...] = ()  # for a trial: the hosts of its requests
    is_wrapper: bool = False  # `ot.call` around another call: counted in the usage, but not as a call

    @classmethod
    def of(
        cls,
        call: ToolCall,
        value: Any = None,
        error: ToolError | None = None,
        spec: ToolSpec | None = None,
        duration_ms: float = 0.0,
        client: str = "",
        run: str | None = None,
        principal: Principal = LOCAL,
        address: str = "",
        trace: RequestTrace | None = None,
        span: str = "",
        parent: str = "",
        hosts: tuple[str, ...] = (),
    ) -> "CallEvent":
        """Create an event.

        The arguments and the value are measured immediately, because a pack may change them after the call.
        """
        args, bytes_in = sorted_json(call.args)
        bytes_out = size_of(value if error is None else error)
        # Clients may have sent a credential in place of a name.
        name = call.name if spec is not None else mask_credentials(call.name)
        observed = None if error is not None or spec is None else spec.observed
        learns = observed is not None and observed.learns_from(principal.lasting_owner)
        rest = (client, run, principal, address, value if learns else None, trace, span, parent)
        return cls(call.id, name, call.source, spec, args, bytes_in, bytes_out, duration_ms, error, *rest, hosts=hosts)

    @property
    def ok(self) -> bool:
        return self.error is None

    def shown_args(self) -> Mapping[str, Any]:
        """Return the arguments with secrets masked. Computed on demand, because most calls are only counted."""
        try:
            args: Any = msgspec.json.decode(self.args or b"{}")
        except msgspec.DecodeError:  # a lone surrogate, which is valid JSON
            import json

            args = json.loads(self.args)
        return shown_args(ToolCall(self.id, self.tool, args, self.source), self.spec)


def shown_args(call: ToolCall, spec: ToolSpec | None) -> Mapping[str, Any]:
    """Return the arguments of a call with secrets masked.

    Arguments of unknown tools and unknown arguments may be secret, so they are masked.
    """
    args: Any = call.args
    if spec is None or not isinstance(args, Mapping):
        return {}
    properties: Mapping[str, Any] = spec.input_schema.get("properties") or {}
    known = {name: value if name in properties else MASK for name, value in call.args.items()}
    return mask_arguments(known, spec.secrets)


def kept_value(value: Any, args: Any, spec: ToolSpec | None) -> Any:
    """Return the value of a call without the secrets among its arguments, for storing or showing it to others."""
    return mask_values(value, secret_values(args, frozenset() if spec is None else spec.secrets))


class RunEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run. Each of its calls has an event of its own, with the run's ID."""

    id: str
    source: str
    client: str = ""
    duration_ms: float
    code_bytes: int  # of the code as sent
    code: str = ""  # only for hashing, never stored
    calls: int = 0
    made: str = ""  # for a cancelled run: the tools called, with counts
    error: ToolError | None = None  # as the caller gets it; only its code is stored
    principal: Principal = LOCAL  # the caller …
    address: str = ""  # … and its address, over HTTP
    trace: RequestTrace | None = None  # as in CallEvent
    span: str = ""
    parent: str = ""
    ended_at: float = msgspec.field(default_factory=time)


class RequestEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A finished HTTP request."""

    method: str
    route: str = ""  # the matching route; empty if there is none
    status: int
    seconds: float
    ended_at: float = msgspec.field(default_factory=time)  # seconds since 1970
    mcp: str = ""  # the MCP method as the client sent it, for MCP messages
    trace: RequestTrace | None = None


Recorder = Callable[[CallEvent], None]
"""Called once for every finished call, on the event loop: it must be quick and must not raise."""

RunRecorder = Callable[[RunEvent], None]
"""Called once for every finished run, under the same rules."""

Journal = Callable[[ToolCall], Callable[[], None] | None]
"""Called before every permitted call. The function that it returns, if any, runs in a thread before the handler; if
that function raises, the call fails and the handler does not run.
"""

RunJournal = Callable[[RunEvent], Callable[[], None] | None]
"""The same for runs. The event has no outcome yet."""
