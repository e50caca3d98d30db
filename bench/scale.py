"""10,000 and 100,000 tools in bundles: starts, queries, changes and memory, each beside what we aim at.

One run, one machine, ours alone: this says how we grow. `bundles` sets us beside others, and floors.
"""

import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

from bench.bundles_made import ADDING, bundle_id, write_home
from bench.bundles_stage import Serving, machine
from bench.table import OURS, Row, row, show
from onetool import App
from onetool.services.search import meaning

SIZES = (10_000, 100_000)
AIMS: Mapping[str, tuple[str, float, float]] = {
    "serve to its first list": ("s", 0.5, 1.5),
    "serve to its first search": ("s", 0.5, 1.5),
    "the same with no cache": ("s", 3.0, 20.0),
    "memory of serve": ("MB", 60, 400),
    "REST search, plain": ("ms", 1, 5),
    "REST search, a typo": ("ms", 2, 10),
    "ot.search, words, plain": ("ms", 1, 5),
    "ot.search, words, a typo": ("ms", 2, 10),
    "ot.search, meanings, plain": ("ms", 1, 5),
    "ot.search, meanings, a typo": ("ms", 2, 10),
    "a change is found over REST": ("ms", 5, 5),
    "a change is found by ot.search": ("ms", 5, 5),
}
"""What is measured: its unit, and the aims at the two sizes."""

STARTS, CALLS, CHANGES = 3, 15, 9
SETTLED_S = 2.2  # a file that was written a moment ago is read again at the next look
SAID = {"plain": "list the invoice of a customer", "a typo": "list the invocie of a custmer"}  # to ot.search
TYPED = {"plain": "customer", "a typo": "custmer"}  # into a box
HERE = (sys.executable, "-m", "onetool")  # the source that is measured is the one that is imported here

Taken = dict[str, list[float]]


def run(sizes: tuple[int, ...] = SIZES) -> Iterator[Row]:
    os.environ.pop("ONETOOL_HOME", None)  # each has its own
    found: dict[int, Taken] = {}
    with TemporaryDirectory() as folder:
        for size in sizes:
            home = Path(folder) / str(size)
            write_home(home, size)
            sleep(SETTLED_S)
            found[size] = {**_served(home), **_searched(home)}
    rows: list[list[str]] = []
    for what, (unit, *aims) in AIMS.items():
        cells = [f"{what}, {unit}"]
        for size, aim in zip(SIZES, aims, strict=True):
            if size in found:
                one = row(f"{what}, {size:,} tools", unit, {OURS: found[size][what]}, aim=f"at most {aim:g}")
                cells += [f"{one.ours:.{1 if one.ours >= 10 else 2}f}", f"{aim:g}", "" if one.ours <= aim else "missed"]
                yield one
        rows.append(cells)
    columns = ["", *(cell for size in found for cell in (f"{size:,} tools", "aim", ""))]
    show(f"Bundles at size, medians, on {machine()}", columns, rows)


# Starts and memory


def _served(home: Path) -> Taken:
    with Serving(home, command=HERE) as server:  # makes the caches
        _settled(server)
    lists, searches = list[float](), list[float]()
    for _ in range(STARTS):
        lists.append(_first(home, "/tools/tools"))
        searches.append(_first(home, "/tools/tools/search?q=invoice"))
    rest: Taken = {}
    with Serving(home, command=HERE) as server:
        _settled(server)
        for name, query in TYPED.items():
            target = f"/tools/tools/search?q={query}&pageSize=20"
            rest[f"REST search, {name}"] = _times(lambda target=target: server.rest.ask("GET", target))
        memory = [_megabytes(server.process.pid)]
    shutil.rmtree(home / "bundles" / ".state")
    cold = [_first(home, "/tools/tools")]
    return {
        "serve to its first list": lists,
        "serve to its first search": searches,
        "the same with no cache": cold,
        "memory of serve": memory,
        **rest,
    }


def _first(home: Path, target: str) -> float:
    began = perf_counter()
    with Serving(home, command=HERE) as server:
        server.rest.ask("GET", target)
        return perf_counter() - began


def _settled(server: Serving) -> None:
    """What goes on in the background has ended when it has used no time for a while."""
    server.rest.ask("GET", "/tools/tools/search?q=invoice")
    used = -1.0
    while used != (used := _processor(server.process.pid)):
        sleep(3)


def _processor(pid: int) -> float:
    """Tenths of a second that it has used: the look for changed files goes on for ever."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) // os.sysconf("SC_CLK_TCK")


def _megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


# Queries and changes


def _searched(home: Path) -> Taken:
    gc.set_threshold(50_000)  # as `onetool` has it
    found: Taken = {}
    load_table = meaning.load_table
    with App.open(home / "onetool.yaml") as app:
        for kind, load in (("words", lambda: None), ("meanings", load_table)):
            meaning.load_table = load
            app.catalog._index = None  # pyright: ignore[reportPrivateUsage]
            for name, query in SAID.items():
                found[f"ot.search, {kind}, {name}"] = _times(lambda query=query: app.search(query))
        changed = [_after_a_change(app) for _ in range(CHANGES)]
    found["a change is found over REST"], found["a change is found by ot.search"] = map(
        list, zip(*changed, strict=True)
    )
    return found


def _times(way: Callable[[], object]) -> list[float]:
    for _ in range(3):
        way()
    taken: list[float] = []
    for _ in range(CALLS):
        began = perf_counter()
        way()
        taken.append(perf_counter() - began)
    return taken


_fresh = count()


def _after_a_change(app: App) -> tuple[float, float]:
    slug = f"fresh-{next(_fresh)}"
    app.bundles.put_tool(bundle_id(0), slug, "1.0", ADDING)
    began = perf_counter()
    assert app.bundles.search(slug, limit=1)[0][0]["slug"] == slug
    rest = perf_counter()
    assert app.search(slug)[0][0].name.endswith(slug.replace("-", "_"))
    return rest - began, perf_counter() - rest


if __name__ == "__main__":
    list(run())
