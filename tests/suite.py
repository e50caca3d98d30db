"""`python -m tests.suite`: pytest, and a second try, alone, for the few tests that failed in the crowd.

Thousands of tests start processes, open sockets and wait for clocks, several at a time on a machine that others use,
too. One that fails there and passes alone has most likely met a busy machine: it is named as flaky, with what it said
above, and should be looked at; but it does not stop everybody. A real fault fails twice. More than a few failures are
no accident, and not tried again.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

MOST = 3
FAILED = 1  # pytest's code for "tests failed"
KEPT = Path(".pytest_cache/v/cache/lastfailed")
# Hundreds of tests start a process. Each would compile everything anew where no bytecode may be written.
ENVIRONMENT = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}


def main(args: list[str]) -> int:
    KEPT.unlink(missing_ok=True)
    _rewrite_asserts()
    code = _pytest("--dist=worksteal", *args)  # neighbours stay together, and with them what they share
    failed = _failed()
    if code != FAILED or not 0 < len(failed) <= MOST:
        return code
    print(f"\nOnce more, alone: {', '.join(failed)}", flush=True)
    code = _pytest("-n0", "--last-failed", "--last-failed-no-failures=none")
    if code == 0:
        print(f"\nFLAKY, failed among others and passed alone: {', '.join(failed)}", flush=True)
    return code


def _rewrite_asserts() -> None:
    cores = os.cpu_count() or 1
    commands = [[sys.executable, "-m", "tests.rewrite", str(share), str(cores)] for share in range(cores)]
    for share in [subprocess.Popen(command, env=ENVIRONMENT) for command in commands]:
        share.wait()  # one that failed has only saved nobody any work


def _pytest(*args: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *args], check=False, env=ENVIRONMENT).returncode


def _failed() -> list[str]:
    return list(json.loads(KEPT.read_text())) if KEPT.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
