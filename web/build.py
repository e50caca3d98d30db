"""Builds the page: `python -m web.build` installs what it needs, makes the client's types, checks, writes the assets.

    --check    build anew and fail if the assets, the types or the manifest differ; change nothing
    --hashes   compare the sources, the API's schemas and the assets with built.json; needs no Node
    --test     run the tests of web/tests with Vitest
    --lint     run svelte-check, ESLint and Prettier
    --format   have Prettier write the sources
    --dev      Vite's own server, which shows what is edited at once, in front of `make serve` (or of ONETOOL_URL)

The assets are committed, so that `make serve` and the wheel need no Node. `built.json` has the hashes of the sources,
of the API's schemas that the page uses, and of the assets: a machine without Node sees whether they belong together.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests import npm

WEB = Path(__file__).parent
ROOT = WEB.parent
STATIC = ROOT / "src" / "onetool" / "interfaces" / "web" / "static"
NODE = ROOT / ".node-web"
MANIFEST = WEB / "built.json"
TYPES = WEB / "src" / "lib" / "api" / "types.d.ts"
SETTINGS = ("package.json", "package-lock.json", "vite.config.ts", "svelte.config.js", "tsconfig.json", "index.html")
USED_SCHEMA = re.compile(r'\bSchemas\["(\w+)"\]')


def manifest() -> dict[str, dict[str, str]]:
    """Return the hashes of what the page is made of, and of what was made."""
    sources = [WEB / name for name in SETTINGS] + _files(WEB / "src")
    schemas = {
        name: sha256(json.dumps(one, sort_keys=True).encode()).hexdigest()
        for name, one in used_document()["components"]["schemas"].items()
    }
    return {"sources": _hashes(sources, WEB), "schemas": schemas, "assets": _hashes(_files(STATIC), STATIC)}


def mismatches() -> list[str]:
    """Which files are not as they were when the page was built last, in words."""
    known, now = json.loads(MANIFEST.read_text(encoding="utf-8")), manifest()
    return [
        f"{kind[:-1]} {name} {_what_happened(name, known[kind], now[kind])}"
        for kind in now
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


def environment() -> dict[str, str]:
    """Return the environment of programs that import the page's packages from anywhere."""
    return {**npm.environment(), "NODE_PATH": str(NODE / "node_modules")}


def _node(script: str, *args: str) -> None:
    done = subprocess.run(
        [*npm.node(), str(NODE / "node_modules" / script), *args], cwd=WEB, env=environment(), check=False
    )
    if done.returncode:
        raise SystemExit(f"{script.split('/')[0]} found something wrong: see above.")


def _check_types() -> None:
    _node("svelte-check/bin/svelte-check", "--tsconfig", "tsconfig.json", "--fail-on-warnings")


def install(*options: str, within: float = npm.WITHIN) -> None:
    """Packages go beside the sources' folder."""
    npm.install(WEB, NODE, *options, within=within)
    _link()


def _link() -> None:
    """Let Vite find the packages: it looks for them beside its config."""
    link = WEB / "node_modules"
    if not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(Path("..") / NODE.name / "node_modules", target_is_directory=True)


@cache
def used_document() -> dict[str, Any]:
    """Return the API's description with the schemas that the page names and those they refer to, and no paths."""
    from onetool import App
    from onetool.interfaces.rest.openapi import openapi_document

    with TemporaryDirectory() as folder:
        config = Path(folder) / "onetool.yaml"
        config.write_text("{}\n", encoding="utf-8")
        with App.open(config) as app:
            document = openapi_document(app, "")
    schemas = document["components"]["schemas"]
    todo = [name for path in _files(WEB / "src") for name in USED_SCHEMA.findall(path.read_text(encoding="utf-8"))]
    used: set[str] = set()
    while todo:
        if (name := todo.pop()) not in used:
            if name not in schemas:
                raise SystemExit(f'web/src uses Schemas["{name}"], which the API does not describe.')
            used.add(name)
            todo += re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schemas[name]))
    kept = {name: schemas[name] for name in sorted(used)}
    return {**document, "paths": {}, "components": {"schemas": kept}}


def write_types(target: Path) -> None:
    """Write the client's types of these schemas."""
    with TemporaryDirectory() as folder:
        document = Path(folder) / "openapi.json"
        document.write_text(json.dumps(used_document()), encoding="utf-8")
        _node("openapi-typescript/bin/cli.js", str(document), "--output", str(target), "--default-non-nullable=false")


def build(check: bool) -> None:
    with TemporaryDirectory() as folder:
        types, assets = Path(folder) / "types.d.ts", Path(folder) / "static"
        write_types(types)
        if check and types.read_bytes() != TYPES.read_bytes():
            raise SystemExit("web/src/lib/api/types.d.ts is not what the API describes now: run `make web`.")
        shutil.copyfile(types, TYPES)
        _check_types()
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


def run_tests() -> None:
    """Run the tests of the page's logic."""
    _link()
    _node("vitest/vitest.mjs", "run")


def lint() -> None:
    """Check types and templates, then rules, then formatting."""
    _check_types()
    _node("eslint/bin/eslint.js", ".")
    _node("prettier/bin/prettier.cjs", "--check", ".")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m web.build", description="Build the page.")
    parser.add_argument("--check", action="store_true", help="fail if what is committed differs; change nothing")
    parser.add_argument("--hashes", action="store_true", help="compare hashes only, without Node")
    parser.add_argument("--dev", action="store_true", help="Vite's own server, in front of a server that runs")
    parser.add_argument("--test", action="store_true", help="test the page's logic with Vitest")
    parser.add_argument("--lint", action="store_true", help="check types, rules and formatting")
    parser.add_argument("--format", action="store_true", help="format the sources with Prettier")
    args = parser.parse_args()
    if args.check:
        return check()
    if args.hashes:
        return compare_hashes()
    install()
    if args.test:
        return run_tests()
    if args.lint:
        return lint()
    if args.format:
        return _node("prettier/bin/prettier.cjs", "--write", "--log-level=warn", ".")
    return _node("vite/bin/vite.js") if args.dev else build(check=False)


if __name__ == "__main__":
    main()
