"""`RequestTrace`: the request and trace IDs that correlate logs, audit records, errors and spans.

A client may send a request ID (`X-Request-Id`) and a trace context (W3C `traceparent`, `tracestate`). Missing and
invalid ones are generated. `own_id` is always generated: two requests never share it, whatever clients send.
"""

import os
import re
from collections.abc import Callable
from contextvars import ContextVar
from random import Random
from time import perf_counter, time
from typing import Self

import msgspec

from onetool.core.principal import current_principal

MAX_STATE = 512  # bytes of a `tracestate`, as W3C recommends

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_TRACEPARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE = re.compile(rb"[\x20-\x7e]{1,%d}" % MAX_STATE)
_random = Random()  # noqa: S311 - ids are no secrets. Not the module's generator: packs may seed that
os.register_at_fork(after_in_child=_random.seed)


class RequestTrace(msgspec.Struct, frozen=True):
    """The IDs of one request. Trace and span IDs are hexadecimal."""

    request_id: str  # the client's, else `own_id`
    own_id: str
    trace_id: str  # the client's, else a new one
    span_id: str  # of this request
    parent_id: str = ""  # the client's span
    flags: str = "00"  # 01: the client records this trace
    state: str = ""  # `tracestate`, which other systems read
    record_span: "RecordSpan | None" = None  # set if spans are exported: the trace continues in other systems

    def traceparent(self, span_id: str = "") -> str:
        """Return the header for an outgoing request made by this request or by one of its spans."""
        return f"00-{self.trace_id}-{span_id or self.span_id}-{self.flags}"

    def log_fields(self) -> dict[str, str]:
        """Return the fields for log lines. `own_id` is included if the client chose the request ID."""
        own = {} if self.own_id == self.request_id else {"own_id": self.own_id}
        return {"request_id": self.request_id, **own, "trace_id": self.trace_id}


current_trace: ContextVar[RequestTrace | None] = ContextVar("onetool_current_trace", default=None)
"""The request of the current task; None on the command line and in Python code."""


def begin_trace(
    request_id: bytes | None = None,
    traceparent: bytes | None = None,
    tracestate: bytes | None = None,
    record_span: "RecordSpan | None" = None,
) -> RequestTrace:
    """Return the IDs of a new request. The first parameters are the client's headers."""
    made = _random.getrandbits(288).to_bytes(36, "big").hex()  # faster than formatting the number
    own_id, trace_id, span_id = made[:24], made[24:56], made[56:]
    chosen = own_id if request_id is None or not _REQUEST_ID.fullmatch(request_id) else request_id.decode()
    found = None if traceparent is None else _TRACEPARENT.fullmatch(traceparent.strip())
    if found is None or (found[1] == b"00" and found[5]):  # version 00 has four parts
        flags = "00" if record_span is None else "01"
        ids = (chosen, own_id, trace_id, span_id)
        return RequestTrace(*ids, flags=flags, record_span=record_span)
    return RequestTrace(
        request_id=chosen,
        own_id=own_id,
        trace_id=found[2].decode(),
        span_id=span_id,
        parent_id=found[3].decode(),
        flags=f"{int(found[4], 16) & 1:02x}",
        state=tracestate.decode() if tracestate is not None and _STATE.fullmatch(tracestate) else "",
        record_span=record_span,
    )


def request_id() -> str | None:
    """Return the ID of the current request, for error responses; None outside of requests."""
    return None if (trace := current_trace.get()) is None else trace.request_id


def new_span_id() -> str:
    return f"{_random.getrandbits(64):016x}"


class Span:
    """A span of a call or run outside of this process: a request to another system, or code in the sandbox. The span
    begins when the object is created, and is recorded at the end of its `with` block.

    Attributes are names, sizes and outcomes: never arguments or values.
    """

    def __init__(
        self, name: str, trace: RequestTrace, record: "RecordSpan", parent: str, id: str = "", is_client: bool = True
    ) -> None:
        self.name, self.trace, self.parent, self.is_client = name, trace, parent, is_client
        self.span = id or new_span_id()
        self.attributes: dict[str, str | int] = {}
        self.caller = current_principal.get().caller
        self.seconds = self.ended_at = 0.0
        self._record = record
        self._began = perf_counter()

    def headers(self) -> list[tuple[str, str]]:
        """Return the W3C trace context headers for the request of this span."""
        state = [("tracestate", self.trace.state)] if self.trace.state else []
        return [("traceparent", self.trace.traceparent(self.span)), *state]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.attributes.setdefault("error.type", kind.__name__)
        self.seconds, self.ended_at = perf_counter() - self._began, time()
        self._record(self)


RecordSpan = Callable[[Span], None]
