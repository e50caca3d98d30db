"""What finding one's way costs: the pack `ot` over few tools and over very many."""

import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.made import write_packs
from bench.table import show
from onetool import App, ToolCall

SIZES = (100, 2_000, 20_000)
ROUNDS = 7
LINES = 200_000  # of a stored result
CALLS: dict[str, tuple[str, dict[str, object]]] = {
    'ot.tools(info="list")': ("ot.tools", {"info": "list"}),
    "ot.tools()": ("ot.tools", {}),
    'ot.tools(pattern="pack_3.", info="full")': ("ot.tools", {"pattern": "pack_3.", "info": "full"}),
    'ot.help("pack_3.tool_7"): exact': ("ot.help", {"query": "pack_3.tool_7"}),
    'ot.help("pakc_3.tol_7"): a typo': ("ot.help", {"query": "pakc_3.tol_7"}),
    'ot.search("look something up")': ("ot.search", {"query": "look something up"}),
}


def run() -> None:
    """Ratios are to the smallest catalogue: what stays at 1 does not care how many tools there are."""
    times = {size: _measured(size) for size in SIZES}
    rows = [[name, *(_cell(times[size][name], times[SIZES[0]][name]) for size in SIZES)] for name in times[SIZES[0]]]
    show(f"The pack ot, median of {ROUNDS}", ["call", *(f"{size:,} tools" for size in SIZES)], rows)


def _cell(seconds: float, smallest: float) -> str:
    return f"{seconds * 1e3:.2f} ms ({seconds / smallest:.1f}×)"


def _measured(size: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "packs").mkdir()
        write_packs(Path(folder) / "packs", size)
        (Path(folder) / "onetool.yaml").write_text("stats: {enabled: false}\n")
        with App.open(Path(folder) / "onetool.yaml") as app:
            times = {name: _call(app, *call) for name, call in CALLS.items()}
            handle = app.runtime.store_result(
                "\n".join(f"line {number} of a large result" for number in range(LINES))
            ).handle
            for name, offset in (("first", 1), ("last", LINES - 99)):
                page = {"handle": handle, "offset": offset}
                times[f"ot.result: the {name} page of {LINES:,} lines"] = _call(app, "ot.result", page)
            return times


def _call(app: App, name: str, args: dict[str, object]) -> float:
    """Seconds of one call. The first is not counted: it gets ready what is made once for a catalogue."""

    async def timed() -> float:
        started = perf_counter()
        result = await app.call(ToolCall("1", name, args, "bench"))
        assert result.ok, result.error
        return perf_counter() - started

    async def all_rounds() -> float:
        await timed()
        return median([await timed() for _ in range(ROUNDS)])

    return asyncio.run(all_rounds())
