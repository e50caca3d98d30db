"""Percentiles of durations."""

from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, repeat

import msgspec

MOST_EXACT_VALUES = 500_000  # values that are sorted as they are; sorting takes forty bytes for each


class Spread(msgspec.Struct, frozen=True):
    """In milliseconds; all None where there is nothing."""

    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


def read_spread(text: str | None) -> Spread:
    """What `{spread}` of a query gives."""
    found = {} if text is None else msgspec.json.decode(text, type=dict[str, float | None])
    return Spread(**{name: None if value is None else round(value, 3) for name, value in found.items()})


class SpreadOfSqlite:
    """The aggregate function `spread` of SQLite. PostgreSQL has percentiles of its own."""

    def __init__(self) -> None:
        self._values = array("d")
        self.step = self._values.append  # called for every row: nothing of ours in between

    def finalize(self) -> str | None:
        number = len(self._values)
        if not number:
            return None
        ranks = {"p50": (number + 1) // 2, **{f"p{p}": -(-number * p // 100) for p in (90, 95, 99)}, "max": number}
        wanted = {*ranks.values(), number // 2 + 1}
        found: dict[int, float] = {}
        for value, upto in self._ordered():
            reached = {rank for rank in wanted if rank <= upto}
            found |= dict.fromkeys(reached, value)
            wanted -= reached
            if not wanted:
                break
        named = {name: found[rank] for name, rank in ranks.items()}
        median = (found[ranks["p50"]] + found[number // 2 + 1]) / 2
        return msgspec.json.encode({**named, "p50": median}).decode()

    def _ordered(self) -> Iterator[tuple[float, int]]:
        """Values, smallest first, each with how many there are up to it."""
        if len(self._values) <= MOST_EXACT_VALUES:
            return ((value, rank) for rank, value in enumerate(sorted(self._values), 1))
        counts = Counter(map(float, map(format, self._values, repeat(".3g"))))
        return zip(sorted(counts), accumulate(counts[value] for value in sorted(counts)), strict=True)
