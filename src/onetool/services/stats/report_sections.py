"""What the report shows, from top to bottom: tiles, charts with their tables, and the table of tools."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onetool.services.stats.report_bars import by_tool, callers, errors, latency
from onetool.services.stats.report_parts import card
from onetool.services.stats.report_series import calls_over_time, latency_over_time, tokens_over_time
from onetool.services.stats.report_tables import sortable
from onetool.services.stats.report_words import counted, duration, percent, safe, short, whole

if TYPE_CHECKING:
    from onetool.services.stats.shapes import Summary, ToolRow

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
        + errors(summary["errors"])
        + latency_over_time(series, period)
        + latency(summary["latency"])
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
