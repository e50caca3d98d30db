"""Charts of the main ratios, as SVG: bars with their numbers, readable on light and on dark pages."""

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from bench.results import Results
from bench.table import OURS, Row

CHARTS = {
    "speed": "How many times faster OneTool is",
    "start": "How many times sooner OneTool is ready",
    "tokens": "Tokens of a task of two calls over 527 tools",
}
ABSOLUTE = {"tokens"}  # these show figures; the others show ratios
WIDTH, LABEL, VALUE = 980, 480, 90  # of all, of the names at the left, of the numbers at the right
BAR, GAP, TOP, FOOT, EDGE = 20, 8, 48, 12, 14
STYLE = """\
.page{fill:#fff}
text{font:13px system-ui,sans-serif;fill:#1f2328}
.title{font-size:15px;font-weight:600}
.quiet{fill:#59636e}
.ours{fill:#1a7f5a}.peer{fill:#8c959f}.lost{fill:#bc4c00}
.one{stroke:#59636e;stroke-dasharray:3 3}
@media(prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#f0f6fc}.quiet{fill:#9198a1}.ours{fill:#3fb989}.peer{fill:#656c76}
.lost{fill:#f0883e}.one{stroke:#9198a1}}"""


class Bar(NamedTuple):
    label: str
    value: float
    told: str
    kind: str  # ours, peer or lost: its colour


def write(folder: Path, results: Results) -> None:
    """A chart that has nothing to show is not drawn."""
    rows = [row for subject in results.values() for row in subject.rows]
    for name, title in CHARTS.items():
        of_chart = [row for row in rows if row.chart == name]
        bars = list(figures(of_chart) if name in ABSOLUTE else ratios(of_chart))
        if bars:
            (folder / f"bench-{name}.svg").write_text(drawn(title, bars, one=name not in ABSOLUTE))


def ratios(rows: Iterable[Row]) -> Iterator[Bar]:
    """One bar for each peer of a row. Those that beat us are in another colour."""
    for row in rows:
        for name, figure in row.peers.items():
            told = f"{figure.ratio:,.{1 if figure.ratio >= 10 else 2}f} ×"
            yield Bar(f"{row.what} | {name}", figure.ratio, told, "lost" if figure.ratio < 1 else "ours")


def figures(rows: Iterable[Row]) -> Iterator[Bar]:
    """Ours of each row, then each peer once."""
    rows = list(rows)
    for row in rows:
        yield Bar(f"{OURS}, {row.what.rpartition(', ')[2]}", row.ours, f"{row.ours:,.0f}", "ours")
    peers = {name: figure for row in rows for name, figure in row.peers.items()}
    for name, figure in peers.items():
        yield Bar(name, figure.value, f"{figure.value:,.0f}", "peer")


def drawn(title: str, bars: list[Bar], one: bool) -> str:
    """`one` is a line at 1, where both are equal."""
    height = TOP + len(bars) * (BAR + GAP) + FOOT
    room = WIDTH - LABEL - VALUE
    scale = room / max(bar.value for bar in bars)
    described = "; ".join(f"{bar.label.replace(' | ', ', beside ')}: {bar.told}" for bar in bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(described)}</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',  # a dark page may ask for light colours
        f'<text class="title" x="{EDGE}" y="28">{escape(title)}</text>',
        *(part for at, bar in enumerate(bars) for part in _bar(bar, TOP + at * (BAR + GAP), scale)),
    ]
    if one:
        x = LABEL + scale
        parts.append(f'<line class="one" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - FOOT}"/>')
    return "\n".join([*parts, "</svg>", ""])


def _bar(bar: Bar, y: int, scale: float) -> Iterator[str]:
    what, _, peer = bar.label.partition(" | ")
    beside = f' <tspan class="quiet">{escape(peer)}</tspan>' if peer else ""
    length = max(bar.value * scale, 1.0)
    yield f'<text x="{LABEL - 10}" y="{y + 15}" text-anchor="end">{escape(what)}{beside}</text>'
    yield f'<rect class="{bar.kind}" x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>'
    yield f'<text x="{LABEL + length + 6:.1f}" y="{y + 15}">{escape(bar.told)}</text>'
