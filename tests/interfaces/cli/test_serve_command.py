"""`onetool serve -- COMMAND` and `onetool mcp -- COMMAND`: one server without a config, beside those of the config."""

import json
import os
import shlex
import signal

import pytest
from helpers import cli, until
from interfaces.http.conftest import Served
from interfaces.mcp.peers import StdioPeer
from interfaces.mcp.servers import environment
from sources.mcp_servers.harness import block_of

CLOCK = ("--", "mcp-server-time", "--local-timezone", "UTC")
NOW = "mcp_server_time.get_current_time(timezone='UTC')['timezone']"


@pytest.fixture(autouse=True)
def light_clock(tmp_path_factory, monkeypatch):
    """What is called mcp-server-time here starts in a moment."""
    folder = tmp_path_factory.mktemp("bin")
    block = block_of("light_clock")
    (folder / "mcp-server-time").write_text("#!/bin/sh\nexec " + shlex.join([block["command"], *block["args"]]) + "\n")
    (folder / "mcp-server-time").chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def serve(tmp_path):
    """Start the whole of OneTool in a folder, with a home of its own."""
    running = []

    def start(*args):
        own = environment(tmp_path)
        running.append(Served(tmp_path, "--port", "0", *args, env=own, real=True))
        return running[-1]

    yield start
    for server in running:
        server.stop()


def run(server, code):
    return server.ask("/run", "POST", body=json.dumps({"code": code}).encode()).json


def files(folder):
    """The names of all files that are not of state."""
    state = {"stderr.txt", "state"}
    return {
        path.name for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] not in state
    }


def test_a_server_without_a_config_is_called_and_nothing_is_stored(serve, tmp_path):
    server = serve(*CLOCK)
    assert run(server, NOW)["value"] == "UTC"
    assert "mcp_server_time.get_current_time" in server.ask("/tools/tools").body.decode()
    (one,) = server.ask("/servers").json["servers"]
    assert one["name"] == "mcp_server_time"
    assert files(tmp_path) == set()


def test_the_own_config_stays_in_force_also_over_reloads(serve, tmp_path):
    own = tmp_path / ".onetool"
    own.mkdir()
    (own / "onetool.yaml").write_text("aliases: {hour: clock.get_current_time}\n")
    server = serve("--name", "clock", *CLOCK)
    assert run(server, "hour(timezone='UTC')")["value"]["timezone"] == "UTC"
    (own / "onetool.yaml").write_text("aliases: {minute: clock.get_current_time}\n")
    server.process.send_signal(signal.SIGHUP)
    until(lambda: run(server, "minute(timezone='UTC')")["ok"])
    (own / "onetool.yaml").write_text("servers: {clock: {command: cat}}\n")
    server.process.send_signal(signal.SIGHUP)
    until(lambda: "the config already has a server clock" in server.log_file.read_text())
    assert run(server, "minute(timezone='UTC')")["ok"]


def test_no_one_is_asked_to_trust_what_was_typed(serve, tmp_path):
    project = tmp_path / "project" / ".onetool"
    project.mkdir(parents=True)
    (project / "onetool.yaml").write_text("aliases: {now: time.now}\n")
    done = cli("check", cwd=project.parent, env=environment(tmp_path))
    assert "trust" in done.stdout + done.stderr  # so far nobody has
    server = Served(project.parent, "--port", "0", *CLOCK, env=environment(tmp_path), real=True)
    try:
        assert run(server, NOW)["value"] == "UTC"
        assert not run(server, "now()")["ok"]
    finally:
        server.stop()
    assert "trust.json" not in files(tmp_path)


def test_over_stdio(tmp_path):
    (tmp_path / "onetool.yaml").write_text("menu: direct\n")
    peer = StdioPeer(tmp_path, "new", *CLOCK, config=tmp_path / "onetool.yaml")
    try:
        until(lambda: "mcp_server_time" in str(peer.result("tools/list")))
    finally:
        assert peer.close() == 0


@pytest.mark.parametrize("command", ["serve", "mcp"])
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--",), "There is no command after --"),
        (("--", "no-such-program-at-all"), "There is no program 'no-such-program-at-all'"),
        (("--name", "x"), "--name is for a server after --"),
        (("--name", "a.b", *CLOCK), "Invalid name of a server: 'a.b'"),
        (("--name", "taken", *CLOCK), "the config already has a server taken"),
        (("mcp-server-time",), "unexpected extra argument"),
    ],
)
def test_what_can_not_be_served_is_told(tmp_path, command, args, said):
    (tmp_path / "onetool.yaml").write_text("servers: {taken: {command: cat}}\n")
    done = cli("--config", "onetool.yaml", command, *args, cwd=tmp_path, env=environment(tmp_path))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("onetool serve --na", "plain,--name"), ("onetool serve -- u", "plain,uvx"), ("onetool mcp -- uvx x", "file,x")],
)
def test_it_is_completed(tmp_path, typed, offered):
    words = typed.split()
    env = {"_ONETOOL_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    done = cli(cwd=tmp_path, env=environment(tmp_path, **env))
    assert done.stdout.splitlines() == [offered]


def test_a_command_without_dashes_is_an_error_that_says_so(tmp_path):
    done = cli("serve", "uvx", "mcp-server-time", cwd=tmp_path)
    assert done.returncode == 2
    assert "put -- before its command" in done.stderr
