"""What the audit log costs a call, beside an executor that tells nobody: as usual, and where it is required."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench.stats import ROUNDS, registry_of, time_calls, time_recording
from bench.table import OURS, Row, row, show
from onetool import Executor, ToolCall
from onetool.database.sqlite import SqliteDatabase
from onetool.services import journal
from onetool.services.journal import Journal, JournalSettings
from onetool.services.journal import recorder as recorders

CALLS = 1_000
BARE = "not noted"
ARGUMENTS: Sequence[tuple[str, Any]] = (
    ("a short text", {"query": "what there is"}),
    ("a text of 10 KB", {"query": "x" * 10_000}),
)


def run() -> Iterator[Row]:
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
        recorders.MAX_WAITING = journal.MAX_WAITING = 10**9  # calls without a pause are more than any server has
        settings = JournalSettings(audits=True)
        usual = Journal(SqliteDatabase(Path(folder) / "usual.db"), settings=settings)
        required = Journal(SqliteDatabase(Path(folder) / "required.db"), settings=settings)

        def before(call: ToolCall) -> Any:
            entry = required.begun(call)
            return lambda: required.require(entry)

        registry = registry_of(None)
        executors = (
            Executor(registry),
            Executor(registry, recorders=[usual.record]),
            Executor(registry, recorders=[required.record], journal=before),
        )
        bare, noted, waited = asyncio.run(time_calls(executors, args, CALLS))
        alone = time_recording(usual.record, args, CALLS, before_turn=usual.flush)
        usual.close()
        required.close()
    return bare, noted, waited, alone
