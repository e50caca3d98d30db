"""Starts with many tools on disk, and what keeping in step costs a running process."""

import gc
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from itertools import count, product
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

from bench.bundles_client import tool_at
from bench.bundles_made import ADDING, bundle_id, named, write_home
from bench.bundles_stage import Serving
from bench.mcp_contenders import ONETOOL
from bench.mcp_rows import number
from bench.table import OURS, Row, row, show
from onetool import App

STARTS, COLD_STARTS = 7, 3
STEPS, CHANGES = 2_000, 7
PATIENCE = 300.0
ADDER = 9  # of the first bundle's tools: a python one


class Start(NamedTuple):
    """Seconds from nothing to its address, the first page of tools, and the first answer of a tool."""

    listens: float
    lists: float
    invokes: float


def starts(homes: Mapping[int, Path], place: Path) -> Iterator[Row]:
    none = place / "no-tools"
    write_home(none, 0)
    all_homes = {0: none, **homes}
    served: dict[int, list[Start]] = {size: [] for size in all_homes}
    listed: dict[int, list[float]] = {size: [] for size in all_homes}
    for _, (size, home) in product(range(STARTS), all_homes.items()):
        served[size].append(_served(home, size))
        listed[size].append(_command(home, "tools", "list"))
    rows = [_row(f"{size:,} tools", served[size], served[0], listed[size], listed[0]) for size in all_homes]
    for size, home in homes.items():
        if size < 1_000 or size > 50_000:  # it takes too long
            continue
        cold = [_served(_without_index(home), size) for _ in range(COLD_STARTS)]
        lists = [_command(_without_index(home), "tools", "list") for _ in range(COLD_STARTS)]
        rows.append(_row(f"{size:,} tools, no index", cold, served[0], lists, listed[0]))
        yield from _reported(f"{size:,} tools, no index", cold, served[0], lists, listed[0])
    columns = ["onetool serve", "address, s", "GET /tools/tools, s", "×", "invoke, s", "onetool tools list, s", "×"]
    show(f"Bundles: from nothing to the first answer, median of {STARTS} (aim: 10,000 under 1 s)", columns, rows)
    for size in homes:
        yield from _reported(f"{size:,} tools", served[size], served[0], listed[size], listed[0])


def _reported(
    name: str, taken: list[Start], least: list[Start], lists: list[float], least_lists: list[float]
) -> Iterator[Row]:
    none = "no tools"
    turns = {OURS: [one.lists for one in taken], none: [one.lists for one in least]}
    yield row(f"serve to its first list over REST, {name}", "s", turns, floors=[none])
    yield row(f"onetool tools list, {name}", "s", {OURS: lists, none: least_lists}, floors=[none])


def _row(name: str, taken: list[Start], least: list[Start], lists: list[float], least_lists: list[float]) -> list[str]:
    ratio = median(one.lists for one in taken) / median(one.lists for one in least)
    return [
        name,
        number([one.listens for one in taken], "s"),
        number([one.lists for one in taken], "s"),
        f"{ratio:.2f}",
        "–" if taken is least else number([one.invokes for one in taken], "s"),
        number(lists, "s"),
        f"{median(lists) / median(least_lists):.2f}",
    ]


def _served(home: Path, size: int) -> Start:
    began = perf_counter()
    with Serving(home) as server:
        listens = perf_counter() - began
        found = server.rest.ask("GET", "/tools/tools")
        lists = perf_counter() - began
        assert found["tools"], found
        if size:
            said = server.rest.ask("POST", f"{tool_at(bundle_id(0), named(ADDER))}/invoke", {"args": {"a": 1, "b": 1}})
            assert said == {"ok": True, "value": 2}, said
        return Start(listens, lists, perf_counter() - began)


def _command(home: Path, *args: str) -> float:
    env = {"HOME": str(home), "PATH": "", "ONETOOL_HOME": str(home)}
    command = [ONETOOL, *args, "--config", str(home / "onetool.yaml")]
    began = perf_counter()
    subprocess.run(command, cwd=home, env=env, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
    return perf_counter() - began


def _without_index(home: Path) -> Path:
    shutil.rmtree(home / "bundles" / ".state")
    return home


# Keeping in step


def in_step(homes: Mapping[int, Path]) -> Iterator[Row]:
    gc.set_threshold(50_000)  # as `onetool` has it; with Python's own it would take twice as long
    rows: list[list[str]] = []
    for size, home in homes.items():
        with App.open(home / "onetool.yaml") as app:
            app.tools()
            began = perf_counter()
            app.search("get invoice")
            first = perf_counter() - began
            unchanged = [_per_call(app) for _ in range(CHANGES)]
            changed = [_after_a_change(app) for _ in range(CHANGES)]
        puts, rests, follows = zip(*changed, strict=True)
        times = [number(puts, "ms"), number(rests, "ms"), number(follows, "ms")]
        yield row(f"a changed one of {size:,} tools is found over REST", "ms", {OURS: rests})
        yield row(f"a changed one of {size:,} tools is found by ot.search", "ms", {OURS: follows})
        rows.append([f"{size:,} tools", f"{median(unchanged) * 1e6:.1f}", f"{first:.2f}", *times])
    columns = [
        "",
        "nothing has changed, µs",
        "first ot.search, s",
        "a PUT, ms",
        "REST finds it, ms",
        "ot.search finds it, ms",
    ]
    show(f"Bundles: an app that follows changes, median of {CHANGES}", columns, rows)


def _per_call(app: App) -> float:
    began = perf_counter()
    for _ in range(STEPS):
        app.catalog.refresh_sync()
    return (perf_counter() - began) / STEPS


_fresh = count()


def _after_a_change(app: App) -> tuple[float, float, float]:
    slug = f"step-{next(_fresh)}"
    began = perf_counter()
    app.bundles.put_tool(bundle_id(0), slug, "1.0", ADDING)
    put = perf_counter()
    assert app.bundles.search(slug, limit=1)[0][0]["slug"] == slug
    rest = perf_counter()
    assert app.search(slug)[0][0].name.endswith(slug.replace("-", "_"))
    return put - began, rest - put, perf_counter() - rest
