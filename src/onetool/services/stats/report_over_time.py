"""Charts over time: stacked columns, and lines. As wide as the page lets them be, with text that keeps its size.

Across, everything stands at percents; only lines need a drawing that is stretched, since their points can't.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onetool.services.stats.report_axes import HEIGHT, Axis

_MOST_LABELS = 8
_FULL = 14  # columns; with fewer of them, each is no wider than it would be among so many
_WIDE = 0.74  # of a column's place
_SEEN = 2.0  # pixels: less would not be seen, and one failure among thousands should be


@dataclass(frozen=True)
class Place:
    """One bucket: what stands below it, what is said when it is pointed at, and its values, one for each series.

    `label` and `tip` come in ready for a page, like every text here.
    """

    label: str
    tip: str
    values: Sequence[float | None]


def columns(
    title: str, series: Sequence[str], places: Sequence[Place], axis: Axis, mark: Callable[[float], str]
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


def lines(title: str, series: Sequence[str], places: Sequence[Place], axis: Axis, mark: Callable[[float], str]) -> str:
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


def _pointed_at(places: Sequence[Place]) -> str:
    """What says its values when it is pointed at: a bucket from top to bottom, so that small ones can be met."""
    slot = 100 / len(places)
    return "".join(
        f'<rect x="{number * slot:.2f}%" width="{slot:.2f}%"><title>{place.tip}</title></rect>'
        for number, place in enumerate(places)
    )


def _frame(title: str, kind: str, plot: str, places: Sequence[Place], axis: Axis, mark: Callable[[float], str]) -> str:
    heights = [(HEIGHT - axis.height(value), mark(value)) for value in axis.marks]
    grid = "".join(f'<line x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>' for y, _ in heights)
    left = "".join(f'<text x="44" y="{y + 4:.1f}">{label}</text>' for y, label in heights)
    return (
        f'<div class="over-time"><svg class="y" aria-hidden="true" height="{HEIGHT}">{left}</svg>'
        f'<svg class="plot {kind}" role="img" aria-label="{title}" height="{HEIGHT}">'
        f'<g class="at">{_pointed_at(places)}</g><g class="grid">{grid}</g><g class="drawn">{plot}</g></svg>'
        f'<svg class="x" aria-hidden="true" height="22">{_labels(places)}</svg></div>'
    )


def _labels(places: Sequence[Place]) -> str:
    """Some of the labels, as far apart as is needed; every other one is for wide pages only."""
    every = max(1, -(-len(places) // _MOST_LABELS))
    shown = range((len(places) - 1) % every // 2, len(places), every)
    texts: list[str] = []
    for order, number in enumerate(shown):
        kind = ' class="wide"' if order % 2 else ""
        texts.append(f'<text{kind} x="{(number + 0.5) * 100 / len(places):.2f}%" y="16">{places[number].label}</text>')
    return "".join(texts)
