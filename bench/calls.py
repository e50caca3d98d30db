"""What a lookup and a call cost, with few tools and with many: it should not depend on how many there are."""

import asyncio
from time import perf_counter
from timeit import repeat
from typing import Any

from bench.table import show
from onetool import Executor, Registry, ToolCall, ToolSpec

SIZES = (10, 1_000, 100_000)
CALLS = 5_000
ROUNDS = 5
SCHEMA = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}},
    "required": ["query"],
}


def run() -> None:
    floor = asyncio.run(_floor())
    rows = [_row(size, floor) for size in SIZES]
    columns = ["tools", "lookup ns", "async call µs", "× floor", "sync call µs"]
    show(
        f"Calls, best of {ROUNDS} × {CALLS} (floor: a task with a deadline, {floor:.1f} µs; aim: under 40 µs)",
        columns,
        rows,
    )


def _row(size: int, floor: float) -> list[str]:
    registry = _registry(size)
    lookup = min(repeat(lambda: registry.get("pack.async"), number=100_000, repeat=ROUNDS)) / 100_000 * 1e9
    on_loop = asyncio.run(_per_call(Executor(registry), "pack.async"))
    in_thread = asyncio.run(_per_call(Executor(registry), "pack.sync"))
    return [f"{size:,}", f"{lookup:.0f}", f"{on_loop:.1f}", f"{on_loop / floor:.1f}", f"{in_thread:.1f}"]


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


async def _per_call(executor: Executor, name: str) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        started = perf_counter()
        for number in range(CALLS):
            result = await executor.execute(ToolCall(str(number), name, {"query": "x", "limit": 5}, "bench"))
            assert result.ok
        best = min(best, perf_counter() - started)
    return best / CALLS * 1e6


async def _floor() -> float:
    """The least that a call with a deadline can cost: a task, and waiting for it."""

    async def nothing() -> None:
        return None

    best = float("inf")
    for _ in range(ROUNDS):
        started = perf_counter()
        for _ in range(CALLS):
            await asyncio.wait([asyncio.create_task(nothing())], timeout=8)
        best = min(best, perf_counter() - started)
    return best / CALLS * 1e6
