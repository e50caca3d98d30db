"""Renders a summary of the stats as one HTML page that loads nothing: `report.html.jinja`, filled with data.

Names of tools, errors and clients are untrusted: every text goes through `safe`, and a content security policy allows
the page's own style and script by their hashes and nothing else.
"""

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from onetool.core.errors import cut
from onetool.services.stats.formatting import (
    PERIOD_TITLES,
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
    Part,
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


def by_tool(tools: "Sequence[ToolRow]") -> Part:
    shown, rest = _folded(tools, _MOST_TOOLS)
    rows = [_of_calls(_name(one["tool"]), safe(one["tool"]), one["calls"], one["errors"]) for one in shown]
    if rest:
        name = f"{whole(len(rest))} others"
        rows.append(
            _of_calls(f"<em>{name}</em>", name, sum(one["calls"] for one in rest), sum(one["errors"] for one in rest))
        )
    drawn = bars("Calls by tool", rows, ("tool", "calls"))
    return card("By tool", "", legend(("ok", "went well"), ("failed", "failed")), drawn)


def _of_calls(name: str, full_name: str, calls: int, failed: int) -> Bar:
    tip = f"{full_name}: {counted(calls, 'call')}, {whole(failed)} failed"
    return Bar(name, (("ok", calls - failed), ("failed", failed)), whole(calls), tip, full_name)


def errors_by_tool(found: "Sequence[ErrorRow]") -> Part:
    if not found:
        return card("Errors", "", '<p class="good">No call has failed.</p>')
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
    return card("Errors", "", bars("Errors by tool and code", rows, ("tool and code", "number")), table)


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


def overall_latency(of_all: "dict[str, float | None]") -> Part | None:
    rows = [
        Bar(name, (("ok", value),), duration(value), f"{name}: {duration(value)}")
        for name in ("p50", "p90", "p95", "p99", "max")
        if (value := of_all.get(name)) is not None
    ]
    return card("Latency in all", "narrow", bars("Latency in all", rows, ("of all calls", "at most"))) if rows else None


def sources_of_calls(summary: "Summary") -> Part | None:
    tables = [
        part
        for what, rows in (
            ("door", summary["doors"]),
            ("client", summary["clients"]),
            ("caller", summary["callers"]),
        )
        if rows
        for part in (f"<h3>By {what}</h3>", _by_name(what, rows))
    ]
    return card("Where calls come from", "narrow", *tables) if tables else None


def _by_name(what: str, rows: "Sequence[Count]") -> Part:
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
    return safe(cut(text, _LONGEST))


def _folded(rows: Sequence[Row], most: int) -> tuple[Sequence[Row], Sequence[Row]]:
    """The first ones, and those to fold: never one alone, which would take as much room as itself."""
    return (rows, ()) if len(rows) <= most + 1 else (rows[:most], rows[most:])


# Charts over time: calls, latencies and tokens


_PERCENTILES = ("p50", "p95", "p99")
_SHARES = ("half", "95 of 100", "99 of 100")


def calls_over_time(series: "Sequence[Bucket]", period: str) -> Part | None:
    if not series:
        return None
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
    return card("Calls over time", "full", legend(("ok", "went well"), ("failed", "failed")), chart, table)


def latency_over_time(series: "Sequence[Bucket]", period: str) -> Part | None:
    measured = [value for one in series for value in _percentiles(one) if value is not None]
    if not measured:
        return None
    places = [ChartPoint(tick(one["start"], period), _tooltip(one, period), _percentiles(one)) for one in series]
    title = f"Latency over time: p50, p95 and p99, between {duration(min(measured))} and {duration(max(measured))}"
    chart = lines(title, _PERCENTILES, places, decade_axis(measured), decade)
    rows = ((span(one["start"], period), *map(duration, _percentiles(one))) for one in series)
    table = behind("Latency over time", ("from", *_PERCENTILES), rows)
    named = ((name, f"{name}: {share} took no longer") for name, share in zip(_PERCENTILES, _SHARES, strict=True))
    return card("Latency over time", "wide", line_legend(*named), chart, table)


def tokens_over_time(series: "Sequence[Bucket]", period: str) -> Part:
    most = max((one["tokens_in"] + one["tokens_out"] for one in series), default=0)
    if not most:
        return card("Tokens", "wide", "<p>None were counted.</p>")
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
        "Tokens", "wide", legend(("in", f"in, to tools: {into}"), ("out", f"out, from tools: {out}")), chart, table
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


def sections(summary: "Summary") -> list[Part]:
    series, period = summary["series"], summary["period"]
    cards = (
        calls_over_time(series, period),
        by_tool(summary["tools"]),
        errors_by_tool(summary["errors"]),
        latency_over_time(series, period),
        overall_latency(summary["latency"]),
        tokens_over_time(series, period),
        sources_of_calls(summary),
        _all_tools(summary["tools"]),
    )
    return [one for one in cards if one is not None]


def empty(summary: "Summary") -> Part:
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
    return card(title, "full empty", f"<p>{promise}</p><p>{hint}</p>")


def _tiles(summary: "Summary") -> list[tuple[str, str, str]]:
    """What it is, its value, and what to know about that."""
    failed = sum(tool["errors"] for tool in summary["tools"])
    runs = (
        f"{whole(summary['calls_in_runs'])} of them in {counted(summary['runs'], 'run')} of code"
        if summary["runs"]
        else ""
    )
    return [
        ("Calls", whole(summary["total_calls"]), runs),
        ("Success rate", percent(summary["success_rate"]), f"{whole(failed)} failed" if failed else "none failed"),
        ("Context saved", f"{short(summary['context_saved'])} <small>tokens</small>", "estimated"),
        ("Time saved", duration(summary["time_saved_ms"]), "estimated"),
    ]


def _all_tools(tools: "Sequence[ToolRow]") -> Part:
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
    return card(f"Tools ({whole(len(tools))})", "full all-tools", sortable("Tools", _HEADS, rows))


# The page: one file that loads nothing from elsewhere


# Every report has it among its first bytes: what has it may be written over by the next one.
MARK = '<meta name="generator" content="onetool stats">'


def report(summary: "Summary") -> str:
    """The whole page, as text to write into a file (UTF-8)."""
    from minijinja import Environment  # 25 ms, for those who want a report

    style, script = _part("report.css"), _part("report.js")
    is_filled = bool(summary["total_calls"])
    return Environment(auto_escape_callback=lambda name: False, keep_trailing_newline=True).render_str(
        Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8"),
        mark=MARK,
        policy=_policy(style, script),
        title="OneTool stats" if summary["tool"] is None else f"OneTool stats: {safe(summary['tool'])}",
        style=style,
        script=script,
        about=_about(summary),
        tiles=_tiles(summary) if is_filled else [],
        cards=sections(summary) if is_filled else [empty(summary)],
    )


def _about(summary: "Summary") -> str:
    since = f"{moment(summary['since'])} to " if summary["since"] else "until "
    whose = "" if summary["caller"] is None else f", calls of {safe(summary['caller']) or 'the command line'}"
    period = PERIOD_TITLES.get(summary["period"], safe(summary["period"]))
    return f"{period}: {since}{moment(summary['until'])} UTC{whose}"


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
