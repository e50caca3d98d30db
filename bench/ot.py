"""What finding one's way costs: the pack `ot` over few tools and over very many."""

import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.made import write_packs
from bench.table import OURS, Row, row, show
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
Taken = dict[str, dict[int, list[float]]]
"""Seconds of each turn, by the call and the number of tools."""


def run() -> Iterator[Row]:
    """Ratios are to the smallest catalogue: what stays at 1 does not care how many tools there are."""
    with ExitStack() as stack:
        apps = {size: stack.enter_context(_opened(size)) for size in SIZES}
        taken = asyncio.run(_measured(apps))
    rows = [[name, *(_cell(times[size], times[SIZES[0]]) for size in SIZES)] for name, times in taken.items()]
    show(f"The pack ot, median of {ROUNDS}", ["call", *(f"{size:,} tools" for size in SIZES)], rows)
    least = f"{SIZES[0]} tools"
    for name, times in taken.items():
        turns = {OURS: times[SIZES[-1]], least: times[SIZES[0]]}
        yield row(f"{name}, {SIZES[-1]:,} tools", "ms", turns, floors=[least])


def _cell(seconds: list[float], smallest: list[float]) -> str:
    return f"{median(seconds) * 1e3:.2f} ms ({median(seconds) / median(smallest):.1f}×)"


@contextmanager
def _opened(size: int) -> Iterator[App]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "packs").mkdir()
        write_packs(Path(folder) / "packs", size)
        (Path(folder) / "onetool.yaml").write_text("stats: {enabled: false}\n")
        with App.open(Path(folder) / "onetool.yaml") as app:
            yield app


async def _measured(apps: Mapping[int, App]) -> Taken:
    calls = {name: dict.fromkeys(apps, call) for name, call in CALLS.items()}
    text = "\n".join(f"line {number} of a large result" for number in range(LINES))
    handles = {size: app.runtime.store_result(text).handle for size, app in apps.items()}
    for which, offset in (("first", 1), ("last", LINES - 99)):
        calls[f"ot.result: the {which} page of {LINES:,} lines"] = {
            size: ("ot.result", {"handle": handle, "offset": offset}) for size, handle in handles.items()
        }
    return {name: await _in_turns(apps, of_sizes) for name, of_sizes in calls.items()}


async def _in_turns(
    apps: Mapping[int, App], calls: Mapping[int, tuple[str, dict[str, object]]]
) -> dict[int, list[float]]:
    """The first call is not counted: it gets ready what is made once for a catalogue."""
    taken: dict[int, list[float]] = {size: [] for size in apps}
    for turn in range(ROUNDS + 1):
        for size, app in apps.items():
            seconds = await _call(app, *calls[size])
            if turn:
                taken[size].append(seconds)
    return taken


async def _call(app: App, name: str, args: dict[str, object]) -> float:
    started = perf_counter()
    result = await app.call(ToolCall("1", name, args, "bench"))
    assert result.ok, result.error
    return perf_counter() - started
