"""What has moved between two runs: `python -m bench compare A.json B.json`.

Ratios come first, since the runs may be of different machines: they are compared where there is a peer or a yardstick.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.page_of_results import shown, times
from bench.results import Results, read
from bench.table import Row, show

NOISE = 0.10  # what moves by less is noise
MOST_NAMED = 20  # rows that are in one of the files only


class Move(NamedTuple):
    """`factor` is how many times better it is now; under 1 it is worse."""

    what: str
    before: str
    after: str
    factor: float


def compare(first: Path, second: Path) -> None:
    try:
        before, after = read(first), read(second)
    except (OSError, msgspec.MsgspecError) as error:
        sys.exit(f"These are no two files that `python -m bench --json FILE` has written: {error}")
    moved = sorted(moves(before, after), key=lambda move: move.factor)
    cells = [[move.what, move.before, move.after, f"{move.factor:.2f}"] for move in moved]
    if cells:
        show(f"What has moved by over {NOISE:.0%}, the worst first", ["", "before", "after", "× better"], cells)
    else:
        print(f"Of what is in both, nothing has moved by over {NOISE:.0%}.")
    for title, names in (("Only before", _only(before, after)), ("Only after", _only(after, before))):
        if names:
            print("\n".join([f"\n{title}:", *(f"  {name}" for name in names[:MOST_NAMED])]))
        if len(names) > MOST_NAMED:
            print(f"  and {len(names) - MOST_NAMED} more")


def moves(before: Results, after: Results) -> Iterator[Move]:
    olds, news = _rows(before), _rows(after)
    for name, new in news.items():
        if name in olds:
            yield from filter(_counts, _of_row(name, olds[name], new))


def _of_row(name: str, old: Row, new: Row) -> Iterator[Move]:
    beside = {**new.peers, **new.floors}
    known = {**old.peers, **old.floors}
    both = [other for other in beside if other in known]
    for other in both:
        was, now = known[other], beside[other]
        if was.ratio and now.ratio:
            yield Move(f"{name}, beside {other}", times(was.ratio), times(now.ratio), now.ratio / was.ratio)
    if not both and old.ours and new.ours:
        factor = new.ours / old.ours if new.more else old.ours / new.ours
        yield Move(name, shown(old.ours, old.unit), shown(new.ours, new.unit), factor)


def _counts(move: Move) -> bool:
    return not 1 / (1 + NOISE) <= move.factor <= 1 + NOISE


def _rows(results: Results) -> dict[str, Row]:
    return {f"{subject}: {row.what}": row for subject, of in results.items() for row in of.rows}


def _only(some: Results, others: Results) -> list[str]:
    known = _rows(others)
    return [name for name in _rows(some) if name not in known]
