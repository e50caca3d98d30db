"""Builds the page: `python -m web.build` installs what it needs, makes the client's types, checks, writes the assets.

    --check    fail if the assets, the types or the manifest are not what these sources give; change nothing
    --dev      Vite's own server, which shows what is edited at once, in front of `make serve` (or of ONETOOL_URL)

The assets are committed, so that `make serve` and the wheel need no Node. `built.json` has the hashes of the sources
and of the assets: a machine where npm can't install anything still sees that they belong together.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from tests import npm

WEB = Path(__file__).parent
ROOT = WEB.parent
STATIC = ROOT / "src" / "onetool" / "interfaces" / "web" / "static"
NODE = ROOT / ".node-web"
MANIFEST = WEB / "built.json"
TYPES = WEB / "src" / "lib" / "api" / "types.d.ts"
SETTINGS = ("package.json", "package-lock.json", "vite.config.ts", "svelte.config.js", "tsconfig.json", "index.html")


def manifest() -> dict[str, dict[str, str]]:
    """The hashes of what the page is made of, and of what was made."""
    sources = [WEB / name for name in SETTINGS] + _files(WEB / "src")
    return {"sources": _hashes(sources, WEB), "assets": _hashes(_files(STATIC), STATIC)}


def mismatches() -> list[str]:
    """Which files are not as they were when the page was built last, in words."""
    known, now = json.loads(MANIFEST.read_text(encoding="utf-8")), manifest()
    return [
        f"{kind[:-1]} {name} {_what_happened(name, known[kind], now[kind])}"
        for kind in ("sources", "assets")
        for name in sorted(known[kind].keys() | now[kind].keys())
        if known[kind].get(name) != now[kind].get(name)
    ]


def _what_happened(name: str, known: dict[str, str], now: dict[str, str]) -> str:
    if name not in now:
        return "is gone"
    return "has changed" if name in known else "is new"


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _hashes(files: Iterable[Path], below: Path) -> dict[str, str]:
    return {path.relative_to(below).as_posix(): sha256(path.read_bytes()).hexdigest() for path in files}


def _node(script: str, *args: str) -> None:
    done = subprocess.run(
        [*npm.node(), str(NODE / "node_modules" / script), *args], cwd=WEB, env=npm.environment(), check=False
    )
    if done.returncode:
        raise SystemExit(f"{script.split('/')[0]} found something wrong: see above.")


def install(*options: str, within: float = npm.WITHIN) -> None:
    """Packages go beside the sources' folder; Vite looks for them through a link."""
    npm.install(WEB, NODE, *options, within=within)
    link = WEB / "node_modules"
    if not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(Path("..") / NODE.name / "node_modules", target_is_directory=True)


def write_types(target: Path) -> None:
    """The client's types, from the API's own description."""
    from onetool import App
    from onetool.interfaces.rest.openapi import openapi_document

    with TemporaryDirectory() as folder:
        config, document = Path(folder) / "onetool.yaml", Path(folder) / "openapi.json"
        config.write_text("{}\n", encoding="utf-8")
        with App.open(config) as app:
            document.write_text(json.dumps(openapi_document(app, "")), encoding="utf-8")
        _node("openapi-typescript/bin/cli.js", str(document), "--output", str(target), "--default-non-nullable=false")


def build(check: bool) -> None:
    with TemporaryDirectory() as folder:
        types, assets = Path(folder) / "types.d.ts", Path(folder) / "static"
        write_types(types)
        if check and types.read_bytes() != TYPES.read_bytes():
            raise SystemExit("web/src/lib/api/types.d.ts is not what the API describes now: run `make web`.")
        shutil.copyfile(types, TYPES)
        _node("svelte-check/bin/svelte-check", "--tsconfig", "tsconfig.json", "--fail-on-warnings")
        _node("vite/bin/vite.js", "build", "--outDir", str(assets), "--emptyOutDir", "--logLevel", "warn")
        if not check:
            shutil.rmtree(STATIC, ignore_errors=True)
            shutil.copytree(assets, STATIC)
            MANIFEST.write_text(json.dumps(manifest(), indent=1) + "\n", encoding="utf-8")
        elif _hashes(_files(assets), assets) != _hashes(_files(STATIC), STATIC):
            raise SystemExit("The committed assets are not what web/ gives: run `make web` and commit them.")
    compare_hashes()
    print(f"The page is built: {sum(path.stat().st_size for path in _files(STATIC)):,} bytes.", file=sys.stderr)


def compare_hashes() -> None:
    if found := mismatches():
        raise SystemExit("\n".join([*found, "Run `make web` and commit what it changes."]))


def check() -> None:
    """Build it anew and compare. Where npm can't install what that needs, it compares the hashes only, and says so."""
    try:
        install(*npm.IMPATIENT, within=npm.AT_MOST)
    except (OSError, subprocess.SubprocessError, SystemExit) as error:
        print(f"THE PAGE WAS NOT BUILT ANEW, only hashes were compared: {error}", file=sys.stderr)
        compare_hashes()
    else:
        build(check=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m web.build", description="Build the page.")
    parser.add_argument("--check", action="store_true", help="fail if what is committed differs; change nothing")
    parser.add_argument("--dev", action="store_true", help="Vite's own server, in front of a server that runs")
    args = parser.parse_args()
    if args.check:
        return check()
    install()
    return _node("vite/bin/vite.js") if args.dev else build(check=False)


if __name__ == "__main__":
    main()
