"""The charts and tables of the report as data for its template: columns and lines over time, bars, sortable tables.

All texts come in escaped. Positions are percentages, so that charts are as wide as the page and text keeps its size.
`is` says which macro of `report.html.jinja` draws a part.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

HEIGHT = 180  # of every plot, in pixels
_ROUND_STEPS = (1, 2, 2.5, 5, 10)

Part = dict[str, Any]


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
) -> Part:
    """Columns of several parts, the first at the bottom. `series` are their classes."""
    slot = 100 / len(places)
    wide = slot * _WIDE * min(1, len(places) / _FULL)
    parts: dict[str, list[Any]] = {name: [] for name in series}
    for number, place in enumerate(places):
        left, bottom = number * slot + (slot - wide) / 2, float(HEIGHT)
        for name, value in zip(series, place.values, strict=True):
            if value:
                high = max(axis.height(value), _SEEN)
                bottom -= high
                parts[name].append((f"{left:.2f}", f"{bottom:.1f}", f"{wide:.2f}", f"{high:.1f}"))
    return _chart(title, "columns", list(parts.items()), places, axis, mark)


def lines(
    title: str, series: Sequence[str], places: Sequence[ChartPoint], axis: Axis, mark: Callable[[float], str]
) -> Part:
    """One line for each series, broken where it has no value."""
    drawn = [(name, *_line([place.values[index] for place in places], axis)) for index, name in enumerate(series)]
    return _chart(title, "lines", drawn, places, axis, mark)


def _line(values: Sequence[float | None], axis: Axis) -> tuple[str, str]:
    """The paths of the line and of its dots."""
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
    return path, dots


def _chart(
    title: str, kind: str, drawn: list[Any], places: Sequence[ChartPoint], axis: Axis, mark: Callable[[float], str]
) -> Part:
    """With what says its values when it is pointed at: a bucket from top to bottom, so that small ones can be met."""
    heights = [(HEIGHT - axis.height(value), mark(value)) for value in axis.marks]
    slot = 100 / len(places)
    return {
        "is": "chart",
        "kind": kind,
        "title": title,
        "height": HEIGHT,
        "marks": [(f"{y:.1f}", f"{y + 4:.1f}", label) for y, label in heights],
        "places": [(f"{number * slot:.2f}", f"{slot:.2f}", place.tip) for number, place in enumerate(places)],
        "drawn": drawn,
        "labels": _labels(places),
    }


def _labels(places: Sequence[ChartPoint]) -> list[tuple[str, str, str]]:
    """Some of the labels, as far apart as is needed; every other one is for wide pages only."""
    every = max(1, -(-len(places) // _MOST_LABELS))
    shown = range((len(places) - 1) % every // 2, len(places), every)
    return [
        (' class="wide"' if order % 2 else "", f"{(number + 0.5) * 100 / len(places):.2f}", places[number].label)
        for order, number in enumerate(shown)
    ]


# Cards and legends


def card(title: str, kind: str, *parts: Part | str) -> Part:
    return {"title": title, "kind": kind, "parts": parts}


def legend(*entries: tuple[str, str]) -> Part:
    """Which colour and pattern is what: the class that draws it, and what it means."""
    return {"is": "legend", "wide": 14, "entries": entries}


def line_legend(*entries: tuple[str, str]) -> Part:
    return {"is": "legend", "wide": 26, "entries": entries}


# Tables


@dataclass(frozen=True)
class Bar:
    """A row of a chart that is a table: what it is about, its parts with their classes, and what stands behind it."""

    name: str
    parts: Sequence[tuple[str, float]]
    value: str
    tip: str
    full_name: str = ""


def bars(title: str, rows: Sequence[Bar], heads: tuple[str, str]) -> Part:
    """Lying bars, the longest as long as there is room."""
    longest = max((sum(size for _, size in row.parts) for row in rows), default=0) or 1
    return {"is": "bars", "title": title, "heads": heads, "rows": [_bar(row, longest) for row in rows]}


def _bar(row: Bar, longest: float) -> Part:
    drawn: list[tuple[str, str, str]] = []
    left = 0.0
    for kind, size in row.parts:
        if size > 0:
            wide = max(100 * size / longest, 0.6)
            drawn.append((kind, f"{left:.2f}", f"{wide:.2f}"))
            left += wide
    return {"name": row.name, "full_name": row.full_name, "tip": row.tip, "value": row.value, "drawn": drawn}


def behind(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Part:
    """The numbers of a chart as a table."""
    return {"is": "behind", "title": title, "heads": heads, "rows": list(rows)}


def sortable(title: str, heads: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str | tuple[str, float]]]) -> Part:
    """A table that the page's script can sort by each of its columns.

    A head tells whether its column is of numbers; a cell that says a number in words brings it along.
    """
    return {"is": "sortable", "title": title, "heads": heads, "rows": [list(map(_cell, row)) for row in rows]}


def _cell(cell: str | tuple[str, float]) -> tuple[str, str | None]:
    return (cell, None) if isinstance(cell, str) else (cell[0], f"{cell[1]:g}")
