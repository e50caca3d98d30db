"""`make conformance`: the official MCP suite, for OneTool as a server and as a client, and real clients.

The server has the tools that the suite wants; the client meets the servers that the suite starts.

Prints a table, and every check that failed or warned. Exit code 1 if anything failed. The suite's own files are in
`.conformance/results/` afterwards.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from . import node
from .clients import run_clients
from .outcome import Outcome, print_outcomes
from .proxied import run_proxied, scenarios
from .server import Server, copy_fixture
from .suite import REVISIONS, SUITES, run_scenario, run_suite


def main() -> int:
    asked = _arguments()
    node.install()
    (node.FOLDER / "results").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="onetool-conformance-") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        environment = node.environment(home)
        if asked.scenario and not asked.side:
            asked.side = "client" if asked.scenario in scenarios(environment) else "server"
        outcomes = []
        if asked.side != "client":
            outcomes += _server_side(asked, copy_fixture(Path(folder)), environment)
        if asked.side != "server":
            outcomes += run_proxied(environment, asked.revision, asked.scenario)
    print_outcomes(outcomes)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def _server_side(asked: argparse.Namespace, config: Path, environment: dict[str, str]) -> list[Outcome]:
    server = Server(config, environment, node.FOLDER / "results" / "server.log")
    print(f"The server answers at {server.url}", flush=True)
    ending = Outcome("the server ends on SIGTERM, and leaves nothing behind")
    outcomes = []
    try:
        outcomes += _suites(asked, server.url, environment)
        if asked.clients:
            outcomes += run_clients(server.url, config, environment)
    finally:
        wrong = server.stop()
    if wrong:
        ending.fails("; ".join(wrong))
    else:
        ending.passes()
    return [*outcomes, ending]


def _suites(asked: argparse.Namespace, url: str, environment: dict[str, str]) -> list[Outcome]:
    revisions = [asked.revision] if asked.revision else [*REVISIONS]
    if asked.scenario:
        tried = [run_scenario(url, environment, asked.scenario, revision) for revision in revisions]
        if not any(outcome.total for outcome in tried):  # of an extension, which no revision includes
            tried = [run_scenario(url, environment, asked.scenario, None)]
        return [outcome for outcome in tried if outcome.total]
    suites = [asked.suite] if asked.suite else [*SUITES]
    outcomes = [run_suite(url, environment, suite, revision) for suite in suites for revision in revisions]
    if "all" in suites and not asked.revision:
        outcomes.append(run_suite(url, environment, "all", None))
    return outcomes


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--side", choices=("server", "client"), help="only OneTool as this (default: as both)")
    parser.add_argument("--suite", choices=SUITES, help="only this suite (default: both)")
    parser.add_argument("--revision", choices=REVISIONS, help="only this revision (default: both, and extensions)")
    parser.add_argument("--scenario", metavar="NAME", help="only this scenario of the suite, and no clients")
    parser.add_argument("--no-clients", dest="clients", action="store_false", help="leave the real clients out")
    asked = parser.parse_args()
    asked.clients = asked.clients and not asked.scenario
    return asked


if __name__ == "__main__":
    sys.exit(main())
