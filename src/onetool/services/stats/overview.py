"""The usage of all tools over some days, or of some calls of theirs: totals, a series, and what they are made of."""

import json
import sqlite3
from collections.abc import Collection
from typing import Any

import msgspec

from onetool.services.stats.summary import DAY, MOST_ROWS, iso, read_spread, register_spread, savings
from onetool.services.stats.tool_usage import UsageBucket, UsageLatency, usage_series

_CHOSEN = """
FROM calls WHERE at >= :since AND (:tool IS NULL OR tool = :tool) AND (:source IS NULL OR door = :source)
    AND (:client IS NULL OR client = :client) AND (:caller IS NULL OR caller = :caller)
    AND (:allowed IS NULL OR tool IN (SELECT value FROM json_each(:allowed)))
"""
_TOTALS = f"SELECT count(*), coalesce(sum(1 - ok), 0), spread(duration_ms) {_CHOSEN}"
_SERIES = f"SELECT CAST(at / :bucket AS INTEGER), count(*), sum(1 - ok), spread(duration_ms) {_CHOSEN} GROUP BY 1"
_TOOLS = (
    f"SELECT tool, count(*), sum(1 - ok), spread(duration_ms) {_CHOSEN} "
    "AND (source != '' OR code IS NOT 'tool_not_found') GROUP BY tool ORDER BY 2 DESC, 1 LIMIT :most"
)
_SOURCES = f"SELECT door, count(*) {_CHOSEN} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT :most"
_CLIENTS = f"SELECT client, count(*) {_CHOSEN} AND client != '' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT :most"
_CALLERS = f"SELECT caller, count(*) {_CHOSEN} AND caller != '' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT :most"
_FAILURES = (
    f"SELECT tool, code, reason, count(*), max(at) {_CHOSEN} "
    "AND NOT ok GROUP BY +tool, code, reason ORDER BY 4 DESC, 1, 2, 3 LIMIT :most"
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
    """How many calls came through an interface, or from a client or a caller."""

    name: str
    calls: int


class CountedFailure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How often a tool has failed in one way. What callers were told is not kept."""

    name: str
    code: str
    message: str  # the finer cause in a word, or the code again
    count: int
    last_at: str


class StatsOverview(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was counted. Nothing of arguments and values is."""

    enabled: bool = True
    calls: int = 0
    errors: int = 0
    latency: UsageLatency = UsageLatency()
    tokens_saved: int | None = None
    series: tuple[UsageBucket, ...] = ()
    tools: tuple[CountedTool, ...] = ()
    sources: tuple[CountedCalls, ...] = ()
    clients: tuple[CountedCalls, ...] = ()
    callers: tuple[CountedCalls, ...] = ()  # names of tokens, and `iss|sub`
    failures: tuple[CountedFailure, ...] = ()


class StatsFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls: of the last days; of one tool, interface, client or caller; of allowed tools only."""

    days: int = 30
    tool: str | None = None
    source: str | None = None
    client: str | None = None
    caller: str | None = None
    allowed: Collection[str] | None = None

    def parameters(self, now: float) -> dict[str, Any]:
        allowed = None if self.allowed is None else json.dumps(sorted(self.allowed))
        asked = {"tool": self.tool, "source": self.source, "client": self.client, "caller": self.caller}
        return {**asked, "allowed": allowed, "since": now - self.days * DAY, "most": MOST_ROWS}


def stats_overview(database: sqlite3.Connection, wanted: StatsFilter, now: float, inline_bytes: int) -> StatsOverview:
    register_spread(database)
    asked = wanted.parameters(now)
    database.execute("BEGIN")  # all of it is of one moment
    calls, errors, spread = database.execute(_TOTALS, asked).fetchone()
    latency = read_spread(spread)
    return StatsOverview(
        calls=calls,
        errors=errors,
        latency=UsageLatency(p50=latency.p50, p95=latency.p95, p99=latency.p99),
        tokens_saved=_tokens_saved(database, wanted, asked["since"], inline_bytes),
        series=tuple(usage_series(database, _SERIES, asked, wanted.days, now)),
        tools=tuple(_tool(*row) for row in database.execute(_TOOLS, asked)),
        sources=tuple(CountedCalls(name=name, calls=count) for name, count in database.execute(_SOURCES, asked)),
        clients=tuple(CountedCalls(name=name, calls=count) for name, count in database.execute(_CLIENTS, asked)),
        callers=tuple(CountedCalls(name=name, calls=count) for name, count in database.execute(_CALLERS, asked)),
        failures=tuple(
            CountedFailure(name=tool, code=code or "", message=reason or code or "", count=count, last_at=iso(last))
            for tool, code, reason, count, last in database.execute(_FAILURES, asked)
        ),
    )


def _tokens_saved(database: sqlite3.Connection, wanted: StatsFilter, since: float, inline_bytes: int) -> int | None:
    """None where it can't be told: menus and runs are not counted by these."""
    if wanted.source is not None or wanted.client is not None or wanted.allowed is not None:
        return None
    return savings(database, since, wanted.tool, inline_bytes, wanted.caller)["context_saved"]


def _tool(name: str, calls: int, errors: int, spread: str | None) -> CountedTool:
    times = read_spread(spread)
    return CountedTool(name=name, calls=calls, errors=errors, p50=times.p50, p95=times.p95, p99=times.p99)
