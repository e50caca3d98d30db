"""The official conformance suite: run, and its results read."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from . import node
from .outcome import Outcome

REVISIONS = ("2025-11-25", "2026-07-28")
SUITES = ("active", "all")
LONGEST = 1200  # seconds, for a whole suite; it gives each scenario 30


def run_suite(url: str, environment: dict[str, str], suite: str, revision: str | None) -> Outcome:
    """One suite at one revision; without one each scenario runs at its own, and those of extensions run too."""
    what = f"suite {suite}, {revision or 'all revisions and extensions'}"
    return _run(what, ["--suite", suite], url, environment, revision)


def run_scenario(url: str, environment: dict[str, str], scenario: str, revision: str | None) -> Outcome:
    return _run(f"{scenario}, {revision or 'its own revision'}", ["--scenario", scenario], url, environment, revision)


def _run(what: str, which: list[str], url: str, environment: dict[str, str], revision: str | None) -> Outcome:
    print(f"{what} …", flush=True)
    results = node.FOLDER / "results" / re.sub(r"[^\w.-]+", "-", what)
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    args = ["server", "--url", url, *which, "-o", str(results), *(["--spec-version", revision] if revision else [])]
    with (results / "output.txt").open("wb") as out:
        try:
            subprocess.run(
                node.command(node.SUITE, *args),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                timeout=LONGEST,
                check=False,  # what failed is in the files
            )
        except subprocess.TimeoutExpired:
            out.write(f"\nStopped after {LONGEST} s.".encode())
    return _outcome(what, results)


def _outcome(what: str, results: Path) -> Outcome:
    outcome = Outcome(what)
    output = (results / "output.txt").read_text(encoding="utf-8", errors="replace")
    started = re.findall(r"^Running client scenario '([^']+)'", output, re.MULTILINE)
    if not started and "SKIPPED: scenario" not in output:
        outcome.fails(f"the suite ran nothing: {output}")
    if output.endswith(f"Stopped after {LONGEST} s."):
        outcome.fails(f"the suite was not done after {LONGEST} s")
    for scenario in started:
        checks = _checks(results, scenario)
        if checks is None:  # the suite itself gave up on it
            outcome.fails(f"{scenario}: {_why_not_run(output, scenario)}")
            continue
        for check in checks:
            count(outcome, scenario, check)
    return outcome


def _checks(results: Path, scenario: str) -> list[dict] | None:
    for file in results.glob(f"server-{scenario}-*/checks.json"):
        if re.fullmatch(rf"server-{re.escape(scenario)}-\d{{4}}-\d\d-\d\dT.*", file.parent.name):
            return json.loads(file.read_text(encoding="utf-8"))
    return None


def count(outcome: Outcome, scenario: str, check: dict) -> None:
    """One check of the suite's, as it stands in its files."""
    status = check["status"]
    said = check.get("errorMessage") or str(check.get("details"))
    why = f"{scenario}: {check['id']} ({check['name']}): {said}"
    if status == "SUCCESS":
        outcome.passes()
    elif status == "FAILURE":
        outcome.fails(why)
    elif status == "WARNING":
        outcome.warns(why)
    elif status == "SKIPPED":
        outcome.skipped += 1
    # INFO is a remark: it says nothing of the server.


def _why_not_run(output: str, scenario: str) -> str:
    found = re.search(rf"Failed to run scenario {re.escape(scenario)}:(.*?)(?:\n\n|$)", output, re.DOTALL)
    return found[1] if found else "no result was written"
