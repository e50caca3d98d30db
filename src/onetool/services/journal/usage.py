"""Usage over some days: of all tools or selected calls (`stats_overview`), and of one tool (`tool_usage`).

Both have totals and a series of hours or days.
"""

import json
from collections.abc import Collection
from math import floor
from typing import Annotated

import msgspec
from msgspec import Meta

from onetool.services.journal.summary import (
    DAY,
    ERRORS,
    HOUR,
    CallFilter,
    counts_of,
    errors_of,
    iso,
    read_spread,
    savings,
    series_of,
)
from onetool.services.journal.table import Query

MAX_HOURLY_DAYS = 2
MAX_LAST = 20


class UsageLatency(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in milliseconds; null if there were no calls."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None

    @classmethod
    def read(cls, spread: str | None) -> "UsageLatency":
        times = read_spread(spread)
        return cls(p50=times.p50, p95=times.p95, p99=times.p99)


class UsageBucket(msgspec.Struct, frozen=True, kw_only=True):
    """An hour or a day. `at` is its beginning."""

    at: str
    calls: int
    errors: int
    p50: float | None
    p95: float | None


# Of all tools


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
    """A filter for recent calls, by tool, interface, client, caller and allowed tools."""

    days: int = 30
    tool: str | None = None
    source: str | None = None
    client: str | None = None
    caller: str | None = None
    allowed: Collection[str] | None = None


def stats_overview(query: Query, wanted: StatsFilter, now: float, inline_bytes: int) -> StatsOverview:
    since = now - wanted.days * DAY
    names = None if wanted.allowed is None else json.dumps(sorted(wanted.allowed))
    selected = CallFilter(since, wanted.tool, wanted.caller, wanted.source, wanted.client, names)
    ((calls, errors, spread),) = selected.rows(query, f"count(*), {ERRORS}, {{spread}}")
    tools = msgspec.structs.replace(selected, exists=True).rows(
        query, f"tool, count(*), {ERRORS}, {{spread}}", "GROUP BY tool ORDER BY 2 DESC, 1 LIMIT :limit"
    )
    saved: int | None = None
    if wanted.source is None and wanted.client is None and names is None:  # menus and runs don't record these
        saved = savings(query, since, wanted.tool, inline_bytes, wanted.caller)["context_saved"]
    return StatsOverview(
        calls=calls,
        errors=errors,
        latency=UsageLatency.read(spread),
        tokens_saved=saved,
        series=_series(query, selected, wanted.days, now),
        tools=tuple(
            CountedTool(
                name=name,
                calls=count,
                errors=failed,
                p50=(times := read_spread(durations)).p50,
                p95=times.p95,
                p99=times.p99,
            )
            for name, count, failed, durations in tools
        ),
        sources=tuple(CountedCalls(**count) for count in counts_of(query, selected, "via")),
        clients=tuple(CountedCalls(**count) for count in counts_of(query, selected, "client")),
        callers=tuple(CountedCalls(**count) for count in counts_of(query, selected, "owner")),
        failures=tuple(
            CountedFailure(
                name=row["tool"],
                code=row["code"],
                message=row["reason"] or row["code"],
                count=row["count"],
                last_at=row["last"],
            )
            for row in errors_of(query, selected)
        ),
    )


# Of one tool


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
    last_errors: Annotated[tuple[UsageFailure, ...], Meta(description="Newest first, at most 20.")] = ()
    recent: Annotated[tuple[UsageCall, ...], Meta(description="Newest first, at most 20.")] = ()


NOT_COUNTED = ToolUsage(enabled=False)


def tool_usage(query: Query, names: Collection[str], days: int, now: float, caller: str | None = None) -> ToolUsage:
    """Return the usage of a tool, whose calls are recorded under `names`; with `caller`, only calls of this owner."""
    selected = CallFilter(now - days * DAY, caller=caller, names=json.dumps(sorted(names)))
    failed, latest = msgspec.structs.replace(selected, failed=True), "ORDER BY at DESC LIMIT :limit"
    ((calls, errors, spread),) = selected.rows(query, f"count(*), {ERRORS}, {{spread}}")
    ((last,),) = msgspec.structs.replace(selected, since=None).rows(query, "max(at)")
    return ToolUsage(
        calls=calls,
        errors=errors,
        last_called_at=None if last is None else iso(last),
        latency=UsageLatency.read(spread),
        series=_series(query, selected, days, now),
        last_errors=tuple(
            UsageFailure(at=iso(at), code=code, message=reason or code, client=client or None, caller=caller or None)
            for at, code, reason, client, caller in failed.rows(
                query, "at, outcome, reason, client, owner", latest, limit=MAX_LAST
            )
        ),
        recent=tuple(
            UsageCall(
                at=iso(at),
                ok=outcome == "ok",
                duration_ms=duration,
                source=source,
                client=client or None,
                caller=caller or None,
            )
            for at, outcome, duration, source, client, caller in selected.rows(
                query, "at, outcome, ms, via, client, owner", latest, limit=MAX_LAST
            )
        ),
    )


def _series(query: Query, selected: CallFilter, days: int, now: float) -> tuple[UsageBucket, ...]:
    size = HOUR if days <= MAX_HOURLY_DAYS else DAY
    starts = range(floor((now - days * DAY) / size) * size, floor(now) + 1, size)
    return tuple(
        UsageBucket(
            at=bucket["start"],
            calls=bucket["calls"],
            errors=bucket["errors"],
            p50=bucket["p50_ms"],
            p95=bucket["p95_ms"],
        )
        for bucket in series_of(query, selected, starts)
    )
