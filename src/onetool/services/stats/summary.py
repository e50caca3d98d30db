"""Sums up a period of the stats: totals, tools, errors, series, percentiles, and what was saved.

    context_saved = Σ over menus sent (tokens of a list of every tool − tokens sent)
                  + Σ over runs with a reply (tokens in and out of its calls − tokens of its code − tokens of the reply)
    time_saved_ms = Σ over runs with n ≥ 2 calls ((n − 1) × g + max(0, durations of its calls − duration of the run))

Of a call no more counts than would have been sent: what is larger goes behind a handle. The calls of a failed run do
not count: they would have to be made again. g is the median of how long that client took from an answer to its next
call, in the same period; 0 where that was never measured. Terms may be negative. A run belongs to the period in which
it ended. For one tool: the runs in which it took part, and no menus.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import floor
from typing import Any, TypedDict

import msgspec

from onetool.core.limits import DAY
from onetool.core.text import LAST_SECOND
from onetool.services.stats.store import Row, StatsReader, read_spread

HOUR = 3600
MAX_BUCKETS = 90  # of all that there is, the latest


class Period(msgspec.Struct, frozen=True):
    """`seconds` until now, None for all; `bucket`: seconds of one bucket. Buckets begin at whole hours and days."""

    name: str
    seconds: int | None
    bucket: int

    def since(self, now: float) -> float | None:
        return None if self.seconds is None else now - self.seconds

    def buckets(self, first: float, now: float) -> range:
        """Return the starts of all buckets, for calls of which the first was then."""
        earliest = max(first, now - (MAX_BUCKETS - 1) * self.bucket) if self.seconds is None else now - self.seconds
        return range(floor(earliest / self.bucket) * self.bucket, floor(now) + 1, self.bucket)


PERIODS: Mapping[str, Period] = {
    "day": Period("day", DAY, HOUR),
    "week": Period("week", 7 * DAY, 6 * HOUR),
    "month": Period("month", 30 * DAY, DAY),
    "all": Period("all", None, DAY),
}


def iso(at: float) -> str:
    """ISO 8601, with seconds. A time that no calendar has, in a row of others, becomes the last moment of one."""
    return datetime.fromtimestamp(at if 0 <= at <= LAST_SECOND else LAST_SECOND, UTC).isoformat(timespec="seconds")


# The summary


class ToolRow(TypedDict):
    """One tool. `success_rate` is in percent, with one decimal; `last_called` is ISO 8601, in UTC, with seconds."""

    tool: str
    source: str  # "local", "proxy:NAME", or empty for a tool that does not exist
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
    """How many calls came through a door, or from a client or a caller."""

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
    caller: str | None  # whose calls; None: of all, "": of the command line, and of http.token
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
    callers: list[Count]  # those that have a name
    series: list[Bucket]
    latency: dict[str, float | None]


# Savings, from measured values only

_RUNS = """
WITH those AS (
    SELECT id, client, ok, duration_ms, tokens_in FROM {runs}
    WHERE at >= :since AND (CAST(:caller AS text) IS NULL OR caller = :caller) AND (
        CAST(:tool AS text) IS NULL OR id IN (SELECT run FROM {calls} WHERE tool = :tool AND run IS NOT NULL)
    )
), made AS (
    SELECT run, count(*) AS calls, sum(duration_ms) AS duration_ms, sum(
        (CASE WHEN bytes_in < :inline THEN bytes_in ELSE :inline END + 3) / 4
        + (CASE WHEN bytes_out < :inline THEN bytes_out ELSE :inline END + 3) / 4
    ) AS tokens
    FROM {calls} WHERE run IN (SELECT id FROM those) GROUP BY run
), sent AS (
    SELECT run, sum(tokens_out) AS tokens FROM {replies} WHERE run IN (SELECT id FROM those) GROUP BY run
), saved AS (
    SELECT those.client,
        CASE WHEN sent.tokens IS NOT NULL THEN ok * coalesce(made.tokens, 0) - tokens_in - sent.tokens END AS tokens,
        CASE WHEN made.calls >= 2 THEN made.calls - 1 END AS turns,
        CASE WHEN made.calls >= 2 THEN made.duration_ms - those.duration_ms END AS side_by_side
    FROM those LEFT JOIN made ON made.run = id LEFT JOIN sent ON sent.run = id
)
SELECT client, CAST(coalesce(sum(tokens), 0) AS bigint), CAST(coalesce(sum(turns), 0) AS bigint),
    coalesce(sum(CASE WHEN side_by_side > 0 THEN side_by_side END), 0), count(*)
