"""What counting a call costs on its way, beside an executor that tells nobody: the same work, with and without."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from bench.table import OURS, Row, row, show
from onetool import Executor, Registry, ToolCall, ToolSpec
from onetool.core.context import CallEvent
from onetool.database.sqlite import SqliteDatabase
from onetool.services import journal
from onetool.services.journal import Journal
from onetool.services.journal import recorder as recorders

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
BARE = "not counted"
ARGS = {"query": "what there is"}


def run() -> Iterator[Row]:
    taken = {name: _taken(value) for name, value in VALUES}
    rows = [
        [
            name,
            f"{median(bare) * 1e6:.1f}",
            f"{median(counted) * 1e6:.1f}",
            f"{median(counted) / median(bare):.2f}",
            f"{alone * 1e6:.1f}",
        ]
        for name, (bare, counted, alone) in taken.items()
    ]
    show(
        f"Stats, medians of {ROUNDS} × {CALLS} calls (aim: under 15 µs a call for usual sizes)",
        ["the tool gives", "bare call µs", "counted µs", "× bare", "recording alone µs"],
        rows,
    )
    for name, (bare, counted, _) in taken.items():
        turns = {OURS: counted, BARE: bare}
        yield row(f"a call that is counted, of a tool that gives {name}", "µs", turns, floors=[BARE])


def _taken(value: Any) -> tuple[list[float], list[float], float]:
    """Seconds of a call in each turn, bare and counted, and of recording it alone."""
    calls = min(CALLS, max(20, 5_000_000 // len(repr(value))))  # what is large takes milliseconds
    with TemporaryDirectory() as folder:
        recorders.MAX_WAITING = journal.MAX_WAITING = 10**9  # calls without a pause are more than any server has
        recorder = recorders.Recorder()
        written = Journal(SqliteDatabase(Path(folder) / "state.db"), recorder)

        def record(event: CallEvent) -> None:
            recorder.put(written.add, event, size=len(event.args))

        registry = registry_of(value)
        executors = Executor(registry), Executor(registry, recorders=[record])
        bare, counted = asyncio.run(time_calls(executors, ARGS, calls))
        alone = time_recording(record, ARGS, calls, value)
        recorder.close()
    return bare, counted, alone


# The same for the audit log, in audit.py


def registry_of(value: Any) -> Registry:
    """With one tool, `pack.give`, which gives this value."""

    async def give(query: str) -> Any:
        return value

    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    registry = Registry()
    registry.register(ToolSpec(name="pack.give", description="gives a value", input_schema=schema, handler=give))
    return registry


async def time_calls(executors: Sequence[Executor], args: Any, calls: int) -> list[list[float]]:
    """Seconds of a call of each, in turns: whatever else the machine does falls on all of them."""
    taken: list[list[float]] = [[] for _ in executors]
    for _ in range(ROUNDS):
        for index, executor in enumerate(executors):
            started = perf_counter()
            for number in range(calls):
                assert (await executor.execute(ToolCall(str(number), "pack.give", args, "bench"))).ok
            taken[index].append((perf_counter() - started) / calls)
    return taken


def time_recording(
    record: Callable[[CallEvent], object],
    args: Any,
    calls: int,
    value: Any = None,
    before_turn: Callable[[], object] = lambda: None,
) -> float:
    """Seconds of recording one call, and nothing else."""
    call = ToolCall("1", "pack.give", args, "bench")
    event = CallEvent.of(call, value, duration_ms=1.5, client="bench", run="0123456789abcdef-7")
    taken: list[float] = []
    for _ in range(ROUNDS):
        before_turn()
        started = perf_counter()
        for _ in range(calls):
            record(event)
        taken.append((perf_counter() - started) / calls)
    return median(taken)
