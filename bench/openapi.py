"""How long a large OpenAPI document takes from the file to tools: GitHub's, with 1,223 operations, beside FastMCP.

`make openapi` and `make bench-peers` install what this needs. Ours stores the tools as well, which FastMCP has no need
of; each is a process from nothing.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from statistics import median
from time import perf_counter

from bench.mcp_contenders import ONETOOL, PEERS_PYTHON, QUIET, ROOT
from bench.table import OURS, Row, row, show

ROUNDS = 3
GENERATED = ROOT / ".node-openapi" / "node_modules" / "@octokit" / "openapi" / "generated"
WHOLE = GENERATED / "api.github.com.json"
LARGEST = GENERATED / "ghec.deref.json"  # 75 MiB
PART = "import one tag of an OpenAPI document of 75 MiB"
AIM = "at most 1.3 × FastMCP"
FASTMCP = """
import asyncio, json, sys
from fastmcp import FastMCP
server = FastMCP.from_openapi(json.load(open(sys.argv[1])))
print(len(asyncio.run(server.list_tools())))
"""


def run() -> Iterator[Row]:
    if not WHOLE.exists():
        raise SystemExit("GitHub's document is not there: make openapi")
    if not PEERS_PYTHON.exists():
        raise SystemExit("FastMCP is not there: make bench-peers")
    commands = {
        OURS: [ONETOOL, "bundles", "import", str(WHOLE)],
        "FastMCP": [str(PEERS_PYTHON), "-c", FASTMCP, str(WHOLE)],
        PART: [ONETOOL, "bundles", "import", str(LARGEST), "--tag", "repos"],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):  # in turns, so that a machine that slows down slows all of them down
        for name, command in commands.items():
            taken[name].append(_seconds(command))
    part = taken.pop(PART)
    cells = [[name, f"{median(times):.1f}"] for name, times in (*taken.items(), (PART, part))]
    show(f"OpenAPI, median of {ROUNDS}", ["", "s"], cells)
    yield row("import GitHub's OpenAPI document, 1,223 tools", "s", taken, aim=AIM)
    yield row(PART, "s", {OURS: part})


def _seconds(command: list[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        env = {"HOME": folder, "PATH": "", **QUIET}
        started = perf_counter()
        subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)
        return perf_counter() - started
