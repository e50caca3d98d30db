"""Where our own time goes: `python -m bench bundles-profile`. Shares, not times: watching makes everything slower.

The server runs in this module, under cProfile, while the load calls one tool; then keeping in step, in process.
"""

import cProfile
import os
import pstats
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import thread_time
from typing import NamedTuple

from bench.bundles_invoke import home_for_calls, put_tools, requests_to
from bench.bundles_load import load_client
from bench.bundles_made import ADDING, bundle_id, write_home
from bench.bundles_stage import Serving, upstream
from bench.mcp_contenders import ROOT
from bench.table import show

SECONDS, WARM_S, CONNECTIONS, SHOWN = 4.0, 0.5, 16, 40
TOOLS, CHANGES = 10_000, 5


class Row(NamedTuple):
    """A function, how often it was called, and seconds."""

    name: str
    calls: int
    itself: float
    whole: float  # with what it calls


def run() -> None:
    with TemporaryDirectory() as folder:
        for kind in ("python", "http"):
            place = Path(folder) / kind
            place.mkdir()
            _show(f"invoke of the {kind} tool, µs a call under the profiler", *_invoked(place, kind))
        _show(f"in step after a PUT, {TOOLS:,} tools, µs a change", *_stepped(Path(folder) / "steps"))


def _invoked(place: Path, kind: str) -> tuple[Path, int]:
    out = place / "profile"
    command = (sys.executable, "-m", "bench.bundles_profile", str(out))
    with ExitStack() as stack:
        api = stack.enter_context(upstream(place)).port
        ours = stack.enter_context(Serving(home_for_calls(place, api), command=command))
        put_tools(ours.rest, api)
        load = stack.enter_context(load_client())
        asked = requests_to(ours.port)[kind]
        load(ours.port, asked, CONNECTIONS, WARM_S)
        os.kill(ours.process.pid, signal.SIGUSR1)
        rate = load(ours.port, asked, CONNECTIONS, SECONDS).rate
    return out, round(rate * SECONDS)


def _stepped(home: Path) -> tuple[Path, int]:
    from onetool import App

    write_home(home, TOOLS)
    out = home / "profile"
    with App.open(home / "onetool.yaml") as app:
        app.tools()
        profile = cProfile.Profile(thread_time)
        for number in range(CHANGES):
            app.bundles.put_tool(bundle_id(0), f"step-{number}", "1.0", ADDING)
            profile.enable()
            app.catalog.refresh_sync()
            profile.disable()
    profile.dump_stats(out)
    return out, CHANGES


def _show(title: str, out: Path, calls: int) -> None:
    rows = list(_rows(out))
    top = {
        "in itself": sorted(rows, key=lambda row: -row.itself)[:SHOWN],
        "with what it calls": sorted(rows, key=lambda row: -row.whole)[:SHOWN],
    }
    for order, some in top.items():
        cells = [
            [
                one.name,
                f"{one.calls / calls:.2f}",
                f"{one.itself / calls * 1e6:,.1f}",
                f"{one.whole / calls * 1e6:,.1f}",
            ]
            for one in some
        ]
        show(f"Profile: {title}, by {order}", ["", "calls each", "in itself", "with what it calls"], cells)


def _rows(out: Path) -> Iterator[Row]:
    stats = pstats.Stats(str(out)).stats  # pyright: ignore[reportAttributeAccessIssue]
    for (file, line, name), (_, calls, own, whole, _) in stats.items():
        where = file.replace(f"{ROOT}/src/onetool/", "").rpartition("site-packages/")[2]
        yield Row(f"{where}:{line} {name}" if line else name, calls, own, whole)


def main(out: str) -> None:
    """`onetool`, watched from SIGUSR1 on. The processor's time is taken: others may run on this machine, too."""
    from onetool.__main__ import main as onetool

    sys.argv[1:] = sys.argv[2:]
    profile = cProfile.Profile(thread_time)
    signal.signal(signal.SIGUSR1, lambda *_: profile.enable())
    try:
        onetool()
    finally:
        profile.disable()
        profile.dump_stats(out)


if __name__ == "__main__":
    main(sys.argv[1])
