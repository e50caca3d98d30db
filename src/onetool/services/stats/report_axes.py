"""Where values stand on an axis: round steps for counts, decades for latencies."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

HEIGHT = 180  # of every plot, in pixels
_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Axis:
    """The marks of an axis, bottom up, and the height of any value above its bottom."""

    marks: tuple[float, ...]
    height: Callable[[float], float]


def counts(top: float, marks: int = 4) -> Axis:
    """From 0 to the next round number; for whole things, so that no mark stands between two of them."""
    rough = max(top, 1) / marks
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * one for one in _STEPS if size * one >= rough * 0.9999)
    step = math.ceil(step) if step < 10 else step
    number = max(1, math.ceil(top / step - 1e-9))
    full = number * step
    return Axis(tuple(step * one for one in range(number + 1)), lambda value: HEIGHT * value / full)


def decades(values: Iterable[float]) -> Axis:
    """From one power of ten to another: latencies of a cache and of a slow site are seen side by side."""
    seen = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(seen)) + 1e-9)
    high = max(low + 1, math.ceil(math.log10(max(seen)) - 1e-9))
    low = max(low, high - 8)

    def height(value: float) -> float:
        share = (math.log10(max(value, 10.0**low)) - low) / (high - low)
        return HEIGHT * min(share, 1.0)

    return Axis(tuple(10.0**one for one in range(low, high + 1)), height)
