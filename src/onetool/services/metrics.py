"""`Metrics`: counts of requests, calls and runs for Prometheus. The recorder's thread counts events.

Labels are bounded: the first MAX_TOOLS tools called have their own series, and all other tools are counted together as
`other`. No label has callers or arguments.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate
from threading import Lock
from typing import Any, NamedTuple

from onetool.core.call import ToolError
from onetool.core.context import CallEvent, RequestEvent, RunEvent

MAX_TOOLS = 100
OTHER = "other"
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds
COUNTED_REASONS = ("timeout", "cancelled", "rate_limited", "denied")  # other errors are counted by their code

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """A line of the output. `suffix` is `_bucket`, `_sum` or `_count` of a histogram."""

    value: float
    labels: Labels = ()
    suffix: str = ""


class Family(NamedTuple):
    name: str
    kind: str  # counter, gauge or histogram
    help: str
    samples: list[Sample]


class Histogram:
    """A histogram of durations in seconds, by the values of its labels."""

    def __init__(self, *labels: str) -> None:
        self._labels = labels
        self._rows: dict[tuple[str, ...], list[float]] = {}  # the counts of all buckets, and the sum of seconds

    def add(self, values: tuple[str, ...], seconds: float) -> None:
        if (row := self._rows.get(values)) is None:
            row = self._rows[values] = [0] * (len(BUCKETS) + 1) + [0.0]
        row[bisect_left(BUCKETS, seconds)] += 1
        row[-1] += seconds

    def family(self, name: str, help: str) -> Family:
        samples: list[Sample] = []
        for values, (*counts, seconds) in self._rows.items():
            labels = tuple(zip(self._labels, values, strict=True))
            totals = [*accumulate(counts)]
            limits = (*map(str, BUCKETS), "+Inf")
            samples += (
                Sample(total, (*labels, ("le", limit)), "_bucket") for limit, total in zip(limits, totals, strict=True)
            )
            samples += (Sample(seconds, labels, "_sum"), Sample(totals[-1], labels, "_count"))
        return Family(name, "histogram", help, samples)


class ToolLabels:
    """The tools that have their own series."""

    def __init__(self) -> None:
        self._tools: set[str] = set()

    def label(self, event: CallEvent) -> str:
        if event.tool in self._tools:
            return event.tool
        if event.spec is None or len(self._tools) >= MAX_TOOLS:  # callers choose the names of unknown tools
            return OTHER
        self._tools.add(event.tool)
        return event.tool


class Metrics:
    """The counts of one process since it started."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tools = ToolLabels()
        self._requests = Counter[tuple[str, str, int]]()  # by route, method and status
        self._calls = Counter[tuple[str, str]]()  # by tool and outcome
        self._runs = Counter[str]()  # by outcome
        self._request_seconds = Histogram("route")
        self._call_seconds = Histogram("tool")
        self._run_seconds = Histogram()

    def observe(self, event: Any) -> None:
        """Count an event of the recorder; events of other kinds are ignored."""
        with self._lock:
            if isinstance(event, CallEvent):
                if event.is_wrapper:
                    return
                tool = self._tools.label(event)
                self._calls[tool, outcome_of(event.error)] += 1
                self._call_seconds.add((tool,), event.duration_ms / 1000)
            elif isinstance(event, RunEvent):
                self._runs[outcome_of(event.error)] += 1
                self._run_seconds.add((), event.duration_ms / 1000)
            elif isinstance(event, RequestEvent):
                method = event.method if event.method in METHODS else OTHER
                route = event.route or OTHER
                self._requests[route, method, event.status] += 1
                self._request_seconds.add((route,), event.seconds)

    def families(self) -> list[Family]:
        with self._lock:
            requests = {
                (("route", route), ("method", method), ("status", str(status))): count
                for (route, method, status), count in self._requests.items()
            }
            calls = {(("tool", tool), ("outcome", outcome)): count for (tool, outcome), count in self._calls.items()}
            runs = {(("outcome", outcome),): count for outcome, count in self._runs.items()}
            return [
                counter("onetool_http_requests", "HTTP requests that have ended.", requests),
                self._request_seconds.family(
                    "onetool_http_request_duration_seconds",
                    "Duration of HTTP requests; streams last as long as their clients.",
                ),
                counter("onetool_calls", "Tool calls that have ended.", calls),
                self._call_seconds.family(
                    "onetool_call_duration_seconds",
                    "Duration of tool calls, without the time spent waiting for a person.",
                ),
                counter("onetool_runs", "Runs of code in the sandbox that have ended.", runs),
                self._run_seconds.family(
                    "onetool_run_duration_seconds", "Duration of runs in the sandbox, including their calls."
                ),
            ]


def outcome_of(error: ToolError | None) -> str:
    """Return `ok`, one of COUNTED_REASONS, or the code of the error."""
    if error is None:
        return "ok"
    return error.reason if error.reason in COUNTED_REASONS else error.code


def counter(name: str, help: str, counts: Mapping[Labels, float]) -> Family:
    return Family(f"{name}_total", "counter", help, [Sample(value, labels) for labels, value in counts.items()])


def gauge(name: str, help: str, values: Mapping[str, float] | float, label: str = "") -> Family:
    """Return a gauge: one value, or one for each value of the label."""
    if not isinstance(values, Mapping):
        return Family(name, "gauge", help, [Sample(float(values))])
    return Family(name, "gauge", help, [Sample(float(value), ((label, key),)) for key, value in values.items()])


# The text format of Prometheus

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def exposition(processes: Mapping[str, Iterable[Family]]) -> bytes:
    """Return the families of all processes as text. A process with a name gets the label `replica`."""
    merged: dict[str, Family] = {}
    for replica, families in processes.items():
        own = (("replica", replica),) if replica else ()
        for name, kind, help, samples in families:
            lines = merged.setdefault(name, Family(name, kind, help, [])).samples
            lines += [Sample(value, (*own, *labels), suffix) for value, labels, suffix in samples]
    text: list[str] = []
    for name, kind, help, samples in merged.values():
        text += (f"# HELP {name} {help}", f"# TYPE {name} {kind}")
        for value, labels, suffix in samples:
            pairs = ",".join(f'{key}="{label.translate(_ESCAPES)}"' for key, label in labels)
            text.append(f"{name}{suffix}{{{pairs}}} {value!r}" if pairs else f"{name}{suffix} {value!r}")
    return "\n".join((*text, "")).encode(errors="replace")  # a name may have half of a surrogate pair
