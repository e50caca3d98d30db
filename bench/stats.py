"""What counting a call costs on its way, beside an executor that tells nobody: the same work, with and without."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from bench.table import show
from onetool import Executor, Registry, ToolCall, ToolSpec
from onetool.core.context import CallEvent
from onetool.services.stats import UsageStats

CALLS = 2_000
ROUNDS = 7
FOUND = [{"title": f"Result {number}", "url": "https://example.com/page", "score": 0.5} for number in range(8)]
VALUES: Sequence[tuple[str, Any]] = (
    ("nothing", None),
    ("a text of 1 KB", "x" * 1_000),
    ("8 search results", FOUND),
    ("1,000 rows, 55 KB", [{"id": number, "name": "somebody", "active": True} for number in range(1_000)]),
    ("20,000 rows, 1.1 MB", [{"id": number, "name": "somebody", "active": True} for number in range(20_000)]),
)


def run() -> None:
    rows = [_row(name, value) for name, value in VALUES]
    show(
        f"Stats, best of {ROUNDS} × {CALLS} calls (aim: under 15 µs a call for usual sizes)",
        ["the tool gives", "bare call µs", "counted µs", "× bare", "recording alone µs"],
        rows,
    )


def _row(name: str, value: Any) -> list[str]:
    calls = CALLS if len(repr(value)) < 100_000 else 20
    with TemporaryDirectory() as folder:
        stats = UsageStats(Path(folder) / "stats.db")
        registry = _registry(value)
        executors = Executor(registry), Executor(registry, recorders=[stats.record])
        bare, counted = asyncio.run(_per_call(executors, calls))
        alone = _recorded(stats, value, calls)
        stats.flush()
    return [name, f"{bare:.1f}", f"{counted:.1f}", f"{counted / bare:.2f}", f"{alone:.1f}"]


def _registry(value: Any) -> Registry:
    async def give(query: str) -> Any:
        return value

    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    registry = Registry()
    registry.register(ToolSpec(name="pack.give", description="gives a value", input_schema=schema, handler=give))
    return registry


async def _per_call(executors: Sequence[Executor], calls: int) -> list[float]:
    """Of each, in turns: whatever else the machine does falls on all of them."""
    best = [float("inf")] * len(executors)
    for _ in range(ROUNDS):
        for index, executor in enumerate(executors):
            started = perf_counter()
            for number in range(calls):
                call = ToolCall(str(number), "pack.give", {"query": "what there is"}, "bench")
                assert (await executor.execute(call)).ok
            best[index] = min(best[index], perf_counter() - started)
    return [seconds / calls * 1e6 for seconds in best]


def _recorded(stats: UsageStats, value: Any, calls: int) -> float:
    call = ToolCall("1", "pack.give", {"query": "what there is"}, "bench")
    event = CallEvent(call=call, duration_ms=1.5, value=value, client="bench", run="0123456789abcdef-7")
    best = float("inf")
    for _ in range(ROUNDS):
        started = perf_counter()
        for _ in range(calls):
            stats.record(event)
        best = min(best, perf_counter() - started)
    return best / calls * 1e6
