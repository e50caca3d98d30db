"""`run` beside its peers: FastMCP's code mode, and smolagents' interpreter. What counts are the ratios."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from bench.table import Row, row, show
from bench.workload import FEW, MANY, SIZES

TURNS = 5
ROOT = Path(__file__).parent.parent
PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
NAMES = {"onetool": "OneTool", "fastmcp": "FastMCP", "smolagents": "smolagents, no sandbox"}
TAKEN: dict[str, dict[str, Any]] = {
    "1 + 1": {"what": "sum"},
    **{f"a call, of {size:,} tools": {"what": "call", "size": size} for size in SIZES},
    "a bare exchange with a worker": {"what": "exchange"},
    "ten calls gathered": {"what": "gathered"},
    "1 MB out of a tool": {"what": "large_inside"},
    "1 MB as the result": {"what": "large_out"},
}
CHARTS = {"1 + 1": "speed", "a call, of 500 tools": "speed"}
Times = dict[str, list[float]]
"""Seconds of each turn, by who took them."""


class Contender:
    """A process that measures one of them when it is told to."""

    def __init__(self, name: str) -> None:
        python = sys.executable if name == "onetool" else str(PEERS_PYTHON)
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process lives
        self.process = subprocess.Popen(
            [python, "-m", "bench.contender", name],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def take(self, wanted: dict[str, Any]) -> list[float]:
        """The measurements; ends the benchmark with the process's last words where there are none."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(wanted) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            self.errors.seek(0)
            sys.exit(f"{self.process.args} can't measure {wanted}: {self.errors.read()[-2000:]}")
        return json.loads(answer)

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def run(turns: int = TURNS, taken: Mapping[str, dict[str, Any]] = TAKEN, remembers: bool = True) -> Iterator[Row]:
    names = list(NAMES) if PEERS_PYTHON.exists() else ["onetool"]
    contenders = {name: Contender(name) for name in names}
    try:
        # While nothing else is open. It takes a thousand runs, of a peer half a minute.
        memory = {name: one.take({"what": "memory"}) for name, one in contenders.items()} if remembers else {}
        times = {what: _seconds(contenders, wanted, turns) for what, wanted in taken.items()}
    finally:
        for one in contenders.values():
            one.close()
    peers = names[1:]
    rows = [_row(what, _medians(of_turns), peers, "ms", 1000) for what, of_turns in times.items()]
    for number, runs in enumerate((FEW, MANY) if memory else ()):
        found = {name: sizes[number] for name, sizes in memory.items()}
        rows.append(_row(f"memory after {runs:,} runs", found, peers, "MB", 1))
    columns = ["what", NAMES["onetool"], *(column for name in peers for column in (NAMES[name], "× ours"))]
    show(f"Running code, medians over {turns} turns", columns, rows)
    if peers:
        print(
            "  smolagents interprets in its own process and calls functions as they are; it is not a sandbox, it says."
        )
    else:
        print("  The peers are not installed; `make bench-peers` does that.")
    yield from _reported(times, memory)


def run_quick() -> Iterator[Row]:
    """Fewer turns, and none with the most tools: a peer takes long to open those."""
    return run(3, {what: wanted for what, wanted in TAKEN.items() if wanted.get("size") != SIZES[-1]}, remembers=False)


def _reported(times: Mapping[str, Times], memory: Times) -> Iterator[Row]:
    for what, turns in times.items():
        known = {NAMES[name]: taken for name, taken in turns.items() if taken}
        yield row(f"run: {what}", "ms", known, chart=CHARTS.get(what, ""))
    for number, runs in enumerate((FEW, MANY) if memory else ()):
        yield row(f"run: memory after {runs:,} runs", "MB", {NAMES[name]: [of[number]] for name, of in memory.items()})


def _seconds(contenders: dict[str, Contender], wanted: dict[str, Any], turns: int) -> Times:
    """The median of each turn."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, one in contenders.items():
            if times := one.take(wanted):  # none where it knows no such thing
                taken[name].append(median(times))
    return taken


def _medians(turns: Times) -> dict[str, float | None]:
    return {name: median(taken) if taken else None for name, taken in turns.items()}


def _row(what: str, found: Mapping[str, float | None], peers: list[str], unit: str, times: int) -> list[str]:
    ours = found["onetool"]
    cells = [what, _shown(ours, unit, times)]
    for name in peers:
        theirs = found[name]
        ratio = theirs / ours if theirs and ours else None
        cells += [_shown(theirs, unit, times), "–" if ratio is None else f"{ratio:.{1 if ratio >= 1 else 2}f}"]
    return cells


def _shown(value: float | None, unit: str, times: int) -> str:
    return "–" if value is None else f"{value * times:.{1 if unit == 'MB' else 3}f} {unit}"
