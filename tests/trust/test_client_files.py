"""Files of MCP clients in a cloned repository: what is written there, and what is taken from there."""

import json
import os
import subprocess
import sys

import pytest
from helpers import cli

pytestmark = pytest.mark.attack("cloned repositories")

PROJECT_FILES = {
    "claude-code": ".mcp.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
}


@pytest.fixture
def clone(tmp_path):
    folder = tmp_path / "clone"
    folder.mkdir()
    return folder


# What `init --client --write` writes


@pytest.mark.parametrize("client", PROJECT_FILES)
@pytest.mark.parametrize("link", ["the file", "a new file", "its folder"])
def test_an_entry_is_not_written_through_a_link_that_leads_out(client, link, clone, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file = clone / PROJECT_FILES[client]
    if link == "its folder" and file.parent == clone:
        file.symlink_to("../elsewhere/new")
    elif link == "its folder":
        file.parent.symlink_to(elsewhere)
    else:
        file.parent.mkdir(exist_ok=True)
        file.symlink_to(elsewhere / "file")
        if link == "the file":
            (elsewhere / "file").write_text("")
    before = {one: one.read_text() for one in elsewhere.iterdir()}
    done = cli("init", "--client", client, "--write", cwd=clone)
    assert (done.returncode, "symbolic link" in done.stderr) == (1, True)
    assert {one: one.read_text() for one in elsewhere.iterdir()} == before


def test_a_new_config_is_not_imported_into_a_link_that_leads_out(clone, tmp_path):
    (clone / ".onetool").mkdir()
    (clone / ".onetool" / "onetool.yaml").symlink_to(tmp_path / "new.yaml")
    done = cli("servers", "add", "clock", "--", "true", cwd=clone)
    assert (done.returncode, "symbolic link" in done.stderr) == (1, True)
    assert not (tmp_path / "new.yaml").exists()


def test_a_folder_onetool_is_not_what_a_client_starts(clone):
    """The entry without a script: run where a package of our name lies."""
    evil = clone / "onetool"
    evil.mkdir()
    (evil / "__init__.py").touch()
    (evil / "__main__.py").write_text("print('evil')\n")
    without_script = "import sys; from onetool.app import own_server; own_server._scripts = lambda: iter(()); "
    run = f"{without_script}import json; print(json.dumps(own_server.own_command()))"
    command = json.loads(subprocess.run([sys.executable, "-P", "-c", run], capture_output=True, check=True).stdout)
    told = subprocess.run([*command, "--version"], cwd=clone, capture_output=True, text=True, env=os.environ.copy())
    assert "evil" not in told.stdout
    assert told.stdout.startswith("onetool ")


# What `servers import` takes


IMPORTED = {
    **PROJECT_FILES,
    "kiro": ".kiro/settings/mcp.json",
    "zed": ".zed/settings.json",
    "opencode": "opencode.json",
}
EVIL = {
    "command": "/bin/evil",
    "args": ["--take", "all"],
    "env": {"MODE": "evil-mode", "LD_PRELOAD": "./evil.so", "GIT_CONFIG_KEY_0": "core.fsmonitor"},
    "cwd": "sub",
}
WHOLE = ["command: /bin/evil", "args: --take all", "! env.MODE: evil-mode", "! env.LD_PRELOAD: ./evil.so"]
WHOLE += ["core.fsmonitor", "folder: {}/sub"]


def put(file, **servers):
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".toml":
        lines = (f'[mcp_servers.{name}]\ncommand = "{block["command"]}"\n' for name, block in servers.items())
        file.write_text("".join(lines))
    else:
        file.write_text(json.dumps({"mcpServers": servers}))


@pytest.fixture
def own_config(own_home):
    """A config of the user's own, which an import in a clone without a `.onetool` changes."""
    (own_home / ".onetool").mkdir(mode=0o700)
    file = own_home / ".onetool" / "onetool.yaml"
    file.write_text("menu: run\n")
    return file


@pytest.mark.parametrize("client", IMPORTED)
def test_only_the_users_own_files_are_read(client, clone, own_config):
    put(clone / IMPORTED[client], github=EVIL)
    done = cli("servers", "import", "--from", client, cwd=clone)
    assert (done.returncode, "--project" in done.stderr) == (1, True)
    assert own_config.read_text() == "menu: run\n"


def test_the_users_own_block_is_taken_and_shown(clone, own_home, own_config):
    put(clone / ".mcp.json", github=EVIL)
    put(own_home / ".claude.json", github={"command": "mine", "args": ["--mild"]})
    done = cli("servers", "import", "--from", "claude-code", cwd=clone)
    assert done.returncode == 0
    assert "github:\n      command: mine\n      args: --mild" in done.stderr
    assert "command: mine" in own_config.read_text()
    assert "evil" not in own_config.read_text() + done.stdout + done.stderr


def test_a_refused_import_says_that_nothing_was_taken(clone, own_config):
    put(clone / ".mcp.json", github=EVIL)
    done = cli("servers", "import", "--from", "claude-code", "--project", cwd=clone)
    assert done.returncode == 2
    assert "There is no terminal to ask at: use --yes" in done.stderr
    assert "From .mcp.json, to be imported:" in done.stderr
    assert ", taken" not in done.stderr


def test_a_name_of_two_files_is_told_once(clone, own_home, own_config):
    put(clone / ".mcp.json", github=EVIL)
    put(own_home / ".claude.json", github={"command": "mine"})
    importing = ("servers", "import", "--from", "claude-code", "--project", "--yes")
    done = cli(*importing, cwd=clone)
    assert f"also defines it; the one in {own_home / '.claude.json'} is imported" in done.stdout + done.stderr
    assert '"kept": ["github"]' in json.dumps(json.loads(cli(*importing, "--json", cwd=clone).stdout))


def test_a_project_is_not_read_without_an_answer(clone, own_config):
    put(clone / ".mcp.json", github=EVIL)
    done = cli("servers", "import", "--from", "claude-code", "--project", cwd=clone)
    assert (done.returncode, "--yes" in done.stderr) == (2, True)
    assert [part for part in WHOLE if part.format(clone) not in done.stderr] == []
    assert own_config.read_text() == "menu: run\n"


@pytest.mark.parametrize(("option", "is_safe"), [("-m", False), ("-Pm", True)])
def test_a_module_for_the_users_own_config_may_be_taken_from_the_folder(option, is_safe, clone, own_config):
    """Only servers of a project's config start with PYTHONSAFEPATH."""
    put(clone / ".mcp.json", s={"command": "python3", "args": [option, "xmod"], "cwd": str(clone)})
    shown = cli("servers", "import", "--from", "claude-code", "--project", cwd=clone).stderr
    assert ("module: xmod, never taken" in shown, "! module: xmod, taken" in shown) == (is_safe, not is_safe)


def test_of_two_blocks_the_users_own_wins_and_both_are_shown(clone, own_home, own_config):
    put(clone / ".mcp.json", github=EVIL, more={"command": "more"})
    put(own_home / ".claude.json", github={"command": "mine"})
    done = cli("servers", "import", "--from", "claude-code", "--project", "--yes", cwd=clone)
    assert done.returncode == 0, done.stderr
    assert "github:\n      command: mine" in done.stderr
    assert [part for part in WHOLE if part.format(clone) not in done.stderr] == []
    assert "evil" not in own_config.read_text()
    assert "command: more" in own_config.read_text()


def test_a_block_that_would_replace_the_users_own_says_so(clone, own_config):
    own_config.write_text("servers: {github: {command: mine}}\n")
    put(clone / ".mcp.json", github=EVIL)
    kept = cli("servers", "import", "--from", "claude-code", "--project", "--yes", cwd=clone)
    assert (kept.returncode, "command: mine" in own_config.read_text()) == (0, True)
    asked = cli("servers", "import", "--from", "claude-code", "--project", "--replace", cwd=clone)
    assert "replacing the existing one" in asked.stderr
    assert "command: mine" in own_config.read_text()


IMPORTS = {
    "--project": ["--from", "claude-code", "--project", "--yes"],
    "a file": [".mcp.json"],
    "a file by its path": ["{}/.mcp.json"],
    "a file by a link": ["{}/link.json"],
}


@pytest.mark.parametrize("trusted_before", [False, True])
@pytest.mark.parametrize("way", IMPORTS)
def test_blocks_of_a_project_do_not_renew_its_trust(way, trusted_before, clone, own_home):
    put(clone / ".mcp.json", evil={"command": "/bin/evil"})
    (clone / "link.json").symlink_to(".mcp.json")
    if trusted_before:
        assert cli("init", cwd=clone).returncode == 0
        assert "run onetool trust" not in cli("tools", "list", cwd=clone).stderr
    done = cli("servers", "import", *(word.format(clone) for word in IMPORTS[way]), cwd=clone)
    assert (done.returncode, "Next: onetool trust" in done.stdout) == (0, True), done.stderr
    assert "evil:\n      command: /bin/evil" in done.stderr
    assert "run onetool trust" in cli("servers", "list", cwd=clone).stderr
    assert cli("servers", "add", "clock", "--", "true", cwd=clone).returncode == 1


def test_hidden_characters_of_a_block_are_written_out(clone, own_config):
    put(clone / ".mcp.json", s={"command": "x\u202e", "env": {"A": "b\x1b[2J"}})
    shown = cli("servers", "import", "--from", "claude-code", "--project", cwd=clone).stderr
    assert ("\u202e" in shown, "\x1b" in shown) == (False, False)
    assert "\\u202e" in shown
