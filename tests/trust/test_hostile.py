"""Who enters a stranger's folder runs nothing of it, dials nobody, and gives nothing away: with the real command."""

import json
import sys
from functools import partial

import helpers
import pytest
from trust.hostile import Repository

from onetool.sources.packs import importing

pytestmark = pytest.mark.attack("cloned repositories")

cli = partial(helpers.cli, cold=True)  # what a stranger's folder has must not be imported at the start, either
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
WAITS = "run onetool trust"

COMMANDS = {
    "tools list": ["tools", "list"],
    "tools info": ["tools", "info", "time.now"],
    "tools search": ["tools", "search", "hello"],
    "tools export": ["tools", "export", "--provider", "openai"],
    "check": ["check"],
    "stats": ["stats"],
    "bundles list": ["bundles", "list"],
    "servers list": ["servers", "list"],
    "servers test": ["servers", "test"],
    "sessions list": ["sessions", "list"],
    "auth list": ["auth", "list"],
    "run": ["run", "1+1"],
    "ask": ["ask", "Who am I?"],
}


@pytest.fixture
def repository(tmp_path, own_home, listener):
    return Repository(tmp_path / "cloned", own_home, listener)


def untouched(repository):
    assert repository.has_run() == []
    assert repository.listener.came == 0
    assert sorted(file.name for file in repository.config.parent.iterdir()) == ["onetool.yaml", "packs"]


def keys(**more):
    return {"AWS_SECRET_ACCESS_KEY": "aws-environment", "OPENAI_API_KEY": "sk-0123456789", **more}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_in_it_uses_nothing_of_it(name, repository):
    # What a command of that name would find at home is asked for at a port that nobody listens on.
    result = cli(*COMMANDS[name], cwd=repository.folder, env={**keys(OPENAI_API_KEY=""), "OLLAMA_HOST": "127.0.0.1:9"})
    untouched(repository)
    assert "is not trusted yet" in result.stderr
    assert WAITS in result.stderr
    assert len([line for line in result.stderr.splitlines() if "not trusted yet" in line]) == 1
    assert "aws-" not in result.stdout + result.stderr


def test_a_folder_below_it_is_no_other_place(repository):
    below = repository.folder / "src" / "deep"
    below.mkdir(parents=True)
    assert WAITS in cli("tools", "list", cwd=below).stderr
    untouched(repository)


def test_completion_says_nothing_and_does_nothing(repository):
    env = {"_ONETOOL_COMPLETE": "bash_complete", "COMP_WORDS": "onetool tools info ", "COMP_CWORD": "3"}
    result = cli(cwd=repository.folder, env=env)
    untouched(repository)
    assert "time.now" in result.stdout
    assert "evil" not in result.stdout
    assert result.stderr == ""


def test_a_client_is_told_how_to_trust_it(repository):
    calls = [{"name": "evil.hello"}, {"name": "weather"}, {"name": "run", "arguments": {"code": "evil.hello()"}}]
    asked = [
        INITIALIZE,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        *({"jsonrpc": "2.0", "id": 3 + i, "method": "tools/call", "params": call} for i, call in enumerate(calls)),
    ]
    text = "".join(json.dumps(message) + "\n" for message in asked)
    result = cli("mcp", cwd=repository.folder, stdin=text, env=keys())
    untouched(repository)
    told = {message["id"]: message for message in map(json.loads, result.stdout.splitlines()) if "id" in message}
    assert "onetool trust" in told[1]["result"]["instructions"]
    assert told[2]["result"]["tools"]
    for number in (3, 4, 5):
        assert "not trusted yet: run onetool trust" in json.dumps(told[number]), told[number]


@pytest.mark.parametrize("name", ["evil.hello", "weather", "run.anything", "dice.roll"])
def test_calling_its_tools_says_what_is_missing(name, repository):
    result = cli("tools", "invoke", name, cwd=repository.folder)
    assert result.returncode == 1
    assert "not trusted yet: run onetool trust" in result.stdout + result.stderr
    untouched(repository)


