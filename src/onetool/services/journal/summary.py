"""Summarises a period of the stats: totals, tools, errors, series, percentiles and savings.

    context_saved = Σ over menus sent (tokens of a list of every tool − tokens sent)
                  + Σ over runs with a reply (tokens in and out of its calls − tokens of its code − tokens of the reply)
    time_saved_ms = Σ over runs with n ≥ 2 calls ((n − 1) × g + max(0, durations of its calls − duration of the run))

A value counts at most the bytes that would be sent, since larger values are replaced by a handle. The calls of a failed
run do not count: they would have to be repeated. g is the median time of that client between an answer and its next
call in the same period; 0 if it was never measured. Terms may be negative. A run belongs to the period in which it
ended. For one tool, only runs that called it count, and menus do not.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import floor
from typing import Any, TypedDict

import msgspec

from onetool.core.limits import DAY
from onetool.core.text import LAST_SECOND
from onetool.database import Row
from onetool.services.journal.table import Query

HOUR = 3600
MAX_BUCKETS = 90  # the latest of all


class Period(msgspec.Struct, frozen=True):
    """A period of `seconds` until now; None means all time.

    Buckets of `bucket` seconds begin at whole hours or days.
    """

    name: str
    seconds: int | None
    bucket: int

    def since(self, now: float) -> float | None:
        return None if self.seconds is None else now - self.seconds

    def buckets(self, first: float, now: float) -> range:
        """Return the starts of all buckets. `first` is the time of the first call."""
        earliest = max(first, now - (MAX_BUCKETS - 1) * self.bucket) if self.seconds is None else now - self.seconds
        return range(floor(earliest / self.bucket) * self.bucket, floor(now) + 1, self.bucket)


PERIODS: Mapping[str, Period] = {
    "day": Period("day", DAY, HOUR),
    "week": Period("week", 7 * DAY, 6 * HOUR),
    "month": Period("month", 30 * DAY, DAY),
    "all": Period("all", None, DAY),
}


def iso(at: float) -> str:
    """Return a time in ISO 8601, with seconds. A time out of range becomes the last possible one."""
    return datetime.fromtimestamp(at if 0 <= at <= LAST_SECOND else LAST_SECOND, UTC).isoformat(timespec="seconds")


# The summary


class ToolRow(TypedDict):
    """The figures of a tool. `success_rate` is in percent, with one decimal; `last_called` is ISO 8601 in UTC."""

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
    """The number of a tool's failures with the same cause."""

    tool: str
    code: str
    reason: str | None  # the specific cause, if known
    count: int
    last: str


class Count(TypedDict):
    """The number of calls through an interface, or from a client or caller."""

    name: str
    calls: int


class Bucket(TypedDict):
    """The figures of one hour, six hours or a day. Percentiles are None if there were no calls."""

    start: str
    calls: int
    errors: int
    tokens_in: int
    tokens_out: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class Summary(TypedDict):
    """The figures of a period, for one tool or all. Tools and errors are sorted by frequency."""

    period: str
    since: str | None
    until: str
    tool: str | None
    caller: str | None  # owner of the calls; None: all owners, "": the command line and http.token
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
    callers: list[Count]  # callers with a name
    series: list[Bucket]
    latency: dict[str, float | None]


# Savings, from measured values only