FROM saved GROUP BY client
"""
_MENUS = """
SELECT CAST(coalesce(sum(full_tokens - sent_tokens), 0) AS bigint) FROM {menus}
WHERE at >= :since AND CAST(:tool AS text) IS NULL AND (CAST(:caller AS text) IS NULL OR caller = :caller)
"""
_GAPS = """
SELECT client, {spread} FROM {gaps}
WHERE at >= :since AND (CAST(:caller AS text) IS NULL OR caller = :caller) GROUP BY client
"""


def savings(
    reader: StatsReader, since: float | None, tool: str | None, inline_bytes: int, caller: str | None = None
) -> dict[str, Any]:
    """context_saved, time_saved_ms, and of how many runs. `inline_bytes` are sent of a value at the most."""
    since = float("-inf") if since is None else since
    asked = {"since": since, "tool": tool, "inline": inline_bytes, "caller": caller}
    gaps = {client: read_spread(spread).p50 or 0.0 for client, spread in reader.rows(_GAPS, asked)}
    tokens, milliseconds, runs = reader.rows(_MENUS, asked)[0][0], 0.0, 0
    for client, in_runs, turns, side_by_side, count in reader.rows(_RUNS, asked):
        tokens += in_runs
        milliseconds += turns * gaps.get(client, 0.0) + side_by_side
        runs += count
    return {"context_saved": tokens, "time_saved_ms": round(milliseconds), "runs": runs}


# Reading the calls

MAX_ROWS = 1000  # tools, errors and clients that are listed: names of tools come from outside, too

_NUMBERS = "count(*), sum(1 - ok), coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0), {spread}"
_SUM = "CAST(coalesce(sum({}), 0) AS bigint)"  # the sum of bigint is a decimal number in PostgreSQL

_NOTHING: Sequence[Any] = (0, 0, 0, 0, None)


class CallFilter(msgspec.Struct, frozen=True):
    """Which calls: since when, of which tool and caller; only those that failed, or of tools that there were."""

    since: float | None = None
    tool: str | None = None
    caller: str | None = None
    failed: bool = False
    there: bool = False

    def query(self, reader: StatsReader, wanted: str, further: str = "", **more: Any) -> list[Row]:
        """`wanted` and `further` (grouping, order) are our own words; whatever comes from outside is a parameter."""
        limits = {
            "at >= :since": self.since is not None,
            "tool = :tool": self.tool is not None,
            "caller = :caller": self.caller is not None,
            "ok = 0": self.failed,
            "(source != '' OR coalesce(code, '') != 'tool_not_found')": self.there,
        }
        selected = " AND ".join(limit for limit, holds in limits.items() if holds)
        where = f"WHERE {selected}" if selected else "{unordered}"
        return reader.rows(
            f"SELECT {wanted} FROM {{calls}} {where} {further}",  # noqa: S608
            {"since": self.since, "tool": self.tool, "caller": self.caller, "most": MAX_ROWS, **more},
        )


def tool_facts(reader: StatsReader, selected: CallFilter) -> dict[str, Any]:
    """Return the facts of a tool: calls, success_rate (percent), median_ms, last_called."""
    ((calls, errors, last, spread),) = selected.query(reader, "count(*), coalesce(sum(1 - ok), 0), max(at), {spread}")
    return {
        "calls": calls,
        "success_rate": _rate(calls, errors) if calls else None,
        "median_ms": read_spread(spread).p50,
        "last_called": iso(last) if calls else None,
    }


def summarize(
    reader: StatsReader,
    period: Period,
    tool: str | None,
    now: float,
    inline_bytes: int,
    caller: str | None = None,
) -> Summary:
    """Return a summary of one moment: nothing is written between its parts."""
    selected = CallFilter(period.since(now), tool, caller)
    ((calls, errors, tokens_in, tokens_out, spread, bytes_in, bytes_out, in_runs, first),) = selected.query(
        reader, f"{_NUMBERS}, {_SUM.format('bytes_in')}, {_SUM.format('bytes_out')}, count(run), min(at)"
    )
    saved = savings(reader, selected.since, tool, inline_bytes, caller)
    return {
        "period": period.name,
        "since": iso(first if selected.since is None else selected.since) if calls or selected.since else None,
        "until": iso(now),
        "tool": tool,
        "caller": caller,
        "total_calls": calls,
        "success_rate": _rate(calls, errors) if calls else None,
        "context_saved": saved["context_saved"],
        "time_saved_ms": saved["time_saved_ms"],
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "bytes_in": bytes_in,
        "bytes_out": bytes_out,
        "runs": saved["runs"],
        "calls_in_runs": in_runs,
        "tools": _tools(reader, selected),
        "errors": _errors(reader, selected),
        "doors": _counts(reader, selected, "door"),
        "clients": [one for one in _counts(reader, selected, "client") if one["name"]],
        "callers": [one for one in _counts(reader, selected, "caller") if one["name"]],
        "series": _series(reader, selected, period.buckets(first, now)) if calls else [],
        "latency": msgspec.structs.asdict(read_spread(spread)),
    }


def _tools(reader: StatsReader, selected: CallFilter) -> list[ToolRow]:
    rows = msgspec.structs.replace(selected, there=True).query(
        reader,
        f"tool, {{latest_source}}, max(at), {_NUMBERS}",
        "GROUP BY tool ORDER BY count(*) DESC, tool LIMIT :most",
    )
    return [_tool(*row) for row in rows]


def _tool(
    tool: str, source: str, last: float, calls: int, errors: int, tokens_in: int, tokens_out: int, spread: str
) -> ToolRow:
    durations = read_spread(spread)
    return {
        "tool": tool,
        "source": source,
        "calls": calls,
        "errors": errors,
        "success_rate": _rate(calls, errors),
        "median_ms": durations.p50 or 0.0,
        "p95_ms": durations.p95 or 0.0,
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "last_called": iso(last),
    }


def _errors(reader: StatsReader, selected: CallFilter) -> list[ErrorRow]:
    rows = msgspec.structs.replace(selected, failed=True).query(
        reader,
        "tool, code, reason, count(*), max(at)",
        "GROUP BY {tool}, code, reason ORDER BY 4 DESC, 1, 2 NULLS FIRST, 3 NULLS FIRST LIMIT :most",
    )
    return [
        {"tool": tool, "code": code or "", "reason": reason, "count": count, "last": iso(last)}
        for tool, code, reason, count, last in rows
    ]


def _counts(reader: StatsReader, selected: CallFilter, column: str) -> list[Count]:
    rows = selected.query(reader, f"{column}, count(*)", "GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT :most")
    return [{"name": name, "calls": calls} for name, calls in rows]


def _series(reader: StatsReader, selected: CallFilter, starts: range) -> list[Bucket]:
    """Return every bucket, also those without a call. The first one has only the calls of the period."""
    rows = selected.query(reader, f"{{bucket}}, {_NUMBERS}", "GROUP BY 1", bucket=starts.step)
    found: dict[int, Sequence[Any]] = {number * starts.step: rest for number, *rest in rows}
    return [_bucket(start, *found.get(start, _NOTHING)) for start in starts]


def _bucket(start: float, calls: int, errors: int, tokens_in: int, tokens_out: int, spread: str | None) -> Bucket:
    durations = read_spread(spread)
    return {
        "start": iso(start),
        "calls": calls,
        "errors": errors,
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "p50_ms": durations.p50,
        "p95_ms": durations.p95,
        "p99_ms": durations.p99,
    }


def _rate(calls: int, errors: int) -> float:
    return round(100 * (calls - errors) / calls, 1)
