"""The suite's scenarios for clients: each starts a server that looks closely, and OneTool as the client of it.

A few run side by side, each in processes of its own: the suite would run all at once, and give each 30 seconds.
"""

import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import node
from .outcome import Outcome
from .suite import REVISIONS, count

CLIENT = f"{sys.executable} -m tests.conformance.proxy_client"
CLIENT_S = 90  # seconds for the client in one scenario: it starts Python up to three times, on a busy machine
WITHIN = CLIENT_S + 30  # for the whole scenario
AT_ONCE = 3
# docs/internals/conformance.md says more.
NOT_OURS = {
    "auth/client-credentials-jwt": "keys instead of a secret are not supported",
    "auth/enterprise-managed-authorization": "an extension that is not supported",
    "auth/dpop": "an extension that is not supported",
    "auth/dpop-nonce": "an extension that is not supported",
    "auth/wif-jwt-bearer": "an extension that is not supported",
    "sep-2640-client-no-prefetch": "skills are not read from servers",
    "sep-2640-client-verify-digest": "skills are not read from servers",
    "sep-2640-client-verify-size": "skills are not read from servers",
    "sep-2640-client-verify-frontmatter": "skills are not read from servers",
}


def run_proxied(environment: dict[str, str], revision: str | None, only: str | None = None) -> list[Outcome]:
    """All scenarios at each revision that has them, or at one; a scenario of no revision of ours runs once."""
    known = {name: versions for name, versions in scenarios(environment).items() if only in (None, name)}
    outcomes = []
    for wanted in [revision] if revision else [*REVISIONS, None]:
        names = [
            name
            for name, versions in known.items()
            if name not in NOT_OURS and (wanted in versions if wanted else not versions & set(REVISIONS))
        ]
        if names:
            outcomes.append(_run(names, wanted, environment))
    return outcomes


def scenarios(environment: dict[str, str]) -> dict[str, set[str]]:
    """Their names, and the revisions that have them."""
    command = node.command(node.SUITE, "list", "--client")
    listed = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=WITHIN, check=True)
    found = re.findall(r"^  - (\S+) \[(.*)\]$", listed.stdout, re.MULTILINE)
    return {name: set(versions.split(",")) for name, versions in found}


def _run(names: list[str], revision: str | None, environment: dict[str, str]) -> Outcome:
    what = f"as a client, {revision or 'older revisions and extensions'}"
    print(f"{what} …", flush=True)
    outcome = Outcome(what)
    results = node.FOLDER / "results" / re.sub(r"[^\w.-]+", "-", what)
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name, (failed, checks) in zip(
            names, pool.map(lambda name: _scenario(name, revision, results, environment), names), strict=True
        ):
            before = outcome.failed + outcome.warnings
            for check in checks:
                count(outcome, name, check)
            if failed and outcome.failed + outcome.warnings == before:
                outcome.fails(f"{name}: {failed}")
    return outcome


def _scenario(name: str, revision: str | None, results: Path, environment: dict[str, str]) -> tuple[str, list[dict]]:
    """What the suite said if it was not content, and its checks."""
    folder = results / name.replace("/", "-")
    args = ["--command", CLIENT, "--scenario", name, "--timeout", str(CLIENT_S * 1000), "-o", str(folder)]
    try:
        done = subprocess.run(
            node.command(node.SUITE, "client", *args, *(["--spec-version", revision] if revision else [])),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment,
            cwd=node.ROOT,
            timeout=WITHIN,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it was not done after {WITHIN} s", []
    checks = [check for file in folder.rglob("checks.json") for check in json.loads(file.read_text(encoding="utf-8"))]
    if done.returncode == 0 and checks:
        return "", checks
    said = "".join(file.read_text(encoding="utf-8") for file in folder.rglob("stderr.txt"))  # the client's
    return said or done.stdout + done.stderr or f"exit code {done.returncode}", checks
