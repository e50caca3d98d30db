"""`python -m tests.attack`: run every attack test and print, per area, how many attempts there were and got through.

`--record` writes the table into docs/operate/security.md. Other arguments go to pytest.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operate" / "security.md"
TABLE = re.compile(r"(?<=<!-- attacks -->\n).*?(?=<!-- /attacks -->)", re.DOTALL)
MARK = "mark.attack("


def area_of(args: Sequence) -> tuple[str, int]:
    """Return the area of a test, and how many attempts it makes."""
    area, attempts = (*args, 1)[:2]
    return area, attempts


class Attempts:
    """A pytest plugin that counts attack tests by area and outcome."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self.tried: Counter[str] = Counter()
        self.through: Counter[str] = Counter()
        self.skipped: list[str] = []
        self._failed: set[str] = set()

    def pytest_collection_modifyitems(self, items) -> None:
        for item in items:
            if mark := item.get_closest_marker("attack"):
                area, attempts = area_of(mark.args)
                self.found[area] += attempts

    def pytest_runtest_logreport(self, report) -> None:
        args = dict(report.user_properties).get("attack")
        if args is None:
            return
        area, attempts = area_of(args)
        if report.skipped:
            self.skipped.append(report.nodeid)
        elif report.when == "call":
            self.tried[area] += attempts
        if report.failed and report.nodeid not in self._failed:
            self._failed.add(report.nodeid)
            self.through[area] += 1

    def table(self) -> str:
        """Return the Markdown table; an area whose attempts were all skipped has a row with zero."""
        areas = sorted({*self.found, *self.tried, *self.through})
        rows = [(area, self.tried[area], self.through[area]) for area in areas]
        rows.append(("all", self.tried.total(), self.through.total()))
        return "".join(f"| {area} | {tried:,} | {through:,} |\n" for area, tried, through in rows)


def files() -> list[str]:
    """Return the test files that have attack tests."""
    return [str(file) for file in sorted((ROOT / "tests").rglob("test_*.py")) if MARK in file.read_text()]


def recorded() -> str:
    """Return the rows of the table in docs/operate/security.md, without its head."""
    found = TABLE.search(PAGE.read_text())
    return "".join(found.group().splitlines(keepends=True)[2:]) if found else ""


def collected() -> Counter[str]:
    """Return how many attack tests each area has, without running them."""
    command = [sys.executable, "-m", "tests.attack", "--collect-only", "-q"]
    env = {**os.environ, "ONETOOL_BROWSER": "full"}  # as `make attack` has it
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, env=env).stdout
    return Counter({area: int(count) for area, count in re.findall(r"^attack area (.+): (\d+)$", output, re.MULTILINE)})


def main(args: list[str]) -> int:
    attempts = Attempts()
    record = "--record" in args
    code = pytest.main(["-m", "attack", *(arg for arg in args if arg != "--record"), *files()], plugins=[attempts])
    if "--collect-only" in args:
        print("".join(f"attack area {area}: {count}\n" for area, count in sorted(attempts.found.items())))
        return code
    table = f"| area | attempts | through |\n|---|--:|--:|\n{attempts.table()}"
    print(f"\n{table}")
    for name in attempts.skipped:
        print(f"not tried: {name}")
    if record and code == 0 and not attempts.skipped:
        PAGE.write_text(TABLE.sub(lambda _: table, PAGE.read_text()))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
