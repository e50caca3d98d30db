"""What packs cost: loading many of them, and one tool calling another."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from types import ModuleType

from bench.made import TOOLS, write_packs
from bench.table import OURS, Row, row, show
from onetool.sdk import call_tool
from onetool.sdk.testing import packs
from onetool.sources.packs import PackSource

PACKS, ROUNDS, HOPS = 50, 5, 3_000


def run() -> Iterator[Row]:
    rows = [
        row(f"load {PACKS * TOOLS:,} tools in {PACKS} packs", "s", {OURS: _load()}, aim="under 0.5 s"),
        row("call_tool from a sync tool", "µs", {OURS: _hops(sync=True)}, aim="under 60 µs"),
        row("call_tool from an async tool", "µs", {OURS: _hops(sync=False)}, aim="under 60 µs"),
    ]
    cells = [[one.what, f"{one.ours:.{2 if one.unit == 's' else 0}f} {one.unit}", one.aim] for one in rows]
    show(f"Packs, median of {ROUNDS}", ["what", "measured", "aim"], cells)
    yield from rows


def _load() -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        write_packs(Path(folder), PACKS * TOOLS)
        times: list[float] = []
        for _ in range(ROUNDS):
            started = perf_counter()
            catalogue = PackSource([Path(folder)]).load()
            times.append(perf_counter() - started)
            assert len(catalogue.tools) >= PACKS * TOOLS
        return times


def _hops(sync: bool) -> list[float]:
    """Seconds for one call of a tool by a tool, in each turn."""

    def inner(n: int) -> int:
        """Give it back."""
        return n

    async def inner_async(n: int) -> int:
        """Give it back."""
        return n

    def outer() -> float:
        """Call the other many times."""
        started = perf_counter()
        for number in range(HOPS):
            call_tool("bench.inner", n=number)
        return (perf_counter() - started) / HOPS

    async def outer_async() -> float:
        """Call the other many times."""
        started = perf_counter()
        for number in range(HOPS):
            await call_tool("bench.inner", n=number)
        return (perf_counter() - started) / HOPS

    module = ModuleType("bench")
    pair = (inner, outer) if sync else (inner_async, outer_async)
    for name, function in zip(("inner", "outer"), pair, strict=True):
        function.__name__, function.__module__ = name, "bench"
        setattr(module, name, function)
    with packs(module) as tools:

        async def measure() -> list[float]:
            return [(await tools.result_async("bench.outer")).data for _ in range(ROUNDS)]

        return asyncio.run(measure())