def test_calling_its_tools_says_that_the_folder_has_changed(repository):
    assert cli("trust", "--yes", cwd=repository.folder).returncode == 0
    repository.write(allowedHosts=["evil.example"], http={"host": "0.0.0.0"})
    result = cli("tools", "invoke", "evil.hello", cwd=repository.folder)
    assert ".onetool has changed since you trusted it: run onetool trust" in result.stdout
    assert "not trusted yet" not in result.stdout + result.stderr
    assert "has changed since you trusted it (+ " in result.stderr
    assert "+ allowedHosts[0]" in result.stderr
    assert "evil.example" not in result.stderr  # values are for `onetool trust`, not for logs
    assert "so nothing in it is used" in result.stderr


@pytest.mark.parametrize("command", [["list"], ["test"], ["test", "run"]])
def test_its_servers_are_said_to_wait(command, repository):
    result = cli("servers", *command, cwd=repository.folder)
    assert "This folder's servers are not in use: run onetool trust" in result.stderr
    assert "No servers are configured" not in result.stderr
    untouched(repository)


@pytest.mark.parametrize("code", ["evil.hello()", "dice.roll()", "dice()"])
def test_code_over_its_tools_says_so_too(code, repository):
    result = cli("run", code, cwd=repository.folder)
    assert result.returncode == 1
    assert "not trusted yet: run onetool trust" in result.stderr
    untouched(repository)


def test_another_error_of_code_says_nothing_of_it(repository):
    result = cli("run", "raise ValueError('evil')", cwd=repository.folder)
    assert len([line for line in result.stderr.splitlines() if WAITS in line]) == 1


def test_state_goes_home(repository, own_home):
    assert cli("run", "time.now()['iso']", cwd=repository.folder).returncode == 0
    untouched(repository)
    assert (own_home / ".onetool" / "state.db").exists()


def test_what_is_the_persons_own_works_there(repository, own_home):
    packs = own_home / ".onetool" / "packs"
    packs.mkdir()
    (packs / "mine.py").write_text("def hello() -> str:\n    'Say hello.'\n    return 'hi'\n")
    (own_home / ".onetool" / "onetool.yaml").write_text("aliases: {now: time.now}\n")
    result = cli("run", "mine.hello()", cwd=repository.folder)
    assert result.stdout.strip() == "hi"
    untouched(repository)


@pytest.mark.parametrize("entry", ["", "here", "."])
def test_an_entry_point_of_the_folder_is_not_installed(entry, repository, monkeypatch):
    """The folder that one stands in is on the path of `python -c`, of notebooks and of `python -m`."""
    from onetool.sources.packs.importing import installed

    info = repository.folder / "evil.egg-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[onetool.packs]\nevil = more\n")
    monkeypatch.chdir(repository.folder)
    monkeypatch.setattr("sys.path", [str(repository.folder) if entry == "here" else entry, *sys.path])
    assert "evil" not in {candidate.name for candidate in installed()}
    monkeypatch.setattr(importing, "HOME", str(repository.folder.resolve()))  # we are installed there ourselves
    assert "evil" in {candidate.name for candidate in installed()}


def test_a_module_of_the_folder_is_not_taken_for_a_library(repository):
    flag = repository.flags["pack"]
    for name in ("yaml", "click"):
        (repository.folder / f"{name}.py").write_text(f"import pathlib\npathlib.Path({str(flag)!r}).touch()\n")
    assert cli("check", cwd=repository.folder).returncode == 0
    assert repository.has_run() == []


def test_the_check_says_that_the_folder_is_not_used(repository):
    (found,) = json.loads(cli("check", "--json", cwd=repository.folder).stdout)
    assert (found["key"], found["severity"]) == ("trust", "warning")
    assert "is not trusted yet, so nothing in it is used: run onetool trust" in found["message"]


def test_the_library_does_not_use_it_either(repository, monkeypatch, caplog):
    from onetool.app import App

    monkeypatch.chdir(repository.folder)
    with App.open() as app:
        assert app.untrusted is not None
        assert app.untrusted.folder == repository.config.parent
        assert not any(spec.name.startswith(("evil", "weather", "more")) for spec in app.tools())
        assert app.config.path is None
        assert app.health()["trust"].endswith("run onetool trust")
    untouched(repository)
    repository.write()
    with App.open(config=repository.config) as app:
        assert app.untrusted is None
        assert "trust" not in app.health()
        assert "evil.hello" in app.catalog.registry.names()
