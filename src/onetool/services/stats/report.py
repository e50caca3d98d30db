"""Renders a summary of the stats as one HTML page that loads nothing.

Names of tools, errors and clients are untrusted: every text goes through `safe`, and a content security policy allows
the page's own style and script by their hashes and nothing else.
"""

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from onetool.services.stats.formatting import (
    PERIOD_TITLES,
    clipped,
    counted,
    decade,
    duration,
    moment,
    percent,
    safe,
    short,
    span,
    tick,
    whole,
)
from onetool.services.stats.report_charts import (
    Bar,
    ChartPoint,
    bars,
    behind,
    card,
    columns,
    count_axis,
    decade_axis,
    legend,
    line_legend,
    lines,
    sortable,
)

if TYPE_CHECKING:
    from onetool.services.stats.summary import Bucket, Count, ErrorRow, Summary, ToolRow


_MOST_TOOLS = 12
_MOST_ERRORS = 8  # of two lines each
_MOST_CALLERS = 6
_LONGEST = 44  # characters of a name beside a bar

Row = TypeVar("Row")


def by_tool(tools: "Sequence[ToolRow]") -> str:
    shown, rest = _folded(tools, _MOST_TOOLS)
    rows = [_of_calls(_name(one["tool"]), safe(one["tool"]), one["calls"], one["errors"]) for one in shown]
    if rest:
        name = f"{whole(len(rest))} others"
        rows.append(
            _of_calls(f"<em>{name}</em>", name, sum(one["calls"] for one in rest), sum(one["errors"] for one in rest))
        )
    drawn = bars("Calls by tool", rows, ("tool", "calls"))
    return card("By tool", legend(("ok", "went well"), ("failed", "failed")) + drawn)


def _of_calls(name: str, full_name: str, calls: int, failed: int) -> Bar:
    tip = f"{full_name}: {counted(calls, 'call')}, {whole(failed)} failed"
    return Bar(name, (("ok", calls - failed), ("failed", failed)), whole(calls), tip, full_name)


def errors_by_tool(found: "Sequence[ErrorRow]") -> str:
    if not found:
        return card("Errors", '<p class="good">No call has failed.</p>')
    shown, rest = _folded(found, _MOST_ERRORS)
    rows = [_of_errors(one) for one in shown]
    if rest:
        name, number = f"{whole(len(rest))} other kinds", sum(one["count"] for one in rest)
        rows.append(Bar(f"<em>{name}</em>", (("failed", number),), whole(number), f"{name}: {whole(number)}"))
    everything = (
        (safe(one["tool"]), f"<code>{safe(_why(one))}</code>", whole(one["count"]), moment(one["last"]))
        for one in found
    )
    table = behind("Errors by tool and code", ("tool", "code", "number", "last"), everything)
    return card("Errors", bars("Errors by tool and code", rows, ("tool and code", "number")) + table)


def _why(error: "ErrorRow") -> str:
    return error["reason"] or error["code"]


def _of_errors(error: "ErrorRow") -> Bar:
    full_name = f"{safe(error['tool'])}, {safe(_why(error))}"
    return Bar(
        f"{_name(error['tool'])}<br><code>{_name(_why(error))}</code>",
        (("failed", error["count"]),),
        whole(error["count"]),
        f"{full_name}: {counted(error['count'], 'time')}, the last at {moment(error['last'])}",
        full_name,
    )


def overall_latency(of_all: "dict[str, float | None]") -> str:
    rows = [
        Bar(name, (("ok", value),), duration(value), f"{name}: {duration(value)}")
        for name in ("p50", "p90", "p95", "p99", "max")
        if (value := of_all.get(name)) is not None
    ]
    return card("Latency in all", bars("Latency in all", rows, ("of all calls", "at most")), "narrow") if rows else ""


def callers(doors: "Sequence[Count]", clients: "Sequence[Count]") -> str:
    tables = "".join(
        f"<h3>By {what}</h3>{_by_name(what, rows)}" for what, rows in (("door", doors), ("client", clients)) if rows
    )
    return card("Where calls come from", tables, "narrow") if tables else ""


def _by_name(what: str, rows: "Sequence[Count]") -> str:
    shown, rest = _folded(rows, _MOST_CALLERS)
    drawn = [_of_one(_name(one["name"]) or "<em>no name</em>", safe(one["name"]), one["calls"]) for one in shown]
    if rest:
        name = f"{whole(len(rest))} others"
        drawn.append(_of_one(f"<em>{name}</em>", name, sum(one["calls"] for one in rest)))
    return bars(f"Calls by {what}", drawn, (what, "calls"))


