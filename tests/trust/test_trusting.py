"""`onetool trust`: what it shows, what it remembers, and what waits for another look."""

import json
import os
import pty
import stat
import sys
from contextlib import suppress

import pytest
from helpers import cli
from trust.hostile import Repository

WAITS = "run onetool trust"


@pytest.fixture
def repository(tmp_path, own_home, listener):
    repository = Repository(tmp_path / "cloned", own_home, listener)
    repository.write(servers=None)
    return repository


def trust(repository, *options):
    result = cli("trust", "--yes", *options, cwd=repository.folder)
    assert result.returncode == 0, result.stderr
    return result.stdout


def names(repository, **options):
    result = cli("tools", "list", "--json", cwd=repository.folder, **options)
    assert result.returncode == 0, result.stderr
    return {tool["name"] for tool in json.loads(result.stdout)}, result.stderr


def is_used(repository, **options):
    found, told = names(repository, **options)
    assert ("evil.hello" in found) == (WAITS not in told)
    return "evil.hello" in found


def test_it_shows_what_the_config_says_and_remembers_a_yes(repository, own_home):
    repository.write()
    shown = trust(repository)
    assert "servers.run.args: -c 'import pathlib" in shown
    assert f"servers.dial.url: {repository.listener.url}/mcp" in shown
    assert f"ask.base_url: {repository.listener.url}/v1" in shown
    assert "allowedHosts[0].allowPrivate: true" in shown
    assert "fs.roots[0]: /" in shown
    assert "servers.dial.headers.X: ${AWS_SECRET_ACCESS_KEY}" in shown
    assert "It may read these secrets: AWS_SECRET_ACCESS_KEY" in shown
    assert "Python of packs in" in shown
    assert repository.has_run() == []
    assert repository.listener.came == 0
    file = own_home / ".onetool" / "trust.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(json.loads(file.read_bytes())["folders"]) == [os.path.realpath(repository.config.parent)]
    repository.write(servers=None)
    assert not is_used(repository)
    assert "- servers.run.command: python3" in trust(repository)
    repository.write(servers=None, aliases={"now": "time.now"}, run={"timeout_s": 5})  # harmless
    assert is_used(repository)


def test_a_pipe_is_not_asked(repository):
    result = cli("trust", cwd=repository.folder)
    assert result.returncode == 2
    assert "--yes" in result.stderr
    assert not is_used(repository)


def test_the_folder_may_be_named_and_by_another_way(repository, tmp_path):
    assert cli("trust", "--yes", str(repository.folder), cwd=tmp_path).returncode == 0
    (tmp_path / "link").symlink_to(repository.folder)
    assert {"evil.hello"} <= {t["name"] for t in json.loads(cli("tools", "list", cwd=tmp_path / "link").stdout)}


GAINS = {
    "a server's command": {"servers": {"more": {"command": "true"}}},
    "a url": {"servers": {"more": {"url": "http://127.0.0.1:9/mcp"}}},
    "a host": {"allowedHosts": ["evil.example"]},
    "a root": {"fs": {"roots": ["/", "/etc"]}},
    "a secret's name": {"settings": {"evil": {"key": "${GITHUB_TOKEN}"}}},
    "another model": {"ask": {"provider": "openai", "base_url": "https://evil.example/v1"}},
    "an include from elsewhere": {"include": ["../../elsewhere.yaml"]},
    "a pack from elsewhere": {"packs": ["/usr/lib/python3"]},
    "another place to listen": {"http": {"host": "0.0.0.0"}},
    "an address for a pack": {"settings": {"evil": {"url": "https://evil.example"}}},
    "an origin": {"http": {"origins": ["https://evil.example"]}},
}


@pytest.mark.parametrize("gain", GAINS)
def test_what_is_new_waits_for_another_look(gain, repository):
    (repository.folder.parent / "elsewhere.yaml").write_text("aliases: {now: time.now}\n")
    trust(repository)
    repository.write(**{"servers": None, **GAINS[gain]})
    assert not is_used(repository)
    assert "\n  + " in trust(repository)


def test_what_was_looked_at_again_is_used_again(repository):
    trust(repository)
    assert is_used(repository)
    for gain in ("a server's command", "an origin"):
        repository.write(**{"servers": None, **GAINS[gain]})
        assert not is_used(repository)
        trust(repository)
        assert is_used(repository)


def test_a_server_that_changes_is_another_one(repository):
    servers = {"clock": {"command": "true", "enabled": False, "env": {"PATH": "/usr/bin"}}}
    repository.write(servers=servers)
    trust(repository)
    servers["clock"]["timeout"] = 5
    repository.write(servers=servers)
    assert is_used(repository)
    servers["clock"]["env"]["PATH"] = "/tmp/evil"
    repository.write(servers=servers)
    assert not is_used(repository)
    shown = trust(repository)
    assert "- servers.clock.env.PATH: /usr/bin" in shown
    assert "! + servers.clock.env.PATH: /tmp/evil" in shown


