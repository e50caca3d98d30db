"""`python -m tests.all_suites`: run every suite, one after the other, and print a table of how each ended.

Names of suites as arguments run these alone.
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUITES = ("test", "test-long", "test-browser", "test-cluster", "faults", "conformance", "fuzz", "attack")


def main(names: list[str]) -> int:
    rows: list[tuple[str, str, int]] = []
    for name in names or SUITES:
        began = time.monotonic()
        code = subprocess.run(["make", name], cwd=ROOT, check=False).returncode
        rows.append((name, "passed" if code == 0 else f"FAILED, exit code {code}", round(time.monotonic() - began)))
    print(f"\n{'suite':14} {'time':>8}  outcome")
    for name, outcome, seconds in rows:
        print(f"{name:14} {seconds // 60:3} min {seconds % 60:02}  {outcome}")
    return int(any(outcome != "passed" for _, outcome, _ in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
