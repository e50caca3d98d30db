"""Servers that need long to start: `servers test` says what they do meanwhile, and why they did not come up."""

import json
import os
import subprocess

import warm
from helpers import start


def test_progress_is_shown_until_the_server_is_there(harness, tmp_path):
    config = harness.config({"slow": harness.nasty("waits_for_file", tmp_path / "go")})
    with start(
        *("--config", str(config), "servers", "test", "slow", "--json"),
        cwd=tmp_path,
        env={**os.environ, warm.CONSTANTS: '{"onetool.interfaces.cli.servers.PROGRESS_SECONDS": 0.2}'},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        said = next(line for line in process.stderr if "downloading the internet" in line)
        (tmp_path / "go").touch()
        result = json.loads(process.communicate(timeout=60)[0])
    assert said.startswith("slow: still starting after ")
    assert (process.returncode, result["state"], len(result["tools"])) == (0, "connected", 1)


def test_the_reason_is_shown_afterwards(harness, tmp_path):
    harness.config({"slow": harness.nasty("waits_for_file", tmp_path / "never", connect_timeout=1)})
    done = harness.cli("servers", "test", "slow", "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["state"]) == (1, "disconnected")
    assert result["error"] == (
        "it did not respond within 1 s (to wait longer: connect_timeout in its block of the config); "
        "it said: downloading the internet"
    )
