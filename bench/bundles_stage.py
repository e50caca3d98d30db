"""What is started for `bench bundles`: a server of ours over a folder of bundles, the API behind HTTP tools, peers."""

import os
import sys
from functools import cached_property
from math import nan
from pathlib import Path

import onetool
from bench.bundles_client import Rest
from bench.mcp_contenders import ONETOOL, PEERS_PYTHON, ROOT, Process

HERE = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(Path(onetool.__file__).parents[1])))}


class Serving(Process):
    """`onetool serve` as it is by default; `rest` is a client's way to its REST API."""

    def __init__(self, home: Path, *, command: tuple[str, ...] = (ONETOOL,), menu: str = "run") -> None:
        args = ["serve", "--port", "0", "--config", str(home / "onetool.yaml"), "--menu", menu]
        env = {"ONETOOL_HOME": str(home), **(HERE if command[0] != ONETOOL else {})}
        super().__init__([*command, *args], home, env, "http")

    @cached_property
    def rest(self) -> Rest:
        """When it is first needed: a server closes connections that nobody uses."""
        return Rest(self.port)

    def close(self) -> None:
        if "rest" in self.__dict__:
            self.rest.close()
        super().close()


def upstream(folder: Path) -> Process:
    return Process([sys.executable, "-m", "bench.bundles_upstream"], folder, HERE, "http")


def peer(name: str, folder: Path, api: int) -> Process:
    python = str(PEERS_PYTHON) if name == "fastmcp" else sys.executable
    return Process([python, "-m", "bench.bundles_peers", name, str(api)], folder, HERE, "http")


def processor_seconds(pid: int) -> float:
    """That a process has used so far: what a busy machine changes least. NaN where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return nan
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine() -> str:
    """How busy it is: what else runs is in every number, though less in the ratios."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, load {os.getloadavg()[0]:.1f}"
