"""CallContext, a context variable with the call that is running now, and the events that are recorded when calls end.

The executor sets the context around every handler and the SDK reads it. It is a context variable and not a global, so
that concurrent calls each see their own, also in threads, and code outside of any call sees none.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
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
"""Told how far a call has come: done, of how many (if known), and what it is doing."""

Gate = Callable[[ToolCall, ToolSpec], Awaitable[ToolFailure | None]]
"""Asked before a call is carried out that could be, where somebody wants to be: None lets it pass."""


class CallWatch(Protocol):
    """Told of each call that the code of a run makes, in any thread: it must be quick and must not raise."""

    def began(self, call: ToolCall) -> None: ...
    def ended(self, call: ToolCall, result: ToolResult) -> None: ...


class ToolLookup(Protocol):
    """Where the executor finds tools: a registry, a snapshot of one, or a single tool."""

    def get(self, name: str) -> ToolSpec | None: ...
    def names(self) -> Collection[str]: ...


class CallTool(Protocol):
    """The way in for every call: `App.call`, or `Executor.execute` where there is no app."""

    async def __call__(
        self,
        call: ToolCall,
        allowed: Collection[str] | None = None,
        progress: Progress | None = None,
        *,
        tools: ToolLookup | None = None,
        gate: Gate | None = None,
        for_tool: bool = False,
    ) -> ToolResult: ...


class Environment(Protocol):
    """What a running tool can use of the app: the settings and secrets of its pack, and other tools."""

    def settings(self, pack: str) -> Mapping[str, Any]: ...
    def secret(self, name: str) -> str | None: ...
    def redact(self, value: Any, sent: Any = None) -> Any: ...
    def snapshot(self) -> Snapshot: ...

    async def call_tool(self, call: ToolCall) -> ToolResult:
        """Call another tool for a function of a pack. The value isn't masked."""
        ...


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """One running call: its tool, its caller, its deadline, and what it may use."""

    spec: ToolSpec
    call: ToolCall
    environment: Environment | None = None
    tools: Snapshot | None = None  # the catalogue that its caller began with, where that is not the one of now
    chain: tuple[str, ...] = ()  # the tools that called each other until here, this one last
    seconds: float = float("inf")  # how long it may take …
    deadline: float = float("inf")  # … and until when that is, on the clock of time.monotonic
    pauses: Pauses | None = None  # time that does not count; none where there is nobody to wait for
    allowed: Collection[str] | None = None
    outer_args: Mapping[str, Any] | None = None  # the arguments of the tool whose function made this call, if one did
    progress: Progress | None = None
    run: str | None = None  # the id of the run that this is, if it is one: what its code calls is counted to it
    gate: Gate | None = None  # of a run: what its code calls has to pass; not what tools call in their turn
    watch: CallWatch | None = None  # of a run: told of the same calls
    loop: Any = None  # the event loop that async tools of this chain of calls run on
    retries: int = 0  # further tries, if its handler fails
    span: str = ""  # the id of its span in the trace of the request
    notes: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])  # what the meta of its result says beside

    @property
    def in_code(self) -> bool:
        """Whether code of a run has made this call, or one that led to it."""
        return "run" in self.chain

    def left(self) -> float:
        paused = 0.0 if self.pauses is None else self.pauses.waited()
        return self.deadline + paused - monotonic()


current_call: ContextVar[CallContext | None] = ContextVar("onetool_current_call", default=None)


def note_call(key: str, value: Any) -> None:
    """Say something of the running call in the meta of its result."""
    if (context := current_call.get()) is not None:
        context.notes[key] = value


def begin_span(name: str) -> Span | None:
    """Begin the span of a request that the running call sends to another system; None where no spans are exported."""
    if (trace := current_trace.get()) is None or trace.record_span is None:
        return None
    context = current_call.get()
    return Span(name, trace, trace.record_span, trace.span_id if context is None else context.span)


def paused_for_caller() -> AbstractContextManager[None]:
    """Return a context in which the running call waits for its caller and its time does not count."""
    context = current_call.get()
    return nullcontext() if context is None or context.pauses is None else context.pauses


# Events