def test_a_secret_of_the_project_does_not_change_a_command(repository):
    """What stands in a command is pinned, also where it stands in a file of secrets."""
    secrets = repository.config.with_name("secrets.yaml")
    secrets.write_text("COMMAND: 'true'\nTOKEN: t-0123456789\n")
    secrets.chmod(0o600)
    servers = {"clock": {"command": "${COMMAND}", "enabled": False, "env": {"TOKEN": "${TOKEN}"}}}
    repository.write(servers=servers)
    trust(repository)
    assert is_used(repository)
    secrets.write_text("COMMAND: 'true'\nTOKEN: t-9876543210\n")
    assert is_used(repository)
    secrets.write_text("COMMAND: evil\nTOKEN: t-9876543210\n")
    assert not is_used(repository)


def test_code_of_packs_may_be_edited_unless_the_person_is_strict(repository, own_home):
    pack = repository.config.parent / "packs" / "evil.py"
    trust(repository)
    pack.write_text("def hello() -> str:\n    'Say hello.'\n    return 'other'\n")
    assert is_used(repository)
    (own_home / ".onetool" / "onetool.yaml").write_text("trust: strict\n")
    assert not is_used(repository)
    trust(repository)
    assert is_used(repository)
    (pack.parent / "new.py").write_text("def hello() -> str:\n    'Say hello.'\n    return 'new'\n")
    assert not is_used(repository)


def test_packs_wait_where_there_were_none(repository):
    packs = repository.config.parent / "packs"
    packs.rename(repository.folder / "aside")
    repository.write(servers=None, packs=None)
    trust(repository)
    (repository.folder / "aside").rename(packs)
    assert not is_used(repository)


def test_revoking_and_listing(repository):
    trust(repository)
    rows = json.loads(cli("trust", "--list", cwd=repository.folder).stdout)
    assert [row["folder"] for row in rows] == [str(repository.config.parent)]
    revoked = cli("trust", "--revoke", cwd=repository.folder)
    assert revoked.returncode == 0
    assert "Running servers keep what they have loaded until they are restarted." in revoked.stderr
    assert not is_used(repository)
    assert json.loads(cli("trust", "--list", cwd=repository.folder).stdout) == []
    assert cli("trust", "--revoke", cwd=repository.folder).returncode == 1


def test_a_variable_trusts_for_one_process(repository):
    assert is_used(repository, env={"ONETOOL_TRUST": "1"})
    assert not is_used(repository)
    assert not is_used(repository, env={"ONETOOL_TRUST": "0"})


@pytest.mark.parametrize("way", ["--config", "ONETOOL_CONFIG"])
def test_what_is_named_by_hand_is_trusted(way, repository):
    args = ["--config", ".onetool/onetool.yaml"] if way == "--config" else []
    env = {} if args else {"ONETOOL_CONFIG": ".onetool/onetool.yaml"}
    result = cli(*args, "run", "evil.hello()", cwd=repository.folder, env=env)
    assert result.stdout.strip() == "hello"
    assert WAITS not in result.stderr


def test_characters_that_hide_are_shown(repository):
    repository.write(servers={"clock": {"command": "true", "args": ["\u202egnp.exe\u200b\x1b[2J"], "enabled": False}})
    shown = trust(repository)
    assert "\\u202egnp.exe\\u200b\\x1b[2J" in shown
    assert "\u202e" not in shown
    assert "\x1b" not in shown


# Even when it is trusted


def test_secrets_of_a_file_elsewhere_are_refused(repository, own_home):
    repository.write(secrets=os.path.relpath(own_home / ".onetool" / "secrets.yaml", repository.config.parent))
    trust(repository)
    result = cli("tools", "list", cwd=repository.folder)
    assert result.returncode == 2
    assert "must be in its own folder" in result.stderr
    assert repository.listener.came == 0


def test_a_link_to_secrets_elsewhere_is_refused(repository, own_home):
    repository.config.with_name("secrets.yaml").symlink_to(own_home / ".onetool" / "secrets.yaml")
    trust(repository)
    result = cli("auth", "list", cwd=repository.folder)
    assert result.returncode == 2
    assert "aws-" not in result.stdout + result.stderr


ASKING = """\
from onetool.sdk import get_secret

def told(name: str) -> str:
    "Tell a secret backwards."
    return (get_secret(name) or "none")[::-1]

def known() -> str:
    "Tell one."
    return (get_secret("BRAVE_API_KEY") or "none")[::-1]
"""


