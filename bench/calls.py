"""What a lookup and a call cost, with few tools and with many: it should not depend on how many there are."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from statistics import median
from time import perf_counter
from timeit import timeit
from typing import Any

from bench.table import OURS, Row, row, show
from onetool import Executor, Registry, ToolCall, ToolSpec

SIZES = (10, 1_000, 100_000)
LOOKUPS, CALLS, ROUNDS = 100_000, 3_000, 7
FLOOR = "a task with a deadline"
AIM_US = 40
SCHEMA = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}},
    "required": ["query"],
}

Turns = dict[str, list[float]]
"""Seconds of one, a turn, by what was done."""


def run() -> Iterator[Row]:
    registries = {size: _registry(size) for size in SIZES}
    lookups = _lookups(registries)
    calls = asyncio.run(_calls(registries))
    floor = median(calls[FLOOR])
    rows = [
        [
            f"{size:,}",
            f"{median(lookups[f'{size}']) * 1e9:.0f}",
            f"{median(calls[f'async {size}']) * 1e6:.1f}",
            f"{median(calls[f'async {size}']) / floor:.1f}",
            f"{median(calls[f'sync {size}']) * 1e6:.1f}",
        ]
        for size in SIZES
    ]
    columns = ["tools", "lookup ns", "async call µs", "× floor", "sync call µs"]
    title = f"Calls, medians of {ROUNDS} × {CALLS} (floor: {FLOOR}, {floor * 1e6:.1f} µs; aim: under {AIM_US} µs)"
    show(title, columns, rows)
    yield from _rows(lookups, calls)


def _rows(lookups: Turns, calls: Turns) -> Iterator[Row]:
    few, many = SIZES[0], SIZES[-1]
    least, most = f"{few} tools", f"{many:,} tools"
    yield row(f"a lookup among {most}", "ns", {OURS: lookups[f"{many}"], least: lookups[f"{few}"]}, floors=[least])
    for kind in ("async", "sync"):
        turns = {OURS: calls[f"{kind} {many}"], FLOOR: calls[FLOOR], least: calls[f"{kind} {few}"]}
        aim = f"under {AIM_US} µs" if kind == "async" else ""
        yield row(
            f"a call of {'an async' if kind == 'async' else 'a sync'} tool, of {most}",
            "µs",
            turns,
            floors=[FLOOR, least],
            aim=aim,
        )


def _registry(size: int) -> Registry:
    async def on_loop(**_: Any) -> None:
        return None

    def in_thread(**_: Any) -> None:
        return None

    registry = Registry()
    for number in range(size - 2):
        registry.add(ToolSpec(name=f"pack.tool{number}", description="one of many", input_schema=SCHEMA))
    registry.register(ToolSpec(name="pack.async", description="no-op", input_schema=SCHEMA, handler=on_loop))
    registry.register(ToolSpec(name="pack.sync", description="no-op", input_schema=SCHEMA, handler=in_thread))
    return registry


def _lookups(registries: Mapping[int, Registry]) -> Turns:
    taken: Turns = {f"{size}": [] for size in registries}
    for _ in range(ROUNDS):
        for size, registry in registries.items():
            seconds = timeit(lambda registry=registry: registry.get("pack.async"), number=LOOKUPS)
            taken[f"{size}"].append(seconds / LOOKUPS)
    return taken


async def _calls(registries: Mapping[int, Registry]) -> Turns:
    """In turns: whatever else the machine does falls on all of them."""
    ways: dict[str, Callable[[], Awaitable[None]]] = {FLOOR: _floor}
    for size, registry in registries.items():
        executor = Executor(registry)
        for kind in ("async", "sync"):
            ways[f"{kind} {size}"] = lambda executor=executor, kind=kind: _call(executor, f"pack.{kind}")
    taken: Turns = {name: [] for name in ways}
    for turn in range(ROUNDS + 1):
        for name, way in ways.items():
            started = perf_counter()
            for _ in range(CALLS):
                await way()
            if turn:  # the first warms up
                taken[name].append((perf_counter() - started) / CALLS)
    return taken


async def _call(executor: Executor, name: str) -> None:
    result = await executor.execute(ToolCall("1", name, {"query": "x", "limit": 5}, "bench"))
    assert result.ok


async def _floor() -> None:
    """The least that a call with a deadline can cost: a task, and waiting for it."""

    async def nothing() -> None:
        return None

    await asyncio.wait([asyncio.create_task(nothing())], timeout=8)
