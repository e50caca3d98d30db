"""`spread(column)` for SQLite: median, percentiles and maximum as JSON. PostgreSQL has built-in percentiles."""

import json
from array import array
from collections import Counter
from itertools import accumulate, repeat

MAX_SORTED = 500_000  # further values are rounded to three digits and counted


class SpreadAggregate:
    def __init__(self) -> None:
        self._values = array("d")
        self.step = self._values.append  # called for every row, so no wrapper

    def finalize(self) -> str | None:
        number = len(self._values)
        if not number:
            return None
        ranks = {"p50": (number + 1) // 2, **{f"p{p}": -(-number * p // 100) for p in (90, 95, 99)}, "max": number}
        pending = {*ranks.values(), number // 2 + 1}
        values: dict[int, float] = {}  # by rank
        # The values in ascending order, each with the cumulative count
        if number <= MAX_SORTED:
            ordered = ((value, rank) for rank, value in enumerate(sorted(self._values), 1))
        else:
            counts = Counter(map(float, map(format, self._values, repeat(".3g"))))
            ordered = zip(sorted(counts), accumulate(counts[value] for value in sorted(counts)), strict=True)
        for value, count in ordered:
            reached = {rank for rank in pending if rank <= count}
            values |= dict.fromkeys(reached, value)
            pending -= reached
            if not pending:
                break
        median = (values[ranks["p50"]] + values[number // 2 + 1]) / 2
        return json.dumps({**{name: values[rank] for name, rank in ranks.items()}, "p50": median})
