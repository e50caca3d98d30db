"""Bundles: the store and its REST API as they grow, calls of their tools beside FastMCP's, starts, keeping in step.

What counts are the ratios: sizes, and contenders, take turns in one run. Ours is as it is by default, with stats and an
access log, which goes to a file. `bundles-large` is the store with 100,000 tools too, and takes minutes.
"""

import compileall
import json
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import perf_counter, sleep
from typing import Any

import onetool
from bench.bundles_client import Rest, tool_at
from bench.bundles_invoke import invokes
from bench.bundles_made import ADDING, COMMON, PER_BUNDLE, bundle_id, named, write_home
from bench.bundles_stage import Serving, machine
from bench.bundles_start import ADDER, in_step, starts
from bench.mcp_contenders import ROOT
from bench.mcp_rows import NOTE, number
from bench.table import OURS, Row, row, show
from onetool.sources.bundles.queries import ListQuery
from onetool.sources.bundles.store.store import BundleStore, folder_store
from onetool.sources.bundles.validation import read_tool

SIZES, LARGE = (100, 10_000), 100_000
TURNS, CALLS, SECONDS = 7, 40, 0.4  # so many calls a turn, and no new one after that time
SETTLED_S = 2.2  # a file that was written a moment ago is read again at the next look
MEANWHILE_S, PUT_EVERY_S = 4.0, 0.1
PREFIX, WORD, TYPO = "get-invoice", COMMON, "custmer"

Ways = dict[str, Callable[[], object]]
"""What is measured, by its name."""


def run(sizes: Sequence[int] = SIZES) -> Iterator[Row]:
    # An installed package is compiled by its installer; a checkout that was just edited is not.
    for folder in (Path(onetool.__file__).parent, ROOT / "bench"):
        compileall.compile_dir(str(folder), quiet=2)
    os.environ.pop("ONETOOL_HOME", None)  # each has its own
    with TemporaryDirectory() as folder:
        place = Path(folder)
        homes = yield from _homes(place, sizes)
        yield from _over_rest(homes, place)
        yield from _in_process(homes, place)
        yield from in_step(homes)
        yield from starts(homes, place)
        yield from invokes(place)
    print(NOTE)
    print(f"  The machine in the end: {machine()}.")


def run_large() -> Iterator[Row]:
    return run((*SIZES, LARGE))


# The folders


def _homes(place: Path, sizes: Sequence[int]) -> Generator[Row, None, dict[int, Path]]:
    """Each with so many tools. The index of the files is made here, which is measured."""
    print(f"\nBundles, on {machine()}")
    rows: list[list[str]] = []
    homes: dict[int, Path] = {}
    for size in sizes:
        homes[size] = place / f"{size}-tools"
        write_home(homes[size], size)
        sleep(SETTLED_S)
        cold = _opened(homes[size], size)
        warm = [_opened(homes[size], size) for _ in range(5)]
        rows.append([f"{size:,} tools", f"{cold:.3f}", f"{cold / size * 1e6:,.0f}", number(warm, "s")])
        turns = {OURS: [cold], "with an index": warm}
        yield row(f"a store of {size:,} tools opens without an index", "s", turns, floors=["with an index"])
    columns = ["", "no index yet, s", "µs a tool", "with an index, s"]
    show("Bundles: from a folder of files to the store's first answer", columns, rows)
    return homes


def _opened(home: Path, size: int) -> float:
    began = perf_counter()
    store = folder_store(home / "bundles")
    found = store.tools(ListQuery(limit=100))
    taken = perf_counter() - began
    assert len(found) == min(100, size), f"{len(found)} tools of {size}"
    assert not store.mistakes(), store.mistakes()[:3]
    store.close()
    return taken


# The store, and its REST API


def _over_rest(homes: Mapping[int, Path], place: Path) -> Iterator[Row]:
    with ExitStack() as stack:
        servers = {size: stack.enter_context(Serving(home)) for size, home in homes.items()}
        yield from _grown("over REST", {size: _asking(server.rest, size) for size, server in servers.items()}, place)
        yield from _meanwhile(servers)


def _meanwhile(servers: Mapping[int, Serving]) -> Iterator[Row]:
    """Whether calls have to wait for changes: the app follows each of those."""
    rows: list[list[str]] = []
    for size, server in servers.items():
        quiet = _invoked(server.rest)
        with _puts(server.port):
            busy = _invoked(server.rest)
        marks = [
            f"{times[round((len(times) - 1) * part)] * 1000:.2f}"
            for times in (quiet, busy)
            for part in (0.5, 0.99, 1.0)
        ]
        rows.append([f"{size:,} tools", *marks])
        alone = "alone"
        slow, usual = ([times[round((len(times) - 1) * 0.99)]] for times in (busy, quiet))
        yield row(f"invoke while tools are PUT, {size:,} tools, p99", "ms", {OURS: slow, alone: usual}, floors=[alone])
    columns = ["", "p50", "p99", "slowest", "p50 meanwhile", "p99 meanwhile", "slowest meanwhile"]
    pause = f"{PUT_EVERY_S:g} s"
    show(f"Bundles: invoke, one after the other, alone and while somebody PUTs a tool every {pause}, ms", columns, rows)


def _invoked(rest: Rest) -> list[float]:
    """Sorted."""
    at, args = f"{tool_at(bundle_id(0), named(ADDER))}/invoke", {"args": {"a": 1, "b": 1}}
    taken: list[float] = []
    until = perf_counter() + MEANWHILE_S
    while perf_counter() < until:
        began = perf_counter()
        rest.ask("POST", at, args)
        taken.append(perf_counter() - began)
    return sorted(taken)


