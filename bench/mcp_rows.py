"""Rows of a table that sets us beside the others: each number with its ratio, and marked where it can't be trusted."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from bench.mcp_contenders import FLOORS, PEERS, Contender

NOISY = 1.3  # times the least of all turns is the most: marked with ~
NOTE = "  ~ marks what differed by over 30 % between turns."

Spread = Sequence[float]  # one number a turn
Rivals = Mapping[str, Contender]
Ratio = Callable[[float, float], float]
"""Of ours and theirs."""
YARDSTICKS = [one.title for one in FLOORS.values()]


def titled(found: Mapping[str, Spread], rivals: Rivals) -> dict[str, Spread]:
    """By the names that readers know; ours first."""
    return {rivals[name].title: found[name] for name in rivals if name in found}


def columns(rivals: Rivals, ratio: str) -> list[str]:
    titles = [*(rivals[name].title for name in _called(rivals)), "floor"]
    return ["", rivals["onetool"].title, *(column for title in titles for column in (title, ratio))]


def cells(found: Mapping[str, Spread], rivals: Rivals, unit: str, ratio: Ratio) -> list[str]:
    """Ours, and each of the others with its ratio. The floor is whichever of them was measured."""
    ours = found["onetool"]
    row = [number(ours, unit)]
    floor = next((name for name in FLOORS if name in found), "")
    for name in (*_called(rivals), floor):
        if name not in found:
            row += ["–", "–"]
            continue
        value = ratio(median(ours), median(found[name]))
        row += [number(found[name], unit), f"{value:.{1 if value >= 10 else 2}f}"]
    return row


def number(turns: Spread, unit: str) -> str:
    value, kept = median(turns), sorted(turns)
    if len(kept) > 4:  # then one that is off on each side says nothing
        kept = kept[1:-1]
    noisy = "~" if kept[-1] > kept[0] * NOISY else ""
    match unit:
        case "/s":
            return f"{noisy}{value:,.0f}"
        case "ms":
            return f"{noisy}{value * 1000:.2f}"
        case _:
            return f"{noisy}{value:.3f}"


def _called(rivals: Rivals) -> list[str]:
    """The peers that calls are measured of."""
    return [name for name in PEERS if name in rivals and rivals[name].add]
