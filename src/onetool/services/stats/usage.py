"""Usage over some days: of all tools or selected calls (`stats_overview`), and of one tool (`tool_usage`).

Both have totals and a series of hours or days.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from math import floor
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from onetool.services.stats.store import StatsReader, read_spread
from onetool.services.stats.summary import DAY, HOUR, MAX_ROWS, iso, savings

MAX_HOURLY_DAYS = 2
MAX_LAST = 20


class UsageLatency(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds; null without calls."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class UsageBucket(msgspec.Struct, frozen=True, kw_only=True):
    """An hour or a day. `at` is its beginning."""

    at: str
    calls: int
    errors: int
    p50: float | None
    p95: float | None


# Of all tools

_CHOSEN = """
FROM {calls} WHERE at >= :since
    AND (CAST(:tool AS text) IS NULL OR tool = :tool) AND (CAST(:source AS text) IS NULL OR door = :source)
    AND (CAST(:client AS text) IS NULL OR client = :client) AND (CAST(:caller AS text) IS NULL OR caller = :caller)
    AND (CAST(:names AS text) IS NULL OR tool IN ({names}))
"""
_TOTALS = f"SELECT count(*), coalesce(sum(1 - ok), 0), {{spread}} {_CHOSEN}"
_SERIES = f"SELECT {{bucket}}, count(*), sum(1 - ok), {{spread}} {_CHOSEN} GROUP BY 1"
_TOOLS = (
    f"SELECT tool, count(*), sum(1 - ok), {{spread}} {_CHOSEN} "
    "AND (source != '' OR coalesce(code, '') != 'tool_not_found') GROUP BY tool ORDER BY 2 DESC, 1 LIMIT :most"
)
_SOURCES = f"SELECT door, count(*) {_CHOSEN} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT :most"
_CLIENTS = f"SELECT client, count(*) {_CHOSEN} AND client != '' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT :most"
_CALLERS = f"SELECT caller, count(*) {_CHOSEN} AND caller != '' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT :most"
_FAILURES = (
    f"SELECT tool, code, reason, count(*), max(at) {_CHOSEN} "
    "AND ok = 0 GROUP BY {tool}, code, reason ORDER BY 4 DESC, 1, 2 NULLS FIRST, 3 NULLS FIRST LIMIT :most"
)


class CountedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool. Times are in milliseconds."""

    name: str
    calls: int
    errors: int
    p50: float | None
    p95: float | None
    p99: float | None


class CountedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The number of calls through an interface, or from a client or caller."""

    name: str
    calls: int


class CountedFailure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of a tool's failures with the same cause. Error messages are not stored."""

    name: str
    code: str
    message: Annotated[str, Meta(description="The specific cause as one word, or the code.")]
    count: int
    last_at: str


