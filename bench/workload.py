"""What is measured of anything that runs code over tools. `contender` is the process that measures one of them.

Imports nothing of ours: the peers live in an environment of their own.
"""

import subprocess
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

SIZES = (10, 500, 10_000)
LARGE = 1_000_000  # characters
FEW, MANY = 50, 1_000

Run = Callable[[str], Awaitable[Any]]


class Codes(NamedTuple):
    """The same programs in the words of one contender; one that can't say something has None for it."""

    sum: str  # 1 + 1
    calls: str  # `{n}` calls of echo, one after the other
    gathered: str | None  # ten at once
    large_inside: str  # the length of what `large` returns
    large_out: str


class Contender(Protocol):
    """One that runs code. `open` gives what runs it, over so many tools: `echo`, `large` and others."""

    codes: Codes

    async def open(self, size: int) -> Run: ...

    def value(self, outcome: Any) -> Any:
        """The result as data."""
        ...


def megabytes(pid: int) -> float:
    """Of a process, and of those that it has started."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,rss="], capture_output=True, text=True, check=True).stdout
    rows = [[int(cell) for cell in line.split()] for line in listed.splitlines()]
    family = {pid}
    for _ in range(3):  # children, theirs, and theirs
        family |= {pid for pid, parent, _ in rows if parent in family}
    return sum(size for pid, _, size in rows if pid in family) / 1024
