"""python -m bench [SUBJECT …]: all subjects, or those that are named; then docs/internals/benchmarks.md is written.

cold-start   a command from nothing
calls        a lookup and a call, with few tools and with many
access       finding out who a request comes from: a named token, a JWT
packs        loading many packs; a tool that calls another
ot           finding one's way among 100, 2,000 and 20,000 tools
stats        what counting a call costs
audit        what the audit log costs a call
run          code, beside FastMCP's code mode and smolagents
mcp          the server over stdio and HTTP, beside FastMCP and the official SDK; takes three to four minutes
servers      other people's servers behind us, beside the SDK's client and FastMCP's proxy; takes about five minutes
bundles      the store and REST with 100 and 10,000 tools, and invoke beside FastMCP; takes about four minutes
openapi      importing a large OpenAPI document, beside FastMCP; needs `make openapi`
scale        10,000 and 100,000 tools in bundles beside what we aim at; takes about ten minutes
cluster      three replicas on one PostgreSQL: CPU of a call, an answer elsewhere, how soon a change is everywhere
page         the page in a real browser with 10,000 tools, and what it adds to a server that nobody visits
ask          `ask` to its first request, beside the official SDKs; tokens of a task with 10, 100 and 527 tools
tokens       menus, and tasks of two calls over 527 real tools, beside FastMCP's search and code mode

Only where they are named; the page of results has none of them:
bundles-large    the same with 100,000 tools as well
bundles-profile  where the time of an invoke goes, and that of keeping in step

What is not measured keeps its last figures and their date. `python -m bench compare A.json B.json` shows what moved.
"""

import argparse
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from bench import (
    access,
    ask,
    audit,
    bundles,
    bundles_profile,
    calls,
    charts,
    cluster,
    cold_start,
    mcp,
    openapi,
    ot,
    packs,
    page,
    page_of_results,
    results,
    run,
    scale,
    servers,
    stats,
    tokens,
)
from bench.compare import compare
from bench.mcp_contenders import ROOT
from bench.table import Row

Measure = Callable[[], Iterable[Row] | None]

SUBJECTS: dict[str, Measure] = {
    "cold-start": cold_start.run,
    "calls": calls.run,
    "access": access.run,
    "packs": packs.run,
    "ot": ot.run,
    "stats": stats.run,
    "audit": audit.run,
    "run": run.run,
    "mcp": mcp.run,
    "servers": servers.run,
    "bundles": bundles.run,
    "openapi": openapi.run,
    "scale": scale.run,
    "cluster": cluster.run,
    "page": page.run,
    "ask": ask.run,
    "tokens": tokens.run,
}
BY_NAME: dict[str, Measure] = {
    "bundles-large": bundles.run_large,
    "bundles-profile": bundles_profile.run,
}
QUICK: dict[str, Measure] = {
    "cold-start": cold_start.run,
    "calls": calls.run,
    "run": run.run_quick,
    "tokens": tokens.two_call_tasks,
}
PATIENCE_S = 900  # for one subject: then something hangs, and nobody may be there to see it


def main() -> None:
    if sys.argv[1:2] == ["compare"]:
        compare(*_two_files())
        return
    wanted = _arguments()
    failed: list[str] = []
    found: results.Results = {}
    taken = results.circumstances()  # before our own work makes the machine busy
    try:
        for name, measure in _wanted(wanted).items():
            rows = _measured(name, measure)
            if rows is None:
                failed.append(name)
            elif rows:
                found[name] = results.Subject(taken, rows)
            if wanted.json:
                results.write(wanted.json, found)
            if found and not wanted.quick:  # after each: what was measured is not lost if a later one has to be stopped
                write(wanted.docs, found)
    except KeyboardInterrupt:
        sys.exit(130)  # what a subject has started, it has ended
    if failed:
        sys.exit(f"Not measured, for the reason above: {', '.join(failed)}")


def _wanted(wanted: argparse.Namespace) -> dict[str, Measure]:
    there = {**SUBJECTS, **BY_NAME, **(QUICK if wanted.quick else {})}
    names = wanted.subjects or (QUICK if wanted.quick else SUBJECTS)
    return {name: there[name] for name in names}


def _two_files() -> list[Path]:
    parser = argparse.ArgumentParser(prog="python -m bench compare", description="What has moved between two runs.")
    parser.add_argument(
        "files", nargs=2, type=Path, metavar="FILE", help="written by --json, or docs/internals/benchmarks.json"
    )
    return parser.parse_args(sys.argv[2:]).files


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", choices=[*SUBJECTS, *BY_NAME, []])
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}; docs/ stays as it is")
    parser.add_argument("--json", type=Path, metavar="FILE", help="what this run has found, as JSON")
    parser.add_argument("--docs", type=Path, metavar="FOLDER", default=ROOT / "docs", help="where the page is written")
    return parser.parse_args()


def _measured(name: str, measure: Measure) -> list[Row] | None:
    """All of a subject, or None. One that fails or hangs does not stop the others."""
    began = perf_counter()
    try:
        with _limited(PATIENCE_S):
            return list(measure() or ())
    except (Exception, SystemExit):  # noqa: BLE001 - whatever it is, it is shown
        traceback.print_exc()
        return None
    finally:
        print(f"\n{name} took {perf_counter() - began:.0f} s")


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Raises where the main thread waits; a subject then ends what it has started."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    if not hasattr(signal, "SIGALRM"):  # Windows
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def write(docs: Path, found: results.Results) -> None:
    """The page, its JSON, the charts, and the lines that the README quotes."""
    pictures, folder = docs / "pictures", docs / "internals"
    pictures.mkdir(parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
    file = folder / "benchmarks.json"
    whole = results.merged(results.read(file) if file.exists() else {}, found, SUBJECTS)
    results.write(file, whole)
    whole = results.read(file)  # with as many digits as it has, so that the page is that of the file
    page_of_results.write(folder, whole)
    charts.write(pictures, whole)
    readme = docs.parent / "README.md"
    if readme.exists():
        readme.write_text(page_of_results.quoted(readme.read_text(), whole))


if __name__ == "__main__":
    main()