_RUNS = """
WITH those AS (
    SELECT id, client, outcome, ms, (bytes_in + 3) / 4 AS tokens_in FROM events
    WHERE kind = 'run' AND kind <> 'call' AND bytes_in IS NOT NULL
    AND at >= :since AND (CAST(:caller AS text) IS NULL OR owner = :caller) AND (
        CAST(:tool AS text) IS NULL OR id IN (SELECT run FROM events WHERE tool = :tool AND run IS NOT NULL)
    )
), made AS (
    SELECT run, count(*) AS calls, sum(ms) AS ms, sum(
        (CASE WHEN bytes_in < :inline THEN bytes_in ELSE :inline END + 3) / 4
        + (CASE WHEN bytes_out < :inline THEN bytes_out ELSE :inline END + 3) / 4
    ) AS tokens
    FROM events WHERE tool IS NOT NULL AND run IN (SELECT id FROM those) GROUP BY run
), sent AS (
    SELECT run, sum((bytes_out + 3) / 4) AS tokens
    FROM events WHERE kind = 'reply' AND run IN (SELECT id FROM those) GROUP BY run
), saved AS (
    SELECT those.client,
        CASE WHEN sent.tokens IS NOT NULL THEN
            CASE WHEN outcome = 'ok' THEN coalesce(made.tokens, 0) ELSE 0 END - tokens_in - sent.tokens
        END AS tokens,
        CASE WHEN made.calls >= 2 THEN made.calls - 1 END AS turns,
        CASE WHEN made.calls >= 2 THEN made.ms - those.ms END AS side_by_side
    FROM those LEFT JOIN made ON made.run = id LEFT JOIN sent ON sent.run = id
)
SELECT client, CAST(coalesce(sum(tokens), 0) AS bigint), CAST(coalesce(sum(turns), 0) AS bigint),
    coalesce(sum(CASE WHEN side_by_side > 0 THEN side_by_side END), 0), count(*)
FROM saved GROUP BY client
"""
_MENUS = """
SELECT CAST(coalesce(sum((bytes_in + 3) / 4 - (bytes_out + 3) / 4), 0) AS bigint) FROM events
WHERE kind = 'menu' AND kind <> 'call' AND CAST(:tool AS text) IS NULL
AND at >= :since AND (CAST(:caller AS text) IS NULL OR owner = :caller)
"""
_WAITS = """
SELECT client, {spread} FROM events
WHERE kind = 'wait' AND kind <> 'call' AND at >= :since AND (CAST(:caller AS text) IS NULL OR owner = :caller)
GROUP BY client
"""  # `kind <> 'call'` is the condition of an index


def savings(
    query: Query, since: float | None, tool: str | None, inline_bytes: int, caller: str | None = None
) -> dict[str, Any]:
    """Return context_saved, time_saved_ms, and the number of runs. `inline_bytes` limits the size of a value."""
    since = float("-inf") if since is None else since
    asked = {"since": since, "tool": tool, "inline": inline_bytes, "caller": caller}
    gaps = {client: read_spread(spread).p50 or 0.0 for client, spread in query.rows(_WAITS, asked)}
    tokens, milliseconds, runs = query.rows(_MENUS, asked)[0][0], 0.0, 0
    for client, in_runs, turns, side_by_side, count in query.rows(_RUNS, asked):
        tokens += in_runs
        milliseconds += turns * gaps.get(client, 0.0) + side_by_side
        runs += count
    return {"context_saved": tokens, "time_saved_ms": round(milliseconds), "runs": runs}


# Reading the calls

MAX_ROWS = 1000  # listed tools, errors and clients: callers choose the names

ERRORS = "coalesce(sum(CASE WHEN outcome = 'ok' THEN 0 ELSE 1 END), 0)"
_SUM = "CAST(coalesce(sum({}), 0) AS bigint)"  # the sum of bigint is a decimal number in PostgreSQL
_TOKENS = (_SUM.format("(bytes_in + 3) / 4"), _SUM.format("(bytes_out + 3) / 4"))
_NUMBERS = f"count(*), {ERRORS}, {', '.join(_TOKENS)}, {{spread}}"


class CallFilter(msgspec.Struct, frozen=True):
    """A filter for calls. `names` are tools, as JSON; `failed` selects failed calls, `exists` those of real tools."""

    since: float | None = None
    tool: str | None = None
    caller: str | None = None
    interface: str | None = None
    client: str | None = None
    names: str | None = None
    failed: bool = False
    exists: bool = False

    def rows(self, query: Query, columns: str, clauses: str = "", **parameters: Any) -> list[Row]:
        """Query the selected calls. `columns` and `clauses` are trusted SQL; untrusted values must be parameters."""
        conditions = {
            "at >= :since": self.since is not None,
            "tool = :tool": self.tool is not None,
            "owner = :caller": self.caller is not None,
            "via = :interface": self.interface is not None,
            "client = :client": self.client is not None,
            "tool IN ({names})": self.names is not None,
            "outcome <> 'ok'": self.failed,
            "(source <> '' OR outcome <> 'tool_not_found')": self.exists,
        }
        selected = [condition for condition, applies in conditions.items() if applies]
        unordered = "" if selected else "{unordered}"
        where = " AND ".join(["tool IS NOT NULL", *selected])
        return query.rows(
            f"SELECT {columns} FROM events {unordered} WHERE {where} {clauses}",  # noqa: S608
            {**msgspec.structs.asdict(self), "limit": MAX_ROWS, **parameters},
        )


