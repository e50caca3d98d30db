"""The charts and tables of the report as HTML: columns and lines over time, horizontal bars, sortable tables.

All texts come in escaped. Positions are percentages, so that charts are as wide as the page and text keeps its size.
Cells and rows have no end tags: HTML needs none, and pages are smaller.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

HEIGHT = 180  # of every plot, in pixels
_ROUND_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Axis:
    """The marks of an axis, bottom up, and the height of any value above its bottom."""

    marks: tuple[float, ...]
    height: Callable[[float], float]


def count_axis(top: float, marks: int = 4) -> Axis:
    """From 0 to the next round number; for whole things, so that no mark stands between two of them."""
    rough = max(top, 1) / marks
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * one for one in _ROUND_STEPS if size * one >= rough * 0.9999)
    step = math.ceil(step) if step < 10 else step
    number = max(1, math.ceil(top / step - 1e-9))
    full = number * step
    return Axis(tuple(step * one for one in range(number + 1)), lambda value: HEIGHT * value / full)


def decade_axis(values: Iterable[float]) -> Axis:
    """From one power of ten to another: latencies of a cache and of a slow site are seen side by side."""
    seen = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(seen)) + 1e-9)
    high = max(low + 1, math.ceil(math.log10(max(seen)) - 1e-9))
    low = max(low, high - 8)

    def height(value: float) -> float:
        share = (math.log10(max(value, 10.0**low)) - low) / (high - low)
        return HEIGHT * min(share, 1.0)

    return Axis(tuple(10.0**one for one in range(low, high + 1)), height)


# Stacked columns and lines


_MOST_LABELS = 8
_FULL = 14  # columns; with fewer of them, each is no wider than it would be among so many
_WIDE = 0.74  # of a column's place
_SEEN = 2.0  # pixels: less would not be seen, and one failure among thousands should be


@dataclass(frozen=True)
class ChartPoint:
    """One bucket: what stands below it, what is said when it is pointed at, and its values, one for each series.

    `label` and `tip` come in ready for a page, like every text here.
    """

    label: str
    tip: str
    values: Sequence[float | None]


def columns(
    title: str, series: Sequence[str], places: Sequence[ChartPoint], axis: Axis, mark: Callable[[float], str]
) -> str:
    """Columns of several parts, the first at the bottom. `series` are their classes."""
    slot = 100 / len(places)
    wide = slot * _WIDE * min(1, len(places) / _FULL)
    parts: dict[str, list[str]] = {name: [] for name in series}
    for number, place in enumerate(places):
        left, bottom = number * slot + (slot - wide) / 2, float(HEIGHT)
        for name, value in zip(series, place.values, strict=True):
            if value:
                high = max(axis.height(value), _SEEN)
                bottom -= high
                parts[name].append(f'<rect x="{left:.2f}%" y="{bottom:.1f}" width="{wide:.2f}%" height="{high:.1f}"/>')
    drawn = "".join(f'<g class="{name}">{"".join(those)}</g>' for name, those in parts.items())
    return _frame(title, "columns", drawn, places, axis, mark)


def lines(
    title: str, series: Sequence[str], places: Sequence[ChartPoint], axis: Axis, mark: Callable[[float], str]
) -> str:
    """One line for each series, broken where it has no value."""
    drawn = "".join(_line(name, [place.values[index] for place in places], axis) for index, name in enumerate(series))
    stretched = f'viewBox="0 0 {len(places)} {HEIGHT}" preserveAspectRatio="none" width="100%" height="{HEIGHT}"'
    return _frame(title, "lines", f"<svg {stretched}>{drawn}</svg>", places, axis, mark)


def _line(name: str, values: Sequence[float | None], axis: Axis) -> str:
    path, dots, alone = "", "", len(values) <= _FULL
    for number, value in enumerate(values):
        if value is None:
            continue
        point = f"{number + 0.5:g} {HEIGHT - axis.height(value):.1f}"
        before = number > 0 and values[number - 1] is not None
        after = number + 1 < len(values) and values[number + 1] is not None
        path += f"{'L' if before else 'M'}{point}"
        if alone or not (before or after):
            dots += f"M{point}h0"  # a line without length, with round ends: a dot, however it is stretched
    return f'<path class="line {name}" d="{path}"/>' + (f'<path class="dot {name}" d="{dots}"/>' if dots else "")


def _pointed_at(places: Sequence[ChartPoint]) -> str:
    """What says its values when it is pointed at: a bucket from top to bottom, so that small ones can be met."""
    slot = 100 / len(places)
    return "".join(
        f'<rect x="{number * slot:.2f}%" width="{slot:.2f}%"><title>{place.tip}</title></rect>'
        for number, place in enumerate(places)
    )


def _frame(
    title: str, kind: str, plot: str, places: Sequence[ChartPoint], axis: Axis, mark: Callable[[float], str]
) -> str:
    heights = [(HEIGHT - axis.height(value), mark(value)) for value in axis.marks]
    grid = "".join(f'<line x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>' for y, _ in heights)
    left = "".join(f'<text x="44" y="{y + 4:.1f}">{label}</text>' for y, label in heights)
    return (
        f'<div class="over-time"><svg class="y" aria-hidden="true" height="{HEIGHT}">{left}</svg>'
        f'<svg class="plot {kind}" role="img" aria-label="{title}" height="{HEIGHT}">'
        f'<g class="at">{_pointed_at(places)}</g><g class="grid">{grid}</g><g class="drawn">{plot}</g></svg>'
        f'<svg class="x" aria-hidden="true" height="22">{_labels(places)}</svg></div>'
    )


def _labels(places: Sequence[ChartPoint]) -> str:
    """Some of the labels, as far apart as is needed; every other one is for wide pages only."""
    every = max(1, -(-len(places) // _MOST_LABELS))
    shown = range((len(places) - 1) % every // 2, len(places), every)
    texts: list[str] = []
    for order, number in enumerate(shown):
        kind = ' class="wide"' if order % 2 else ""
        texts.append(f'<text{kind} x="{(number + 0.5) * 100 / len(places):.2f}%" y="16">{places[number].label}</text>')
    return "".join(texts)


# Cards and legends


def card(title: str, content: str, kind: str = "") -> str:
    return f'<section class="card{kind and " "}{kind}"><h2>{title}</h2>{content}</section>\n'


def legend(*entries: tuple[str, str]) -> str:
    """Which colour and pattern is what: the class that draws it, and what it means."""
    return _legend(
        '<svg aria-hidden="true" width="14" height="12"><rect class="{}" width="14" height="12" rx="2"/></svg>', entries
    )


def line_legend(*entries: tuple[str, str]) -> str:
    return _legend('<svg aria-hidden="true" width="26" height="12"><path class="line {}" d="M0 6H26"/></svg>', entries)


def _legend(drawn: str, entries: tuple[tuple[str, str], ...]) -> str:
    return f'<ul class="legend">{"".join(f"<li>{drawn.format(name)}{words}" for name, words in entries)}</ul>'


# Tables


@dataclass(frozen=True)
class Bar:
    """A row of a chart that is a table: what it is about, its parts with their classes, and what stands behind it."""

    name: str
    parts: Sequence[tuple[str, float]]
    value: str
    tip: str
    full_name: str = ""


def bars(title: str, rows: Sequence[Bar], heads: tuple[str, str]) -> str:
    """Lying bars, the longest as long as there is room."""
    longest = max((sum(size for _, size in row.parts) for row in rows), default=0) or 1
    body = "".join(_bar(row, longest) for row in rows)
    return (
        f'<table class="bars" aria-label="{title}"><thead><tr><th scope="col">{heads[0]}<th aria-hidden="true">'
        f'<th scope="col">{heads[1]}<tbody>{body}</table>'
    )


def _bar(row: Bar, longest: float) -> str:
    drawn, left = "", 0.0
    for kind, size in row.parts:
        if size > 0:
            wide = max(100 * size / longest, 0.6)
            drawn += f'<rect class="{kind}" x="{left:.2f}%" width="{wide:.2f}%" height="14" rx="2"/>'
            left += wide
    name = f' title="{row.full_name}"' if row.full_name and row.full_name != row.name else ""
    return (
        f'<tr><th scope="row"{name}>{row.name}<td class="bar"><svg aria-hidden="true" height="14">'
        f'<g class="at"><rect width="100%"><title>{row.tip}</title></rect></g><g class="drawn">{drawn}</g></svg>'
        f'<td class="n">{row.value}'
    )


def behind(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The numbers of a chart as a table."""
    head = "".join(f'<th scope="col">{one}' for one in heads)
    body = "".join(f"<tr><th>{row[0]}{''.join(f'<td>{cell}' for cell in row[1:])}" for row in rows)
    return (
        f"<details><summary>Show as a table</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
        f'<table class="numbers"><caption>{title}</caption><thead><tr>{head}<tbody>{body}</table></div></details>'
    )


def sortable(title: str, heads: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str | tuple[str, float]]]) -> str:
    """A table that the page's script can sort by each of its columns.

    A head tells whether its column is of numbers; a cell that says a number in words brings it along.
    """
    head = "".join(f'<th scope="col"{" data-number" if number else ""}>{name}' for name, number in heads)
    body = "".join(f'<tr><th scope="row">{row[0]}{"".join(map(_cell, row[1:]))}' for row in rows)
    return (
        f'<div class="scroll tall" tabindex="0" role="region" aria-label="{title}">'
        f'<table class="numbers sortable"><thead><tr>{head}<tbody>{body}</table></div>'
    )


def _cell(cell: str | tuple[str, float]) -> str:
    return f"<td>{cell}" if isinstance(cell, str) else f'<td data-v="{cell[1]:g}">{cell[0]}'
