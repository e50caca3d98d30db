"""docs/internals/benchmarks.md: one table of all that was measured, and the lines of it that the README quotes."""

import re
from collections.abc import Iterable
from pathlib import Path

from bench.charts import CHARTS
from bench.results import Results, Subject
from bench.table import OURS, Figure, Row

COLUMNS = ("FastMCP", "official SDK")  # peers with a column of their own; the others are named in their cell
BEGIN, END = "<!-- measured: `make bench` writes these lines -->", "<!-- end of what is measured -->"
QUOTED = (  # what the README has of the table …
    "run: a call, of 500 tools",
    "MCP: run(1+1) over HTTP, p50",
    "MCP: add(1, 1) over HTTP, p50",
    "MCP: tools/call, 16 connections",
    "REST: invoke, python tool, 16 connections",
    "tokens: a task of two calls over 527 tools, menu run",
)
SHORT = len(COLUMNS) + 4  # … with so many cells: up to those to whom we lose
RULE = ["---", *["--:"] * (len(COLUMNS) + 2), "---", "--:", "---"]

_A_FIGURE = re.compile(r"(?:under |at most )?([\d.,]+)(?: \w+)?")  # under 0.5 s, at most 60, 500
_A_RATIO = re.compile(r"(?:under )?([\d.]+) × (?:the )?(.+)")  # 5 × the SDK, under 8 × python

HEAD = """\
# Benchmarks

`make bench` measures, and writes this page, [benchmarks.json](benchmarks.json) and the charts: do
not edit them. In each subject, all programs take turns in one run on one machine, which is named
below the table. A figure is the median of the turns, and so is a ratio. The machine's speed drifts,
so a ratio may differ from the ratio of the two figures. **× says how many times better OneTool
is.** Above 1 OneTool is ahead. Below 1 it is behind; if a peer is ahead, the column "behind" names
it. A yardstick is not a peer, but the minimal way to do the job, or OneTool with less to do; "ours
2 ×" says that OneTool's figure is twice that of the yardstick. Compare the ratios: absolute times
depend on the machine.

OneTool runs with its defaults, with stats and an access log. Peers are configured to be as fast as
they can: stateless, in plain JSON, without a log. `make bench-peers` installs them.
`python -m bench compare A.json B.json` shows the differences between two runs.
"""


def page(results: Results) -> str:
    charts = "\n".join(
        f"![{title}](../pictures/bench-{name}.svg)\n" for name, title in CHARTS.items() if _has(results, name)
    )
    table = [_line(_heads()), _line(RULE)]
    for name, subject in results.items():
        table.append(_line([f"**{name}**", *[""] * (len(RULE) - 1)]))
        table += map(line, subject.rows)
    return "\n".join([HEAD, charts, *table, "", _footer(results)])


def line(row: Row) -> str:
    return _line(_cells(row))


def quoted(text: str, results: Results) -> str:
    """The README with the beginnings of today's lines in it."""
    rows = [row for subject in results.values() for row in subject.rows if row.what in QUOTED]
    lines = [_line(cells[:SHORT]) for cells in (_heads(), RULE, *map(_cells, rows))]
    block = "\n".join([BEGIN, "", *lines, "", END])
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: block, text, flags=re.DOTALL)


def _cells(row: Row) -> list[str]:
    peers = [_cell(row.peers.get(name), row.unit) for name in COLUMNS]
    others = {name: figure for name, figure in row.peers.items() if name not in COLUMNS}
    lost = "; ".join(row.lost_to())
    return [
        row.what,
        shown(row.ours, row.unit),
        *peers,
        "; ".join(f"{name}: {_cell(figure, row.unit)}" for name, figure in others.items()),
        lost,
        "; ".join(f"{name}: {_floor(figure, row)}" for name, figure in row.floors.items()),
        f"**missed:** {row.aim}" if is_missed(row) else row.aim,
    ]


def is_missed(row: Row) -> bool:
    """Whether it is certain that ours is not what we aim at. Some aims are said in words that nobody compares."""
    if found := _A_FIGURE.fullmatch(row.aim):
        return row.ours > float(found[1].replace(",", ""))
    if found := _A_RATIO.fullmatch(row.aim):
        wanted, name = float(found[1]), found[2].lower()
        peers = [figure.ratio for peer, figure in row.peers.items() if name in peer.lower()]
        floors = [1 / figure.ratio for floor, figure in row.floors.items() if name in floor.lower()]
        return any(ratio < wanted for ratio in peers) if peers else any(ratio > wanted for ratio in floors)
    return False


def write(folder: Path, results: Results) -> None:
    (folder / "benchmarks.md").write_text(page(results))


def shown(value: float, unit: str) -> str:
    digits = 0 if value >= 100 or value == int(value) else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f} {unit}"


def times(ratio: float) -> str:
    digits = 0 if ratio >= 100 else 1 if ratio >= 10 else 2 if ratio >= 0.1 else 3
    return f"{ratio:,.{digits}f} ×"


def _heads() -> list[str]:
    return ["what", OURS, *COLUMNS, "other peers", "behind", "yardstick", "aim"]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(figure: Figure | None, unit: str) -> str:
    return "" if figure is None else f"{shown(figure.value, unit)}, {times(figure.ratio)}"


def _floor(figure: Figure, row: Row) -> str:
    """How many times as much ours is: what aims are said in."""
    return f"{shown(figure.value, row.unit)}, ours {times(figure.ratio if row.more else 1 / figure.ratio)}"


def _has(results: Results, chart: str) -> bool:
    return any(row.chart == chart and row.peers for subject in results.values() for row in subject.rows)


def _footer(results: Results) -> str:
    """By whom and when; subjects of one run together."""
    runs: dict[str, list[str]] = {}
    for name, subject in results.items():
        runs.setdefault(_told(subject), []).append(name)
    return "".join(f"- {', '.join(names)}: {told}.\n" for told, names in runs.items())


def _told(subject: Subject) -> str:
    taken = subject.taken
    versions = ", ".join(f"{name} {number}" for name, number in taken.versions.items())
    return f"{taken.date}, on {taken.machine}; {versions}"