def _of_one(name: str, full_name: str, calls: int) -> Bar:
    tip = f"{full_name or 'no name'}: {counted(calls, 'call')}"
    return Bar(name, (("plain", calls),), whole(calls), tip, full_name)


def _name(text: str) -> str:
    return safe(clipped(text, _LONGEST))


def _folded(rows: Sequence[Row], most: int) -> tuple[Sequence[Row], Sequence[Row]]:
    """The first ones, and those to fold: never one alone, which would take as much room as itself."""
    return (rows, ()) if len(rows) <= most + 1 else (rows[:most], rows[most:])


# Charts over time: calls, latencies and tokens


_PERCENTILES = ("p50", "p95", "p99")
_SHARES = ("half", "95 of 100", "99 of 100")


def calls_over_time(series: "Sequence[Bucket]", period: str) -> str:
    if not series:
        return ""
    most = max(one["calls"] for one in series)
    places = [
        ChartPoint(
            tick(one["start"], period),
            f"{span(one['start'], period)}: {counted(one['calls'], 'call')}, {whole(one['errors'])} failed",
            (one["calls"] - one["errors"], one["errors"]),
        )
        for one in series
    ]
    total, failed = sum(one["calls"] for one in series), sum(one["errors"] for one in series)
    title = f"Calls over time: {whole(total)} in all, {whole(failed)} failed, {whole(most)} at the most in one column"
    chart = columns(title, ("ok", "failed"), places, count_axis(most), short)
    rows = ((span(one["start"], period), whole(one["calls"]), whole(one["errors"])) for one in series)
    table = behind("Calls over time", ("from", "calls", "failed"), rows)
    return card("Calls over time", legend(("ok", "went well"), ("failed", "failed")) + chart + table, "full")


def latency_over_time(series: "Sequence[Bucket]", period: str) -> str:
    measured = [value for one in series for value in _percentiles(one) if value is not None]
    if not measured:
        return ""
    places = [ChartPoint(tick(one["start"], period), _tooltip(one, period), _percentiles(one)) for one in series]
    title = f"Latency over time: p50, p95 and p99, between {duration(min(measured))} and {duration(max(measured))}"
    chart = lines(title, _PERCENTILES, places, decade_axis(measured), decade)
    rows = ((span(one["start"], period), *map(duration, _percentiles(one))) for one in series)
    table = behind("Latency over time", ("from", *_PERCENTILES), rows)
    named = ((name, f"{name}: {share} took no longer") for name, share in zip(_PERCENTILES, _SHARES, strict=True))
    return card("Latency over time", line_legend(*named) + chart + table, "wide")


def tokens_over_time(series: "Sequence[Bucket]", period: str) -> str:
    most = max((one["tokens_in"] + one["tokens_out"] for one in series), default=0)
    if not most:
        return card("Tokens", "<p>None were counted.</p>", "wide")
    places = [
        ChartPoint(
            tick(one["start"], period),
            f"{span(one['start'], period)}: {whole(one['tokens_in'])} tokens in, {whole(one['tokens_out'])} out",
            (one["tokens_in"], one["tokens_out"]),
        )
        for one in series
    ]
    into, out = (short(sum(one[way] for one in series)) for way in ("tokens_in", "tokens_out"))
    chart = columns(f"Tokens over time: {into} in, {out} out", ("in", "out"), places, count_axis(most), short)
    rows = ((span(one["start"], period), whole(one["tokens_in"]), whole(one["tokens_out"])) for one in series)
    table = behind("Tokens over time", ("from", "in", "out"), rows)
    return card(
        "Tokens", legend(("in", f"in, to tools: {into}"), ("out", f"out, from tools: {out}")) + chart + table, "wide"
    )


def _percentiles(bucket: "Bucket") -> tuple[float | None, float | None, float | None]:
    return bucket["p50_ms"], bucket["p95_ms"], bucket["p99_ms"]


def _tooltip(bucket: "Bucket", period: str) -> str:
    values = zip(_PERCENTILES, _percentiles(bucket), strict=True)
    return f"{span(bucket['start'], period)}: {', '.join(f'{name} {duration(value)}' for name, value in values)}"


# The sections of the report


# The heads of the table of tools, and whether a column is of numbers.
_HEADS = (
    ("tool", False),
    ("from", False),
    ("calls", True),
    ("failed", True),
    ("success", True),
    ("median", True),
    ("p95", True),
    ("tokens in", True),
    ("tokens out", True),
    ("last called", False),
)


def sections(summary: "Summary") -> str:
    series, period = summary["series"], summary["period"]
    return (
        _tiles(summary)
        + calls_over_time(series, period)
        + by_tool(summary["tools"])
        + errors_by_tool(summary["errors"])
        + latency_over_time(series, period)
        + overall_latency(summary["latency"])
        + tokens_over_time(series, period)
        + callers(summary["doors"], summary["clients"])
        + _all_tools(summary["tools"])
    )


