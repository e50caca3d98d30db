"""What a summary of the stats looks like. Plain data: it goes out as YAML, as JSON, and into the report."""

from typing import TypedDict


class ToolRow(TypedDict):
    """One tool. `success_rate` is in percent, with one decimal; `last_called` is ISO 8601, in UTC, with seconds."""

    tool: str
    source: str  # "local", "proxy:NAME", or empty for a tool that there is not
    calls: int
    errors: int
    success_rate: float
    median_ms: float
    p95_ms: float
    tokens_in: int
    tokens_out: int
    last_called: str


class ErrorRow(TypedDict):
    """How often a tool has failed in one way."""

    tool: str
    code: str
    reason: str | None  # the finer cause, where there is one
    count: int
    last: str


class Count(TypedDict):
    """How many calls came through a door, or from a client."""

    name: str
    calls: int


class Bucket(TypedDict):
    """A stretch of time: an hour, six, or a day. Without calls there are no percentiles."""

    start: str
    calls: int
    errors: int
    tokens_in: int
    tokens_out: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class Summary(TypedDict):
    """A period, or all that is kept; of one tool, or of all. Tools and errors: the most frequent first."""

    period: str
    since: str | None
    until: str
    tool: str | None
    total_calls: int
    success_rate: float | None
    context_saved: int
    time_saved_ms: int
    tokens_in: int
    tokens_out: int
    bytes_in: int
    bytes_out: int
    runs: int
    calls_in_runs: int
    tools: list[ToolRow]
    errors: list[ErrorRow]
    doors: list[Count]
    clients: list[Count]
    series: list[Bucket]
    latency: dict[str, float | None]
