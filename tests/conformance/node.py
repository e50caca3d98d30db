"""What Node runs here: the official suite and two clients, installed into `.conformance/` at pinned versions."""

from pathlib import Path

from .. import npm

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".conformance"
WANTED = Path(__file__).parent / "npm"
SUITE = "@modelcontextprotocol/conformance/dist/index.js"
INSPECTOR = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
MCPORTER = "mcporter/dist/cli.js"


def command(package: str, *args: str) -> list[str]:
    """What runs a package's entry with our Node."""
    return [*npm.node(), str(FOLDER / "node_modules" / package), *args]


def environment(home: Path) -> dict[str, str]:
    """For programs that should find our Node first, and no settings of the person who runs this."""
    kept = {name: value for name, value in npm.environment().items() if not name.startswith("ONETOOL_")}
    return {**kept, "HOME": str(home)}


def install() -> None:
    """Bring `.conformance/node_modules` to what the lock says."""
    npm.install(WANTED, FOLDER)