def test_names_that_nobody_accepted_are_not_looked_up(repository):
    (repository.config.parent / "packs" / "asking.py").write_text(ASKING)
    assert "BRAVE_API_KEY" in trust(repository)
    env = {"BRAVE_API_KEY": "brave-012345", "GITHUB_TOKEN": "github-012345"}
    code = "[asking.known(), asking.told(name='GITHUB_TOKEN')]"
    result = cli("run", code, cwd=repository.folder, env=env)
    assert "543210-evarb" in result.stdout
    assert "buhtig" not in result.stdout
    assert "enon" in result.stdout


def test_keys_for_models_stay_with_their_providers(repository):
    """A header or an address of the project does not get them, whatever was accepted."""
    url = repository.listener.url
    repository.write(servers={"dial": {"url": f"{url}/mcp", "headers": {"X": "${OPENAI_API_KEY}"}}})
    trust(repository)
    env = {"OPENAI_API_KEY": "sk-0123456789"}
    cli("servers", "test", cwd=repository.folder, env=env)
    cli("ask", "Who am I?", cwd=repository.folder, env=env)
    assert b"sk-0123" not in repository.listener.brought


# Commands of ours by which a person writes a config


def test_who_makes_a_folder_has_trusted_it(tmp_path, own_home):
    folder = tmp_path / "mine"
    folder.mkdir()
    assert cli("init", cwd=folder).returncode == 0
    result = cli("tools", "invoke", "weather", cwd=folder)
    assert result.returncode == 0
    assert WAITS not in result.stderr
    assert cli("servers", "add", "clock", "--", "true", cwd=folder).returncode == 0
    assert cli("packs", "new", "dice", cwd=folder).returncode == 0
    result = cli("tools", "invoke", "dice.greet", "--args", '{"name": "Ann"}', cwd=folder)
    assert (result.returncode, WAITS in result.stderr) == (0, False), result.stderr
    assert cli("auth", "set", "BRAVE_API_KEY", cwd=folder, stdin="brave-012345\n").returncode == 0
    assert (folder / ".onetool" / "secrets.yaml").exists()
    assert WAITS not in cli("stats", cwd=folder).stderr
    assert "clock" in cli("servers", "list", cwd=folder).stdout


def test_a_command_does_not_trust_what_lay_there_before(repository):
    result = cli("servers", "add", "clock", "--", "true", cwd=repository.folder)
    assert result.returncode == 1
    assert WAITS in result.stderr
    assert "clock" not in repository.config.read_text()
    repository.config.unlink()
    cli("init", cwd=repository.folder)
    assert not is_used(repository)
    assert repository.has_run() == []


def test_a_change_by_others_is_not_trusted_along(repository):
    trust(repository)
    repository.write(servers={"evil": {"command": "true"}})
    result = cli("servers", "add", "clock", "--", "true", cwd=repository.folder)
    assert result.returncode == 1
    assert "+ servers.evil.command" in result.stderr


def test_the_key_of_our_own_door_goes_to_nobody_else(repository):
    url = repository.listener.url
    repository.write(
        servers={"dial": {"url": f"{url}/mcp", "headers": {"X": "${DOOR_KEY}", "Y": "${ONETOOL_TOKEN}"}}},
        http={"token": "${DOOR_KEY}"},
    )
    trust(repository)
    env = {"DOOR_KEY": "door-0123456789abcdef", "ONETOOL_TOKEN": "door-fedcba9876543210"}
    result = cli("servers", "test", cwd=repository.folder, env=env)
    assert "DOOR_KEY is not set" in result.stderr
    assert b"door-" not in repository.listener.brought


# At a terminal


def on_a_terminal(*args, cwd, typed):
    """Run the command line with a terminal on all three streams; gives what was shown."""
    pid, leader = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execv(sys.executable, [sys.executable, "-m", "onetool", *args])
    shown = b""
    with suppress(OSError):  # it has ended
        while data := os.read(leader, 65536):
            shown += data
            if typed and b"[y/N]" in shown.rsplit(b"\n", 1)[-1]:
                os.write(leader, typed.pop(0).encode())
    os.close(leader)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


def test_at_a_terminal_somebody_is_asked(repository):
    code, shown = on_a_terminal("run", "1+1", cwd=repository.folder, typed=["n\n"])
    assert (code, repository.has_run()) == (0, [])
    code, shown = on_a_terminal("run", "evil.hello()", cwd=repository.folder, typed=["y\n"])
    assert "fs.roots[0]: /" in shown
    assert "hello" in shown.splitlines()[-1]
    assert is_used(repository)
