"""What the report shows as lying bars: calls by tool, errors, latency in all, and where calls come from.

These charts are tables themselves. The longest bars come first; what is beyond the first ones is folded into one.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from onetool.services.stats.report_parts import card, legend
from onetool.services.stats.report_tables import Bar, bars, behind
from onetool.services.stats.report_words import clipped, counted, duration, moment, safe, whole

if TYPE_CHECKING:
    from onetool.services.stats.shapes import Count, ErrorRow, ToolRow

_TOOLS = 12
_ERRORS = 8  # of two lines each
_CALLERS = 6
_LONGEST = 44  # characters of a name beside a bar

Row = TypeVar("Row")


def by_tool(tools: "Sequence[ToolRow]") -> str:
    shown, rest = _folded(tools, _TOOLS)
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


def errors(found: "Sequence[ErrorRow]") -> str:
    if not found:
        return card("Errors", '<p class="good">No call has failed.</p>')
    shown, rest = _folded(found, _ERRORS)
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


def latency(of_all: "dict[str, float | None]") -> str:
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
    shown, rest = _folded(rows, _CALLERS)
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