class CallEvent(msgspec.Struct, frozen=True):
    """One call that ended: a span named after the tool. It holds nothing that others could still change."""

    id: str
    tool: str
    source: str
    spec: ToolSpec | None
    args: bytes  # as sorted JSON. They may have secrets: to be hashed, or to be shown as by `shown_args`
    bytes_in: int
    bytes_out: int  # of the value as its caller gets it, or of the error
    duration_ms: float
    error: ToolError | None
    client: str  # the program that called, where it has said its name
    run: str | None  # the run whose code called; none for what tools call in their turn
    principal: Principal  # who called …
    address: str  # … and from where, over HTTP
    value: Any = None  # of a tool whose return type is learned: only the names and types in it are looked at
    trace: RequestTrace | None = None  # the request that it belongs to …
    span: str = ""  # … its own span there …
    parent: str = ""  # … and that of the call, the run or the request that made it
    ended_at: float = msgspec.field(default_factory=time)  # seconds since 1970
    is_wrapper: bool = False  # `ot.call` around another call: counted in the usage, but not a call of its own

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
    ) -> "CallEvent":
        """Measure the arguments and the value now: a pack may change them when the call is over."""
        args, bytes_in = sorted_json(call.args)
        bytes_out = size_of(value if error is None else error)
        # Clients may have sent a credential in place of a name.
        name = call.name if spec is not None else mask_credentials(call.name)
        observed = None if error is not None or spec is None else spec.observed
        learns = observed is not None and observed.learns_from(principal.lasting_owner)
        rest = (client, run, principal, address, value if learns else None, trace, span, parent)
        return cls(call.id, name, call.source, spec, args, bytes_in, bytes_out, duration_ms, error, *rest)

    @property
    def ok(self) -> bool:
        return self.error is None

    def shown_args(self) -> Mapping[str, Any]:
        """Return the arguments as a record may show them. Computed when asked for: most calls are only counted."""
        try:
            args: Any = msgspec.json.decode(self.args or b"{}")
        except msgspec.DecodeError:  # half of a surrogate pair, which JSON can have
            import json

            args = json.loads(self.args)
        return shown_args(ToolCall(self.id, self.tool, args, self.source), self.spec)


def shown_args(call: ToolCall, spec: ToolSpec | None) -> Mapping[str, Any]:
    """Return the arguments of a call as others may see them.

    Of an unknown tool or argument nobody knows whether it is secret, so it is not shown.
    """
    args: Any = call.args
    if spec is None or not isinstance(args, Mapping):
        return {}
    properties: Mapping[str, Any] = spec.input_schema.get("properties") or {}
    known = {name: value if name in properties else MASK for name, value in call.args.items()}
    return mask_arguments(known, spec.secrets)


def kept_value(value: Any, args: Any, spec: ToolSpec | None) -> Any:
    """Return the value of a call as it may be kept or shown to others: without the secrets among its arguments."""
    return mask_values(value, secret_values(args, frozenset() if spec is None else spec.secrets))


class RunEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One finished run. Each of its calls has an event of its own, with the id of the run."""

    id: str
    door: str
    client: str = ""
    duration_ms: float
    code_bytes: int  # of the code, as it was sent
    code: str = ""  # itself: to be hashed, and never to be kept
    calls: int = 0
    made: str = ""  # what its calls came to, if it was cancelled: names of tools, and how often
    error: ToolError | None = None  # as its caller gets it: only its code is to be kept
    principal: Principal = LOCAL  # who called …
    address: str = ""  # … and from where, over HTTP
    trace: RequestTrace | None = None  # as of a CallEvent
    span: str = ""
    parent: str = ""
    ended_at: float = msgspec.field(default_factory=time)


class RequestEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request that has ended."""

    method: str
    route: str = ""  # a path of ours; empty if there is none
    status: int
    seconds: float
    ended_at: float = msgspec.field(default_factory=time)  # seconds since 1970
    mcp: str = ""  # the method of MCP, where it is such a message, as the client wrote it
    trace: RequestTrace | None = None


Recorder = Callable[[CallEvent], None]
"""Called once for every call, on the event loop: it must be quick and must not raise."""

RunRecorder = Callable[[RunEvent], None]
"""The same for every run."""

Journal = Callable[[ToolCall], Callable[[], None] | None]
"""Asked for every call that would be carried out. What it gives is run first, in a thread: if that raises, nothing is
called. None: there is nothing to do first."""

RunJournal = Callable[[RunEvent], Callable[[], None] | None]
"""The same for every run, whose event has no outcome yet."""
