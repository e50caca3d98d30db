"""python -m bench [SUBJECT …]: all subjects, or those that are named."""

import sys

from bench import calls, cold_start

SUBJECTS = {"cold-start": cold_start.run, "calls": calls.run}


def main() -> None:
    wanted = sys.argv[1:] or list(SUBJECTS)
    unknown = [name for name in wanted if name not in SUBJECTS]
    if unknown:
        sys.exit(f"no subject {', '.join(unknown)}; there are {', '.join(SUBJECTS)}")
    for name in wanted:
        SUBJECTS[name]()


main()
