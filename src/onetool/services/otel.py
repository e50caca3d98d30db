"""Sends traces and metrics to a collector over OTLP, with the official SDK. Imported where the config has `otel`.

Spans are made from the recorder's events after calls, runs and requests have ended, so calls don't get slower. They
follow the semantic conventions of OpenTelemetry for HTTP, GenAI and MCP, and have names, durations and
outcomes, but no arguments, values, messages or callers. Requests to MCP servers and by HTTP tools, and code in the
sandbox, have their own spans inside those of calls and runs.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import SpanKind, Status, StatusCode

from onetool._version import __version__
from onetool.core.context import CallEvent, RequestEvent, RunEvent
from onetool.core.text import replace_surrogates
from onetool.core.trace import Span
from onetool.services.journal.recorder import Recorder
from onetool.services.metrics import BUCKETS, METHODS, OTHER, ToolLabels, outcome_of

NANO = 1_000_000_000
TIMEOUT_S = 5.0  # for the collector to answer
METRICS_EVERY_MS = 30_000
MCP_METHODS = frozenset(
    (
        *("initialize", "ping", "server/discover", "subscriptions/listen", "completion/complete", "logging/setLevel"),
        *("tools/list", "tools/call", "prompts/list", "prompts/get", "tasks/get", "tasks/update", "tasks/cancel"),
        *("resources/list", "resources/read", "resources/templates/list"),
        *("resources/subscribe", "resources/unsubscribe"),
    )
)
MAX_TEXT = 256  # characters of a name or an attribute

Attributes = dict[str, str | int]


class _EventIds(IdGenerator):
    """A generator that returns the ids of the event, since other systems have already received them."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = ""
        self._random = RandomIdGenerator()

    def generate_span_id(self) -> int:
        return int(self.span_id, 16) if self.span_id else self._random.generate_span_id()

    def generate_trace_id(self) -> int:
        return int(self.trace_id, 16) if self.trace_id else self._random.generate_trace_id()