@contextmanager
def _puts(port: int) -> Iterator[None]:
    """In a thread, over a connection of its own."""
    rest, over = Rest(port), Event()

    def put() -> None:
        for made in count():
            if over.wait(PUT_EVERY_S):
                return
            rest.ask("PUT", tool_at(bundle_id(0), f"meanwhile-{made}"), ADDING)

    thread = Thread(target=put)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        rest.close()


def _in_process(homes: Mapping[int, Path], place: Path) -> Iterator[Row]:
    with ExitStack() as stack:
        stores = {size: stack.enter_context(_store(home)) for size, home in homes.items()}
        yield from _grown("of the store alone", {size: _calling(one, size) for size, one in stores.items()}, place)


@contextmanager
def _store(home: Path) -> Iterator[BundleStore]:
    store = folder_store(home / "bundles")
    yield store
    store.close()


def _asking(rest: Rest, size: int) -> Ways:
    chance, fresh = Random(size), count()

    def put() -> None:
        rest.ask("PUT", tool_at(bundle_id(0), f"rest-{next(fresh)}"), {**ADDING, "description": "A new one."})

    def get() -> None:
        index = chance.randrange(size)
        rest.ask("GET", tool_at(bundle_id(index // PER_BUNDLE), named(index)))

    return {
        "GET one": get,
        "list, a page of 100": lambda: rest.ask("GET", "/tools/tools?recommendedPageSize=100"),
        f"search, prefix {PREFIX!r}": lambda: rest.ask("GET", f"/tools/tools/search?q={PREFIX}&pageSize=20"),
        f"search, word {WORD!r}": lambda: rest.ask("GET", f"/tools/tools/search?q={WORD}&pageSize=20"),
        f"search, typo {TYPO!r}": lambda: rest.ask("GET", f"/tools/tools/search?q={TYPO}&pageSize=20"),
        "PUT one": put,
    }


def _calling(store: BundleStore, size: int) -> Ways:
    chance, fresh = Random(size), count()

    def put() -> None:
        slug = f"store-{next(fresh)}"
        store.put_tool(bundle_id(0), slug, "1.0", read_tool({**ADDING, "description": "A new one."}, slug, "1.0"))

    def get() -> object:
        index = chance.randrange(size)
        return store.tool(bundle_id(index // PER_BUNDLE), named(index), "1.0")

    return {
        "GET one": get,
        "list, a page of 100": lambda: store.tools(ListQuery(limit=100)),
        f"search, prefix {PREFIX!r}": lambda: store.search(PREFIX, limit=20),
        f"search, word {WORD!r}": lambda: store.search(WORD, limit=20),
        f"search, typo {TYPO!r}": lambda: store.search(TYPO, limit=20),
        "PUT one": put,
    }


def _grown(which: str, ways: Mapping[int, Ways], place: Path) -> Iterator[Row]:
    """A table: what each takes at each size, and how much longer than with the fewest tools."""
    fewest, *others = ways
    rows: list[list[str]] = []
    for name in ways[fewest]:
        least = {"bare": _bare_put(place)} if name == "PUT one" else {}
        turns = _turns({**{str(size): of_one[name] for size, of_one in ways.items()}, **least})
        cells = [name, number(turns[str(fewest)], "ms")]
        few, bare = f"{fewest:,} tools", "write + fsync"
        for size in others:
            cells += [number(turns[str(size)], "ms"), _ratio(turns[str(size)], turns[str(fewest)])]
            beside = {OURS: turns[str(size)], few: turns[str(fewest)], **({bare: turns["bare"]} if least else {})}
            yield row(f"{name} {which}, {size:,} tools", "ms", beside, floors=[few, bare])
        rows.append(
            [*cells, *([number(turns["bare"], "ms"), _ratio(turns[str(fewest)], turns["bare"])] if least else ["", ""])]
        )
    columns = [
        "",
        f"{fewest:,}",
        *(one for size in others for one in (f"{size:,}", "×")),
        "bare write + fsync",
        "ours ×",
    ]
    show(f"Bundles: {which}, one after the other, ms, median of {TURNS} turns", columns, rows)


def _ratio(turns: Sequence[float], least: Sequence[float]) -> str:
    return f"{median(one / other for one, other in zip(turns, least, strict=True)):.2f}"


def _turns(ways: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
    """The median of each turn."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        for _ in range(3):  # warm
            way()
    for _ in range(TURNS):
        for name, way in ways.items():
            taken[name].append(median(_times(way)))
    return taken


def _times(way: Callable[[], object]) -> list[float]:
    taken: list[float] = []
    until = perf_counter() + SECONDS
    while len(taken) < CALLS and (not taken or perf_counter() < until):
        began = perf_counter()
        way()
        taken.append(perf_counter() - began)
    return taken


def _bare_put(place: Path) -> Callable[[], None]:
    """The least that keeps a file through a power cut: written, flushed, renamed, and its folder flushed."""
    folder = place / "bare"
    folder.mkdir(exist_ok=True)
    text: Any = json.dumps({**ADDING, "description": "A new one."}, indent=2).encode()
    fresh = count()

    def put() -> None:
        name = f"{folder}/{next(fresh)}"
        with open(f"{name}.new", "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{name}.new", f"{name}.json")
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)

    return put
