"""`python -m tests.replicas.install`: brings the balancers that `make test-cluster` needs, where that can be done.

Nothing happens where they are found. Only root may install them. Where they can't be had, this says why and ends well:
those tests are then skipped, and say so.
"""

import os
import shutil
import subprocess
import sys

PACKAGES = {"haproxy": "haproxy", "nginx": "nginx-light"}
WITHIN = 240  # seconds for each command


def missing() -> list[str]:
    places = f"{os.environ['PATH']}:/usr/sbin"
    return [package for program, package in PACKAGES.items() if shutil.which(program, path=places) is None]


def main() -> None:
    wanted = missing()
    if not wanted:
        return
    if shutil.which("apt-get") is None or os.getuid() != 0:
        print(f"NO BALANCERS: install them as root: apt-get install {' '.join(wanted)}", file=sys.stderr)
        return
    # Else Debian starts a server of each at once.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *wanted]):
        try:
            done = subprocess.run(["apt-get", "-q", *command], env=environment, timeout=WITHIN, stdout=sys.stderr)
        except subprocess.SubprocessError as error:
            print(f"NO BALANCERS: {error}", file=sys.stderr)
            return
        if done.returncode:
            print(f"NO BALANCERS: apt-get {command[0]} ended with {done.returncode}", file=sys.stderr)
            return


if __name__ == "__main__":
    main()
