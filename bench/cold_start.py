"""How long a command takes from nothing, as a multiple of an interpreter that does nothing."""

import compileall
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

import onetool
from bench.table import OURS, Row, row, show

ROUNDS = 21
ONETOOL = str(Path(sys.executable).with_name("onetool"))
NOTHING = "python -c pass"
COMMANDS = {
    NOTHING: [sys.executable, "-c", "pass"],
    "onetool --version": [ONETOOL, "--version"],
    "onetool tools list": [ONETOOL, "tools", "list"],
    "onetool tools invoke time.now": [ONETOOL, "tools", "invoke", "time.now"],
}
AIMS = {"onetool --version": "under 3 × python", "onetool tools list": "under 8 × python"}


def run() -> Iterator[Row]:
    # An installed package is compiled by its installer; a checkout that was just edited is not.
    compileall.compile_dir(str(Path(onetool.__file__).parent), quiet=2)
    with tempfile.TemporaryDirectory() as folder:
        # In turns, so that a machine that slows down slows all of them down.
        taken = {name: [0.0] * ROUNDS for name in COMMANDS}
        for turn in range(ROUNDS):
            for name, command in COMMANDS.items():
                taken[name][turn] = _seconds(command, folder)
    floor = median(taken[NOTHING])
    rows = [
        [name, f"{median(times) * 1000:.1f}", f"{median(times) / floor:.1f}", AIMS.get(name, "")]
        for name, times in taken.items()
    ]
    show(f"Cold start, median of {ROUNDS}", ["command", "ms", "× python", "aim"], rows)
    for name in [name for name in COMMANDS if name != NOTHING]:
        turns = {OURS: taken[name], NOTHING: taken[NOTHING]}
        yield row(name, "ms", turns, floors=[NOTHING], aim=AIMS.get(name, ""))


def _seconds(command: list[str], folder: str) -> float:
    started = perf_counter()
    env = {"HOME": folder, "PATH": ""}
    subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - started