class OtelExporter:
    """An exporter of events as spans and metrics. Only one thread at a time may call `observe`."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], service: str, replica: str | None = None) -> None:
        more = {} if replica is None else {"service.instance.id": replica}
        resource = Resource.create({"service.name": service, "service.version": __version__, **more})
        where, headers = endpoint.rstrip("/"), {name: str(value) for name, value in headers.items()}
        self._ids, self._tools = _EventIds(), ToolLabels()
        self._traces = TracerProvider(
            ParentBased(ALWAYS_ON),  # traces that the client doesn't record are not sent
            resource,
            shutdown_on_exit=False,
            id_generator=self._ids,
            span_limits=SpanLimits(max_attribute_length=MAX_TEXT),
        )
        spans = OTLPSpanExporter(f"{where}/v1/traces", headers=headers, timeout=TIMEOUT_S)
        self._traces.add_span_processor(BatchSpanProcessor(spans))
        measured = OTLPMetricExporter(f"{where}/v1/metrics", headers=headers, timeout=TIMEOUT_S)
        reader = PeriodicExportingMetricReader(measured, METRICS_EVERY_MS)
        self._meters = MeterProvider([reader], resource, shutdown_on_exit=False)
        self._tracer = self._traces.get_tracer("onetool", __version__)
        meter = self._meters.get_meter("onetool", __version__)
        histogram = partial(meter.create_histogram, unit="s", explicit_bucket_boundaries_advisory=BUCKETS)
        self._requests = histogram("http.server.request.duration", description="Duration of HTTP requests.")
        self._calls = histogram("onetool.tool.call.duration", description="Duration of tool calls.")
        self._runs = histogram("onetool.run.duration", description="Duration of code in the sandbox.")

    def observe(self, event: Any) -> None:
        if isinstance(event, CallEvent):
            if event.is_wrapper:
                return
            name, outcome = event.tool if event.spec is not None else OTHER, _outcome(event)
            label = replace_surrogates(self._tools.label(event))
            self._calls.record(event.duration_ms / 1000, {"gen_ai.tool.name": label, **outcome})
            attributes: Attributes = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.type": "function",
                "onetool.source": event.source.partition(":")[0],
                **outcome,
            }
            self._span(f"execute_tool {name}", event, SpanKind.INTERNAL, attributes, event.duration_ms / 1000)
        elif isinstance(event, RunEvent):
            outcome = _outcome(event)
            self._runs.record(event.duration_ms / 1000, outcome)
            attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "run", **outcome}
            attributes["onetool.run.calls"] = event.calls
            self._span("execute_tool run", event, SpanKind.INTERNAL, attributes, event.duration_ms / 1000)
        elif isinstance(event, RequestEvent):
            self._observe_request(event)
        elif isinstance(event, Span):
            kind = SpanKind.CLIENT if event.is_client else SpanKind.INTERNAL
            self._span(event.name, event, kind, event.attributes, event.seconds)

    def _observe_request(self, event: RequestEvent) -> None:
        method = event.method if event.method in METHODS else "_OTHER"
        attributes: Attributes = {"http.request.method": method, "http.response.status_code": event.status}
        name = "HTTP" if method == "_OTHER" else method
        if event.route:
            attributes["http.route"] = event.route
            name = f"{name} {event.route}"
        if event.status >= 500:
            attributes["error.type"] = str(event.status)
        self._requests.record(event.seconds, attributes)
        if event.mcp in MCP_METHODS:  # the client chooses this text
            name = attributes["mcp.method.name"] = event.mcp
        if event.trace is not None:
            attributes["onetool.request_id"] = event.trace.request_id
        self._span(name, event, SpanKind.SERVER, attributes, event.seconds)

    def _span(
        self,
        name: str,
        event: CallEvent | RunEvent | RequestEvent | Span,
        kind: SpanKind,
        attributes: Attributes,
        seconds: float,
    ) -> None:
        """Make the span of an event. Without a request, as on the command line, the span starts a new trace."""
        end, context, trace = int(event.ended_at * NANO), Context(), event.trace
        self._ids.trace_id = self._ids.span_id = ""
        if trace is not None:
            is_request = isinstance(event, RequestEvent)
            self._ids.trace_id, self._ids.span_id = trace.trace_id, trace.span_id if is_request else event.span
            if parent := trace.parent_id if is_request else event.parent:
                flags = api.TraceFlags(int(trace.flags, 16))
                found = api.SpanContext(int(trace.trace_id, 16), int(parent, 16), is_request, flags)
                context = api.set_span_in_context(api.NonRecordingSpan(found), context)
        # Servers can put lone surrogates into names, which would make the whole batch fail.
        attributes = {
            key: replace_surrogates(value) if isinstance(value, str) else value for key, value in attributes.items()
        }
        start = end - int(seconds * NANO)
        span = self._tracer.start_span(replace_surrogates(name)[:MAX_TEXT], context, kind, attributes, start_time=start)
        if "error.type" in attributes:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end)

    def close(self) -> None:
        """Send the remaining spans and metrics, for a few seconds at most."""
        with suppress(Exception):
            self._traces.shutdown()
        with suppress(Exception):
            self._meters.shutdown(TIMEOUT_S * 1000)


def _outcome(event: CallEvent | RunEvent) -> Attributes:
    return {} if event.error is None else {"error.type": outcome_of(event.error)}


def start_export(exporter: OtelExporter, recorder: Recorder) -> Callable[[], None]:
    """Start sending spans and metrics of the recorder's events. Return a function that stops this."""
    recorder.observers.append(exporter.observe)
    recorder.record_span = lambda span: recorder.put(recorder.observe, span)

    def end() -> None:
        recorder.record_span = None
        recorder.flush()
        recorder.observers.remove(exporter.observe)
        exporter.close()

    return end
