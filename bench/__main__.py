"""python -m bench [SUBJECT …]: all subjects, or those that are named."""

import sys

from bench import calls, cold_start, mcp, packs, run

SUBJECTS = {
    "cold-start": cold_start.run,
    "calls": calls.run,
    "packs": packs.run,
    "run": run.run,
    "mcp": mcp.run,
}


def main() -> None:
    wanted = sys.argv[1:] or list(SUBJECTS)
    unknown = [name for name in wanted if name not in SUBJECTS]
    if unknown:
        sys.exit(f"no subject {', '.join(unknown)}; there are {', '.join(SUBJECTS)}")
    try:
        for name in wanted:
            SUBJECTS[name]()
    except KeyboardInterrupt:
        sys.exit(130)  # what a subject has started, it has ended


main()
