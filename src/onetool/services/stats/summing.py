"""What is in the file, summed up. Rows stay where they are: SQLite goes over them, group by group."""

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from onetool.services.stats.periods import Period, iso
from onetool.services.stats.savings import savings
from onetool.services.stats.shapes import Bucket, Count, ErrorRow, Summary, ToolRow
from onetool.services.stats.spread import read, teach

MOST_ROWS = 1000  # tools, errors and clients that are listed: names of tools come from outside, too

_NUMBERS = "count(*), sum(1 - ok), coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0), spread(duration_ms)"

_NOTHING: Sequence[Any] = (0, 0, 0, 0, None)


class Question(msgspec.Struct, frozen=True):
    """Which calls: since when, of which tool, and whether only those that failed, or of tools that there were."""

    since: float | None = None
    tool: str | None = None
    failed: bool = False
    there: bool = False

    def ask(self, database: sqlite3.Connection, wanted: str, further: str = "", **more: Any) -> sqlite3.Cursor:
        """`wanted` and `further` (grouping, order) are our own words; whatever comes from outside is a parameter."""
        limits = {
            "at >= :since": self.since is not None,
            "tool = :tool": self.tool is not None,
            "NOT ok": self.failed,
            "(source != '' OR code IS NOT 'tool_not_found')": self.there,
        }
        those = " AND ".join(limit for limit, holds in limits.items() if holds)
        where = f"WHERE {those}" if those else "NOT INDEXED"  # row after row is quicker than in the order of an index
        return database.execute(
            f"SELECT {wanted} FROM calls {where} {further}",  # noqa: S608
            {"since": self.since, "tool": self.tool, "most": MOST_ROWS, **more},
        )


def facts(database: sqlite3.Connection, those: Question) -> dict[str, Any]:
    """In short: calls, success_rate (percent), median_ms, last_called."""
    teach(database)
    calls, errors, last, spread = those.ask(
        database, "count(*), coalesce(sum(1 - ok), 0), max(at), spread(duration_ms)"
    ).fetchone()
    return {
        "calls": calls,
        "success_rate": _rate(calls, errors) if calls else None,
        "median_ms": read(spread).p50,
        "last_called": iso(last) if calls else None,
    }


def summed(database: sqlite3.Connection, period: Period, tool: str | None, now: float, inline_bytes: int) -> Summary:
    """All of a summary, of one moment: nothing is written between its parts."""
    teach(database)
    those = Question(period.since(now), tool)
    database.execute("BEGIN")
    calls, errors, tokens_in, tokens_out, spread, bytes_in, bytes_out, in_runs, first = those.ask(
        database, f"{_NUMBERS}, coalesce(sum(bytes_in), 0), coalesce(sum(bytes_out), 0), count(run), min(at)"
    ).fetchone()
    saved = savings(database, those.since, tool, inline_bytes)
    return {
        "period": period.name,
        "since": iso(first if those.since is None else those.since) if calls or those.since else None,
        "until": iso(now),
        "tool": tool,
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
        "tools": _tools(database, those),
        "errors": _errors(database, those),
        "doors": _counts(database, those, "door"),
        "clients": [one for one in _counts(database, those, "client") if one["name"]],
        "series": _series(database, those, period.buckets(first, now)) if calls else [],
        "latency": msgspec.structs.asdict(read(spread)),
    }


def _tools(database: sqlite3.Connection, those: Question) -> list[ToolRow]:
    rows = Question(those.since, those.tool, there=True).ask(
        database,
        f"tool, source, max(at), {_NUMBERS}",  # the source is that of the latest call: SQLite goes with max
        "GROUP BY tool ORDER BY count(*) DESC, tool LIMIT :most",
    )
    return [_tool(*row) for row in rows]


def _tool(
    tool: str, source: str, last: float, calls: int, errors: int, tokens_in: int, tokens_out: int, spread: str
) -> ToolRow:
    durations = read(spread)
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


def _errors(database: sqlite3.Connection, those: Question) -> list[ErrorRow]:
    rows = Question(those.since, those.tool, failed=True).ask(
        database,
        "tool, code, reason, count(*), max(at)",
        "GROUP BY +tool, code, reason ORDER BY 4 DESC, 1, 2, 3 LIMIT :most",
    )
    return [
        {"tool": tool, "code": code or "", "reason": reason, "count": count, "last": iso(last)}
        for tool, code, reason, count, last in rows
    ]


def _counts(database: sqlite3.Connection, those: Question, column: str) -> list[Count]:
    rows = those.ask(database, f"{column}, count(*)", "GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT :most")
    return [{"name": name, "calls": calls} for name, calls in rows]


def _series(database: sqlite3.Connection, those: Question, starts: range) -> list[Bucket]:
    """Every bucket, also those without a call. The first one begins before the period does, and has only its calls."""
    rows = those.ask(database, f"CAST(at / :bucket AS INTEGER), {_NUMBERS}", "GROUP BY 1", bucket=starts.step)
    found: dict[int, Sequence[Any]] = {number * starts.step: rest for number, *rest in rows}
    return [_bucket(start, *found.get(start, _NOTHING)) for start in starts]


def _bucket(start: float, calls: int, errors: int, tokens_in: int, tokens_out: int, spread: str | None) -> Bucket:
    durations = read(spread)
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
