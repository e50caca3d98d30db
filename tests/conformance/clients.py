"""Real clients, used as people use them: each lists the tools and calls one, over HTTP and over stdio."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from . import node
from .outcome import Outcome
from .server import ONETOOL

WITHIN = 60  # seconds
ANSWER = "Hello, Ada!"
ARGS = json.dumps({"name": "Ada"})


def run_clients(url: str, config: Path, environment: dict[str, str]) -> list[Outcome]:
    """`config` is what `onetool mcp` serves; the server at `url` serves the same."""
    told = f"ONETOOL_CONFIG={config}"  # as a variable, since a client may take `--config` for its own
    inspector = {"HTTP": ["--server-url", url], "stdio": [str(ONETOOL), "mcp", "-e", told]}
    mcporter = {
        "HTTP": ["--http-url", url, "--allow-http"],
        "stdio": ["--stdio", str(ONETOOL), "--stdio-arg", "mcp", "--env", told],
    }
    outcomes = [
        _inspector(f"Inspector's CLI, {way}, {revision}", [*target, "--protocol-era", era], environment)
        for revision, era in (("2025-11-25", "legacy"), ("2026-07-28", "modern"))
        for way, target in inspector.items()
    ]
    outcomes += [_mcporter(f"mcporter, {way}", target, environment) for way, target in mcporter.items()]
    return outcomes


def _inspector(what: str, target: list[str], environment: dict[str, str]) -> Outcome:
    def run(*args: str) -> str:
        return _output(node.command(node.INSPECTOR, "--cli", *target, "--format", "json", "-q", *args), environment)

    return _tried(
        what,
        lists=lambda: [tool["name"] for tool in json.loads(run("--method", "tools/list"))["result"]["tools"]],
        calls=lambda: run("--method", "tools/call", "--tool-name", "greet", "--tool-args-json", ARGS),
    )


def _mcporter(what: str, target: list[str], environment: dict[str, str]) -> Outcome:
    def run(*args: str) -> str:
        return _output(node.command(node.MCPORTER, *args), environment)

    return _tried(
        what,
        lists=lambda: [tool["name"] for tool in json.loads(run("list", *target, "--json"))["tools"]],
        calls=lambda: run("call", *target, "--tool", "greet", "--args", ARGS, "--output", "json"),
    )


def _tried(what: str, lists: Callable[[], list[str]], calls: Callable[[], str]) -> Outcome:
    print(f"{what} …", flush=True)
    outcome = Outcome(what)
    for name, try_it, is_right in (
        ("lists the tools", lists, lambda names: {"greet", "test_simple_text"} <= set(names)),
        ("calls greet", calls, lambda output: ANSWER in output),
    ):
        try:
            got = try_it()
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
            outcome.fails(f"{name}: {type(error).__name__}: {error}")
            continue
        if is_right(got):
            outcome.passes()
        else:
            outcome.fails(f"{name}: {got}")
    return outcome


def _output(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        timeout=WITHIN,
        check=False,
    )
    if done.returncode:
        raise ValueError(f"exit code {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
