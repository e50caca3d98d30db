"""What packs cost: loading many of them, and one tool calling another."""

import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from types import ModuleType

from bench.made import TOOLS, write_packs
from bench.table import show
from onetool.sdk import call_tool
from onetool.sdk.testing import packs
from onetool.sources.packs import PackSource

PACKS, ROUNDS, HOPS = 50, 5, 3_000


def run() -> None:
    show(
        f"Packs, median of {ROUNDS}",
        ["what", "measured", "aim"],
        [
            [f"load {PACKS * TOOLS:,} tools in {PACKS} packs", f"{_load():.2f} s", "under 0.5 s"],
            ["call_tool from a sync tool", f"{_hop(sync=True):.0f} µs", "under 60 µs"],
            ["call_tool from an async tool", f"{_hop(sync=False):.0f} µs", "under 60 µs"],
        ],
    )


def _load() -> float:
    with tempfile.TemporaryDirectory() as folder:
        write_packs(Path(folder), PACKS * TOOLS)
        times: list[float] = []
        for _ in range(ROUNDS):
            started = perf_counter()
            catalogue = PackSource([Path(folder)]).load()
            times.append(perf_counter() - started)
            assert len(catalogue.tools) >= PACKS * TOOLS
        return median(times)


def _hop(sync: bool) -> float:
    """Microseconds for one call of a tool by a tool."""

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
        return (perf_counter() - started) / HOPS * 1e6

    async def outer_async() -> float:
        """Call the other many times."""
        started = perf_counter()
        for number in range(HOPS):
            await call_tool("bench.inner", n=number)
        return (perf_counter() - started) / HOPS * 1e6

    module = ModuleType("bench")
    pair = (inner, outer) if sync else (inner_async, outer_async)
    for name, function in zip(("inner", "outer"), pair, strict=True):
        function.__name__, function.__module__ = name, "bench"
        setattr(module, name, function)
    with packs(module) as tools:

        async def measure() -> float:
            return min([(await tools.result_async("bench.outer")).data for _ in range(ROUNDS)])

        return asyncio.run(measure())
