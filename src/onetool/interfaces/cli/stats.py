"""`onetool stats`: shows what was called, how often, and with what outcome: as a table, JSON, or a page with charts."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onetool.interfaces.cli.options import complete_tool, data_options, open_app
from onetool.interfaces.cli.output import counted, echo, print_json, print_table, printable, stdout, wants_json
from onetool.services.journal.formatting import PERIOD_TITLES as NAMED
from onetool.services.journal.formatting import duration, percent, saved, short, whole
from onetool.services.journal.report import report

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.services.journal.summary import Summary

PERIODS = ("day", "week", "month", "all")  # a test compares them with the periods of the stats
MAX_TOOLS = 30
MAX_ERRORS = 5
TEXT_HEADINGS = ("tool", "code", "caller")
GAP = 3  # spaces between two columns
MIN_COLUMNS = 4  # shown even if the terminal is too narrow


@click.command()
@click.option("--period", type=click.Choice(PERIODS), default="all", show_default=True, help="The time to report.")
@click.option("--tool", metavar="NAME", shell_complete=complete_tool, help="Only this tool.")
@click.option("--caller", metavar="NAME", help='Only the calls of this token or `iss|sub`; "" is the command line.')
@click.option(
    "--html",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write an HTML page with charts.",
)
@click.option("--open", "show", is_flag=True, help="Open that page in the browser.")
@data_options
def stats(
    ctx: click.Context, period: str, tool: str | None, caller: str | None, file: Path | None, show: bool, as_json: bool
) -> None:
    """Show what was called, and what it saved."""
    app = open_app(ctx, imports=False)
    summary = _summary(app, period, tool, caller)
    page = _write_page(summary, file) if file or show else None
    if wants_json(as_json):
        print_json({**summary, **({"html_report": str(page)} if page else {})})
    else:
        _print_summary(summary)
        if page:
            echo(f"Report: {printable(page)}")
    if page and show:
        import webbrowser

        if not webbrowser.open(page.as_uri()):
            raise click.ClickException(f"No browser could be opened. The report is in {page}")


def _summary(app: "App", period: str, tool: str | None, caller: str | None) -> "Summary":
    if app.runtime.stats is None:
        raise click.ClickException(
            f"Stats are switched off: stats.enabled is false in {app.config.path}. With true, calls are counted."
        )
    tool = None if tool is None else app.catalog.real_name(tool)
    summary = app.runtime.stats.summary(period, tool, caller)
    if tool is not None and not summary["total_calls"]:
        known = [*app.catalog.registry.names(), *(row["tool"] for row in app.runtime.stats.summary()["tools"])]
        if tool not in known:
            from onetool.interfaces.cli.tools import unknown_tool

            raise unknown_tool(tool, known, app.catalog.why_missing(tool))
    return summary


def _write_page(summary: "Summary", file: Path | None) -> Path:
    """Write the page to `file`, or to a temporary file."""
    page = report(summary)
    try:
        if file is None:  # a temporary file that is not deleted, because the browser reads it later
            import tempfile

            number, name = tempfile.mkstemp(prefix="onetool-stats-", suffix=".html")
            os.close(number)
            file = Path(name)
        path = file.absolute()
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"Cannot write to '{error.filename or file}': {error.strerror or error}") from None
    return path


def _print_summary(summary: "Summary") -> None:
    title = NAMED[summary["period"]] + (f": {summary['tool']}" if summary["tool"] else "")
    if summary["caller"] is not None:
        title += f" ({summary['caller'] or 'the command line'})"
    if not summary["total_calls"]:
        when = " yet" if summary["period"] == "all" else " in this time; --period all looks further back"
        echo(f"{printable(title)}\nNo calls{when}.")
        if summary["context_saved"] > 0:
            echo(f"Context saved by menus: {whole(summary['context_saved'])} tokens (estimated).")
        return
    print_table(title, ("", ""), _in_short(summary))
    tools = summary["tools"]
    heads = ("tool", "calls", "failed", "success", "last called (UTC)", "median", "p95", "tokens in", "tokens out")
    rows = [
        (
            row["tool"],
            whole(row["calls"]),
            whole(row["errors"]),
            percent(row["success_rate"]),
            _minute(row["last_called"]),
            duration(row["median_ms"]),
            duration(row["p95_ms"]),
            short(row["tokens_in"]),
            short(row["tokens_out"]),
        )
        for row in tools[:MAX_TOOLS]
    ]
    _print_aligned(counted(len(tools), "tool"), heads, rows)
    if len(tools) > MAX_TOOLS:
        echo(f"… and {len(tools) - MAX_TOOLS:,} more: --json and --html have all of them.\n")
    if callers := summary["callers"]:
        rows = [(row["name"], whole(row["calls"])) for row in callers[:MAX_TOOLS]]
        _print_aligned(counted(len(callers), "caller"), ("caller", "calls"), rows)
    if errors := summary["errors"]:
        rows = [
            (row["tool"], whole(row["count"]), _minute(row["last"]), row["reason"] or row["code"])
            for row in errors[:MAX_ERRORS]
        ]
        is_cut = len(errors) > MAX_ERRORS
        title = f"Errors: {MAX_ERRORS} of {len(errors):,} kinds (--json has all)" if is_cut else "Errors"
        _print_aligned(title, ("tool", "number", "last (UTC)", "code"), rows)


def _in_short(summary: "Summary") -> list[tuple[str, str]]:
    runs = f" ({whole(summary['calls_in_runs'])} in {counted(summary['runs'], 'run')})" if summary["runs"] else ""
    latency = ", ".join(f"{name} {duration(value)}" for name, value in summary["latency"].items())
    return [
        ("calls", f"{whole(summary['total_calls'])}{runs}"),
        ("success rate", percent(summary["success_rate"])),
        ("context saved", saved(summary["context_saved"], f"{whole(summary['context_saved'])} tokens (estimated)")),
        ("time saved", saved(summary["time_saved_ms"], f"{duration(summary['time_saved_ms'])} (estimated)")),
        ("tokens", f"{whole(summary['tokens_in'])} in, {whole(summary['tokens_out'])} out (estimated)"),
        ("latency", latency),
    ]


def _minute(iso: str) -> str:
    return iso[:16].replace("T", " ")


def _print_aligned(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with text to the left, numbers to the right, and as many columns as fit the terminal."""
    from rich.console import Console

    columns: list[list[str]] = []
    room = Console(file=stdout()).width
    for cells in zip(heads, *rows, strict=True):
        width = max(map(len, cells))
        room -= width + GAP
        if room < 0 and len(columns) >= MIN_COLUMNS:
            break
        columns.append([cell if cells[0] in TEXT_HEADINGS else cell.rjust(width) for cell in cells])
    heads, *rows = zip(*columns, strict=True)
    print_table(title, heads, rows)
