"""Figures that were never measured: two runs of two subjects."""

import pytest
from bench.results import Circumstances, Subject
from bench.table import row

THEN = Circumstances("2026-01-02", "an old machine, 2 cores", {"onetool": "0.0.9", "fastmcp": "4.0.0"})
NOW = Circumstances("2026-11-16", "a new machine, 8 cores", {"onetool": "0.1.0", "fastmcp": "4.1.0"})


def speed(ours, fastmcp):
    return row("MCP: tools/call", "/s", {"OneTool": [ours], "FastMCP": [fastmcp]}, more=True, chart="speed")


def start(ours, python):
    return row("onetool --version", "ms", {"OneTool": [ours], "python": [python]}, floors=["python"], aim="under 3 ×")


@pytest.fixture
def before():
    return {"cold-start": Subject(THEN, [start(0.050, 0.025)]), "mcp": Subject(THEN, [speed(3_000.0, 400.0)])}


@pytest.fixture
def after():
    return {"cold-start": Subject(NOW, [start(0.052, 0.025)]), "mcp": Subject(NOW, [speed(1_500.0, 2_000.0)])}