def empty(summary: "Summary") -> str:
    """For a time without a call."""
    whose = f" of {safe(summary['tool'])}" if summary["tool"] else ""
    if summary["period"] == "all":
        title, hint = f"No calls{whose} yet", "Call a first one: <code>onetool tools invoke time.now</code>"
    else:
        title, hint = (
            f"No calls{whose} in this time",
            "A longer time may have some: <code>onetool stats --period all</code>",
        )
    promise = "When tools are called, this page shows how often, how well and how fast."
    return card(title, f"<p>{promise}</p><p>{hint}</p>", "full empty")


def _tiles(summary: "Summary") -> str:
    failed = sum(tool["errors"] for tool in summary["tools"])
    runs = (
        f"{whole(summary['calls_in_runs'])} of them in {counted(summary['runs'], 'run')} of code"
        if summary["runs"]
        else ""
    )
    tiles = (
        ("Calls", whole(summary["total_calls"]), runs),
        ("Success rate", percent(summary["success_rate"]), f"{whole(failed)} failed" if failed else "none failed"),
        ("Context saved", f"{short(summary['context_saved'])} <small>tokens</small>", "estimated"),
        ("Time saved", duration(summary["time_saved_ms"]), "estimated"),
    )
    drawn = "".join(f"<div><h2>{name}</h2><p>{value}</p><p>{more}</p></div>" for name, value, more in tiles)
    return f'<section class="tiles" aria-label="In short">{drawn}</section>\n'


def _all_tools(tools: "Sequence[ToolRow]") -> str:
    rows = (
        (
            safe(one["tool"]),
            safe(one["source"] or "–"),
            whole(one["calls"]),
            whole(one["errors"]),
            percent(one["success_rate"]),
            (duration(one["median_ms"]), one["median_ms"] or 0),
            (duration(one["p95_ms"]), one["p95_ms"] or 0),
            whole(one["tokens_in"]),
            whole(one["tokens_out"]),
            safe((one["last_called"] or "–")[:16].replace("T", " ")),
        )
        for one in tools
    )
    return card(f"Tools ({whole(len(tools))})", sortable("Tools", _HEADS, rows), "full all-tools")


# The page: one file that loads nothing from elsewhere


# Every report has it among its first bytes: what has it may be written over by the next one.
MARK = '<meta name="generator" content="onetool stats">'
# Patterns, so that what failed and what came out are told apart without colours, too.
_PATTERNS = (
    '<svg class="patterns" aria-hidden="true" width="0" height="0"><defs>'
    '<pattern id="failed" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="ground" width="5" height="5"/><rect class="stripe" width="1.6" height="5"/></pattern>'
    '<pattern id="out" width="5" height="5" patternUnits="userSpaceOnUse">'
    '<rect class="ground" width="5" height="5"/><circle class="stripe" cx="2.5" cy="2.5" r="1.1"/></pattern>'
    "</defs></svg>"
)


def report(summary: "Summary") -> str:
    """The whole page, as text to write into a file (UTF-8)."""
    style, script = _part("report.css"), _part("report.js")
    title = "OneTool stats" if summary["tool"] is None else f"OneTool stats: {safe(summary['tool'])}"
    body = sections(summary) if summary["total_calls"] else empty(summary)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"{MARK}\n"
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'<link rel="icon" href="data:,">\n<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n'
        f"{_PATTERNS}\n<header><h1>{title}</h1><p>{_about(summary)}</p></header>\n<main>\n{body}</main>\n{_FOOTER}\n"
        f'<div id="tip" role="status" hidden></div>\n<script>{script}</script>\n</body>\n</html>\n'
    )


_FOOTER = (
    "<footer><p>Times are in UTC. Tokens are estimated: a quarter of the bytes. What was saved is estimated from"
    " what was measured; the docs of OneTool say how.</p></footer>"
)


def _about(summary: "Summary") -> str:
    since = f"{moment(summary['since'])} to " if summary["since"] else "until "
    return f"{PERIOD_TITLES.get(summary['period'], safe(summary['period']))}: {since}{moment(summary['until'])} UTC"


@cache
def _part(name: str) -> str:
    return f"\n{Path(__file__).with_name(name).read_text(encoding='utf-8')}"


def _policy(style: str, script: str) -> str:
    """Nothing may be loaded, sent or run but the two parts of the page that have these hashes."""
    return (
        f"default-src 'none'; style-src {_hashed(style)}; script-src {_hashed(script)}; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _hashed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
