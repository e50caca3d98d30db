"""What runs have found, kept as JSON: for each subject when, where and with what it was measured, and its rows."""

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.mcp_contenders import PEERS_PYTHON
from bench.table import Row
from onetool import __version__

PACKAGES = ("fastmcp", "mcp", "smolagents", "pydantic-monty", "uvicorn", "starlette")
ASK_VERSIONS = """
import json, sys
from importlib.metadata import version
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


class Circumstances(msgspec.Struct, frozen=True):
    """When and where something was measured, and with which versions."""

    date: str
    machine: str
    versions: Mapping[str, str]


class Subject(msgspec.Struct, frozen=True):
    """What was measured of one subject, all of it in one run."""

    taken: Circumstances
    rows: list[Row]


Results = dict[str, Subject]
"""By the name of the subject."""


def read(file: Path) -> Results:
    return msgspec.json.decode(file.read_bytes(), type=Results)


def write(file: Path, results: Results) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(_rounded(results)), indent=1) + b"\n")


def merged(before: Results, now: Results, order: Iterable[str]) -> Results:
    """What was not measured now stays as it was, with the date of then."""
    both = {**before, **now}
    return {name: both[name] for name in order if name in both}


def _rounded(results: Results) -> object:
    """Digits that no measurement has would only make the file longer."""
    return _short(msgspec.to_builtins(results))


def _short(value: object) -> object:
    match value:
        case dict():
            return {key: _short(one) for key, one in value.items()}
        case list():
            return [_short(one) for one in value]
        case float() if not value.is_integer():
            return float(f"{value:.4g}")
        case _:
            return value


# Where


def circumstances() -> Circumstances:
    return Circumstances(f"{datetime.now(UTC):%Y-%m-%d}", _machine(), _versions())


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg()[0]
    busy = f"; other work ran on it (load {load:.1f})" if load > (cores or 1) / 2 else ""
    return f"{_processor()}, {cores} cores, {platform.system()} {platform.machine()}{busy}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _versions() -> dict[str, str]:
    found = {"onetool": __version__, "python": platform.python_version()}
    if PEERS_PYTHON.exists():
        command = [str(PEERS_PYTHON), "-c", ASK_VERSIONS, *PACKAGES]
        found |= msgspec.json.decode(subprocess.run(command, check=True, capture_output=True).stdout)
    return found
