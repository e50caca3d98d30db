"""A table of measurements on the terminal, and the rows that everything else is made of: page, JSON and charts."""

from collections.abc import Collection, Mapping, Sequence
from statistics import median

import msgspec

OURS = "OneTool"
PARTS = {"s": 1.0, "ms": 1e3, "µs": 1e6, "ns": 1e9}  # of a second: times come in seconds


class Figure(msgspec.Struct, frozen=True):
    """What another one took. `ratio` says how many times better ours is: under 1 we lose."""

    value: float
    ratio: float


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was measured. `peers` do the same as we do; `floors` are the least that could do, or ourselves
    with less to do: nobody loses to those."""

    what: str
    unit: str
    ours: float
    peers: Mapping[str, Figure] = {}
    floors: Mapping[str, Figure] = {}
    more: bool = False  # is better, as of requests a second
    aim: str = ""
    chart: str = ""  # the one that shows it

    def lost_to(self) -> list[str]:
        return [name for name, figure in self.peers.items() if figure.ratio < 1]


def row(
    what: str,
    unit: str,
    turns: Mapping[str, Sequence[float]],
    *,
    floors: Collection[str] = (),
    more: bool = False,
    aim: str = "",
    chart: str = "",
) -> Row:
    """Of what each one took in each turn, ours first; times are in seconds.

    A ratio is the median of those of the turns, since the machine drifts.
    """
    mine, *others = turns
    scale = PARTS.get(unit, 1.0)
    figures = {name: Figure(median(turns[name]) * scale, _ratio(turns[mine], turns[name], more)) for name in others}
    return Row(
        what=what,
        unit=unit,
        ours=median(turns[mine]) * scale,
        peers={name: figure for name, figure in figures.items() if name not in floors},
        floors={name: figure for name, figure in figures.items() if name in floors},
        more=more,
        aim=aim,
        chart=chart,
    )


def _ratio(ours: Sequence[float], theirs: Sequence[float], more: bool) -> float:
    above, below = (ours, theirs) if more else (theirs, ours)
    if len(above) != len(below):
        return median(above) / median(below)
    return median(one / other for one, other in zip(above, below, strict=True))


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    print(f"\n{title}")
    for cells in (columns, ["-" * width for width in widths], *rows):
        padded = [
            cell.ljust(width) if not index else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        print("  " + "  ".join(padded).rstrip())
