"""What the audit log costs a call, beside an executor that tells nobody: as usual, and where it is required."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from bench.table import OURS, Row, row, show
from onetool import Executor, Registry, ToolCall, ToolSpec
from onetool.config.model import AuditConfig
from onetool.core.context import CallEvent
from onetool.services import audit
from onetool.services.audit import AuditLog

CALLS = 1_000
ROUNDS = 7
BARE = "not noted"
ARGUMENTS: Sequence[tuple[str, Any]] = (
    ("a short text", {"query": "what there is"}),
    ("a text of 10 KB", {"query": "x" * 10_000}),
)


def run() -> Iterator[Row]:
    audit.MOST_WAITING = 10**9  # calls without a pause are more than any server has: nothing is to be lost here
    taken = {name: _taken(args) for name, args in ARGUMENTS}
    rows = [
        [name, *(f"{median(times) * 1e6:.1f}" for times in (bare, usual, required)), f"{alone * 1e6:.1f}"]
        for name, (bare, usual, required, alone) in taken.items()
    ]
    show(
        f"Audit log, medians of {ROUNDS} × {CALLS} calls (aim: under 10 µs a call for the caller)",
        ["arguments", "bare call µs", "audited µs", "required µs", "recording alone µs"],
        rows,
    )
    for name, (bare, usual, required, _) in taken.items():
        yield row(f"a call in the audit log, with {name}", "µs", {OURS: usual, BARE: bare}, floors=[BARE])
        yield row(
            f"a call that waits for the audit log, with {name}", "µs", {OURS: required, BARE: bare}, floors=[BARE]
        )


def _taken(args: Any) -> tuple[list[float], list[float], list[float], float]:
    """Seconds of a call in each turn: bare, noted, and required; and of recording it alone."""
    with TemporaryDirectory() as folder:
        usual = AuditLog(Path(folder) / "usual", AuditConfig())
        required = AuditLog(Path(folder) / "required", AuditConfig(mode="required"))

        def before(call: ToolCall) -> Any:
            entry = required.call_begun(call)
            return lambda: required.write_entry(entry)

        registry = _registry()
        executors = (
            Executor(registry),
            Executor(registry, recorders=[usual.record_call]),
            Executor(registry, recorders=[required.record_call], journal=before),
        )
        bare, noted, waited = asyncio.run(_per_call(executors, args))
        alone = _recorded(usual, args)
        usual.close()
        required.close()
    return bare, noted, waited, alone


def _registry() -> Registry:
    async def give(query: str) -> Any:
        return None

    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    registry = Registry()
    registry.register(ToolSpec(name="pack.give", description="gives a value", input_schema=schema, handler=give))
    return registry


async def _per_call(executors: Sequence[Executor], args: Any) -> list[list[float]]:
    """Of each, in turns: whatever else the machine does falls on all of them."""
    taken: list[list[float]] = [[] for _ in executors]
    for _ in range(ROUNDS):
        for index, executor in enumerate(executors):
            started = perf_counter()
            for number in range(CALLS):
                assert (await executor.execute(ToolCall(str(number), "pack.give", args, "bench"))).ok
            taken[index].append((perf_counter() - started) / CALLS)
    return taken


def _recorded(log: AuditLog, args: Any) -> float:
    event = CallEvent(call=ToolCall("1", "pack.give", args, "bench"), duration_ms=1.5, client="bench", run="0123-7")
    taken: list[float] = []
    for _ in range(ROUNDS):
        log.flush()
        started = perf_counter()
        for _ in range(CALLS):
            log.record_call(event)
        taken.append((perf_counter() - started) / CALLS)
    return median(taken)
