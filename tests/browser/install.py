"""`python -m tests.browser.install`: brings the browser that tests of the page need, where that can be done.

Nothing happens where one is found. Debian's package is the one that is known to work; only root may install it. Where
it can't be had, this says why and ends well: those tests are then skipped, and say so.
"""

import os
import shutil
import subprocess
import sys

from tests.browser.chromium import found

WITHIN = 240  # seconds for each command
IMPATIENT = ("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "-o", "Acquire::https::Timeout=20")
INSTALL = ("apt-get", "install", "-y", "-q", "--no-install-recommends", "chromium")


def why_not() -> str | None:
    """Why none can be installed here, or None."""
    if shutil.which("apt-get") is None:
        return "this is not a Debian: install Chromium by hand"
    if os.getuid() != 0:
        return f"only root may install one: sudo {' '.join(INSTALL)}"
    return None


def install() -> str | None:
    """Install it. Gives why that failed, or None."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (("apt-get", "update", "-q"), INSTALL):
        try:
            subprocess.run([*command, *IMPATIENT], env=environment, check=True, timeout=WITHIN, stdout=sys.stderr)
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
    return None if found() else "the package brought no program that is known here"


def main() -> None:
    if found():
        return
    print("No Chromium is found. Installing Debian's package …", file=sys.stderr, flush=True)
    if reason := why_not() or install():
        print(f"NO BROWSER: {reason}. Tests that need one are skipped.", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