class StatsOverview(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The recorded usage, without arguments and values."""

    enabled: Annotated[bool, Meta(description="false: nothing is counted (`stats.enabled` in the config).")] = True
    calls: int = 0
    errors: int = 0
    latency: UsageLatency = UsageLatency()
    tokens_saved: Annotated[int | None, Meta(description="By runs and menus; null if calls are filtered.")] = None
    series: tuple[UsageBucket, ...] = ()
    tools: tuple[CountedTool, ...] = ()
    sources: Annotated[tuple[CountedCalls, ...], Meta(description="Interfaces: rest, mcp, run, cli …")] = ()
    clients: tuple[CountedCalls, ...] = ()
    callers: Annotated[tuple[CountedCalls, ...], Meta(description="Names of tokens, and `iss|sub`.")] = ()
    failures: Annotated[tuple[CountedFailure, ...], Meta(description="How often and why tools failed.")] = ()


class StatsFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for the calls of the last days, by tool, interface, client, caller and allowed tools."""

    days: int = 30
    tool: str | None = None
    source: str | None = None
    client: str | None = None
    caller: str | None = None
    allowed: Collection[str] | None = None

    def parameters(self, now: float) -> dict[str, Any]:
        allowed = None if self.allowed is None else json.dumps(sorted(self.allowed))
        asked = {"tool": self.tool, "source": self.source, "client": self.client, "caller": self.caller}
        return {**asked, "names": allowed, "since": now - self.days * DAY, "most": MAX_ROWS}


def stats_overview(reader: StatsReader, wanted: StatsFilter, now: float, inline_bytes: int) -> StatsOverview:
    asked = wanted.parameters(now)
    ((calls, errors, spread),) = reader.rows(_TOTALS, asked)
    latency, saved = read_spread(spread), None
    if wanted.source is None and wanted.client is None and wanted.allowed is None:  # menus and runs don't record these
        saved = savings(reader, asked["since"], wanted.tool, inline_bytes, wanted.caller)["context_saved"]
    return StatsOverview(
        calls=calls,
        errors=errors,
        latency=UsageLatency(p50=latency.p50, p95=latency.p95, p99=latency.p99),
        tokens_saved=saved,
        series=tuple(_series(reader, _SERIES, asked, wanted.days, now)),
        tools=tuple(_tool(*row) for row in reader.rows(_TOOLS, asked)),
        sources=tuple(CountedCalls(name=name, calls=count) for name, count in reader.rows(_SOURCES, asked)),
        clients=tuple(CountedCalls(name=name, calls=count) for name, count in reader.rows(_CLIENTS, asked)),
        callers=tuple(CountedCalls(name=name, calls=count) for name, count in reader.rows(_CALLERS, asked)),
        failures=tuple(
            CountedFailure(name=tool, code=code or "", message=reason or code or "", count=count, last_at=iso(last))
            for tool, code, reason, count, last in reader.rows(_FAILURES, asked)
        ),
    )


def _tool(name: str, calls: int, errors: int, spread: str | None) -> CountedTool:
    times = read_spread(spread)
    return CountedTool(name=name, calls=calls, errors=errors, p50=times.p50, p95=times.p95, p99=times.p99)


# Of one tool

_OF_TOOL = "FROM {calls} WHERE tool IN ({names}) AND (CAST(:caller AS text) IS NULL OR caller = :caller)"
_TOOL_TOTALS = f"SELECT count(*), coalesce(sum(1 - ok), 0), {{spread}} {_OF_TOOL} AND at >= :since"
_TOOL_LAST_CALLED = f"SELECT max(at) {_OF_TOOL}"
_TOOL_SERIES = f"SELECT {{bucket}}, count(*), sum(1 - ok), {{spread}} {_OF_TOOL} AND at >= :since GROUP BY 1"
_TOOL_ERRORS = (
    f"SELECT at, code, reason, client, caller {_OF_TOOL} AND at >= :since AND ok = 0 ORDER BY at DESC LIMIT :most"
)
_TOOL_RECENT = (
    f"SELECT at, ok, duration_ms, door, client, caller {_OF_TOOL} AND at >= :since ORDER BY at DESC LIMIT :most"
)


class UsageFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed call. Its error message is not stored, since it may quote arguments."""

    at: str
    code: str
    message: Annotated[str, Meta(description="The specific cause as one word, or the code.")]
    client: str | None
    caller: str | None


class UsageCall(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    at: str
    ok: bool
    duration_ms: float
    source: Annotated[str, Meta(description="The interface: rest, mcp, run, cli …")]
    client: str | None
    caller: Annotated[str | None, Meta(description="The name of a token, or `iss|sub`; null if there is none.")]


class ToolUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The recorded usage of one tool, without arguments and values."""

    enabled: Annotated[bool, Meta(description="false: nothing is counted (`stats.enabled` in the config).")] = True
    calls: int = 0
    errors: int = 0
    last_called_at: str | None = None
    latency: UsageLatency = UsageLatency()
    series: tuple[UsageBucket, ...] = ()
    last_errors: Annotated[tuple[UsageFailure, ...], Meta(description="The newest first, at most 20.")] = ()
    recent: Annotated[tuple[UsageCall, ...], Meta(description="The newest first, at most 20.")] = ()


NOT_COUNTED = ToolUsage(enabled=False)


def tool_usage(
    reader: StatsReader, names: Collection[str], days: int, now: float, caller: str | None = None
) -> ToolUsage:
    """Return the usage of a tool, whose calls are recorded under `names`; with `caller`, only calls of this owner."""
    asked = {"names": json.dumps(sorted(names)), "since": now - days * DAY, "most": MAX_LAST, "caller": caller}
    ((calls, errors, spread),) = reader.rows(_TOOL_TOTALS, asked)
    last = reader.rows(_TOOL_LAST_CALLED, asked)[0][0]
    latency = read_spread(spread)
    return ToolUsage(
        calls=calls,
        errors=errors,
        last_called_at=None if last is None else iso(last),
        latency=UsageLatency(p50=latency.p50, p95=latency.p95, p99=latency.p99),
        series=tuple(_series(reader, _TOOL_SERIES, asked, days, now)),
        last_errors=tuple(
            UsageFailure(
                at=iso(at), code=code or "", message=reason or code or "", client=client or None, caller=caller or None
            )
            for at, code, reason, client, caller in reader.rows(_TOOL_ERRORS, asked)
        ),
        recent=tuple(
            UsageCall(
                at=iso(at), ok=bool(ok), duration_ms=duration, source=door, client=client or None, caller=caller or None
            )
            for at, ok, duration, door, client, caller in reader.rows(_TOOL_RECENT, asked)
        ),
    )


# The series


def _series(reader: StatsReader, query: str, asked: Mapping[str, Any], days: int, now: float) -> list[UsageBucket]:
    """Return every bucket, including empty ones. The first has only the calls of the period."""
    size = HOUR if days <= MAX_HOURLY_DAYS else DAY
    found: dict[int, Sequence[Any]] = {
        number * size: rest for number, *rest in reader.rows(query, {**asked, "bucket": size})
    }
    starts = range(floor(asked["since"] / size) * size, floor(now) + 1, size)
    return [_bucket(start, *found.get(start, (0, 0, None))) for start in starts]


def _bucket(start: float, calls: int, errors: int, spread: str | None) -> UsageBucket:
    durations = read_spread(spread)
    return UsageBucket(at=iso(start), calls=calls, errors=errors, p50=durations.p50, p95=durations.p95)
