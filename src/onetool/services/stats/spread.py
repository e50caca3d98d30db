"""How durations are spread: an aggregate that SQLite calls for each row of a group.

The median is the middle value, or the mean of the two in the middle; the p-th percentile is the smallest value that at
least p percent do not exceed. A value takes eight bytes until its group is through; of very many, three digits count.
"""

import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, repeat

import msgspec

MANY = 500_000  # values that are sorted as they are; sorting takes forty bytes for each


class Spread(msgspec.Struct, frozen=True):
    """In milliseconds; all None where there is nothing."""

    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


def teach(database: sqlite3.Connection) -> None:
    """`spread(column)` in SQL; what comes back is for `read`."""
    database.create_aggregate("spread", 1, _Values)  # pyright: ignore[reportArgumentType] - its stub wants a class of its own


def read(text: str | None) -> Spread:
    return Spread() if text is None else msgspec.json.decode(text, type=Spread)


class _Values:
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
        named = {name: round(found[rank], 3) for name, rank in ranks.items()}
        median = round((found[ranks["p50"]] + found[number // 2 + 1]) / 2, 3)
        return msgspec.json.encode({**named, "p50": median}).decode()

    def _ordered(self) -> Iterator[tuple[float, int]]:
        """Values, smallest first, each with how many there are up to it."""
        if len(self._values) <= MANY:
            return ((value, rank) for rank, value in enumerate(sorted(self._values), 1))
        counts = Counter(map(float, map(format, self._values, repeat(".3g"))))
        return zip(sorted(counts), accumulate(counts[value] for value in sorted(counts)), strict=True)