def tool_facts(query: Query, selected: CallFilter) -> dict[str, Any]:
    """Return the facts about a tool: calls, success_rate (percent), median_ms, last_called."""
    ((calls, errors, last, spread),) = selected.rows(query, f"count(*), {ERRORS}, max(at), {{spread}}")
    return {
        "calls": calls,
        "success_rate": _rate(calls, errors) if calls else None,
        "median_ms": read_spread(spread).p50,
        "last_called": iso(last) if calls else None,
    }


def summarize(
    query: Query,
    period: Period,
    tool: str | None,
    now: float,
    inline_bytes: int,
    caller: str | None = None,
) -> Summary:
    """Return a summary. All its parts are from one snapshot."""
    selected = CallFilter(period.since(now), tool, caller)
    ((calls, errors, tokens_in, tokens_out, spread, bytes_in, bytes_out, in_runs, first),) = selected.rows(
        query, f"{_NUMBERS}, {_SUM.format('bytes_in')}, {_SUM.format('bytes_out')}, count(run), min(at)"
    )
    saved = savings(query, selected.since, tool, inline_bytes, caller)
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
        "tools": _tools(query, selected),
        "errors": errors_of(query, selected),
        "doors": counts_of(query, selected, "via"),
        "clients": counts_of(query, selected, "client"),
        "callers": counts_of(query, selected, "owner"),
        "series": series_of(query, selected, period.buckets(first, now)) if calls else [],
        "latency": msgspec.structs.asdict(read_spread(spread)),
    }


def _tools(query: Query, selected: CallFilter) -> list[ToolRow]:
    rows = msgspec.structs.replace(selected, exists=True).rows(
        query,
        f"tool, {{latest_source}}, max(at), {_NUMBERS}",
        "GROUP BY tool ORDER BY count(*) DESC, tool LIMIT :limit",
    )
    return [
        {
            "tool": tool,
            "source": source,
            "calls": calls,
            "errors": errors,
            "success_rate": _rate(calls, errors),
            "median_ms": (durations := read_spread(spread)).p50 or 0.0,
            "p95_ms": durations.p95 or 0.0,
            "tokens_in": tokens_in,
            "tokens_out": tokens_out,
            "last_called": iso(last),
        }
        for tool, source, last, calls, errors, tokens_in, tokens_out, spread in rows
    ]


def errors_of(query: Query, selected: CallFilter) -> list[ErrorRow]:
    rows = msgspec.structs.replace(selected, failed=True).rows(
        query,
        "tool, outcome, reason, count(*), max(at)",
        "GROUP BY {by_tool}, outcome, reason ORDER BY 4 DESC, 1, 2, 3 NULLS FIRST LIMIT :limit",
    )
    return [
        {"tool": tool, "code": code, "reason": reason, "count": count, "last": iso(last)}
        for tool, code, reason, count, last in rows
    ]


def counts_of(query: Query, selected: CallFilter, column: str) -> list[Count]:
    """Return the calls for each value of a column, without unnamed clients and callers."""
    rows = selected.rows(query, f"{column}, count(*)", "GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT :limit")
    return [{"name": name, "calls": calls} for name, calls in rows if name or column == "via"]


def series_of(query: Query, selected: CallFilter, starts: range) -> list[Bucket]:
    """Return every bucket, including empty ones. The first has only the calls of the period."""
    rows = selected.rows(query, f"{{bucket}}, {_NUMBERS}", "GROUP BY 1", bucket=starts.step)
    figures: dict[int, Sequence[Any]] = {number * starts.step: rest for number, *rest in rows}
    series: list[Bucket] = []
    for start in starts:
        calls, errors, tokens_in, tokens_out, spread = figures.get(start, (0, 0, 0, 0, None))
        durations = read_spread(spread)
        series.append(
            {
                "start": iso(start),
                "calls": calls,
                "errors": errors,
                "tokens_in": tokens_in,
                "tokens_out": tokens_out,
                "p50_ms": durations.p50,
                "p95_ms": durations.p95,
                "p99_ms": durations.p99,
            }
        )
    return series


def _rate(calls: int, errors: int) -> float:
    return round(100 * (calls - errors) / calls, 1)


class Spread(msgspec.Struct, frozen=True):
    """Percentiles of durations in milliseconds; all None if there were no calls."""

    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


def read_spread(text: str | None) -> Spread:
    """Return the value of `{spread}` in a query result."""
    found = {} if text is None else msgspec.json.decode(text, type=dict[str, float | None])
    return Spread(**{name: None if value is None else round(value, 3) for name, value in found.items()})
