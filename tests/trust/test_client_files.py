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
    without_script = "import sys; from onetool.interfaces.cli.clients import known; known._scripts = lambda: iter(()); "
    run = f"{without_script}import json; print(json.dumps(known.own_command()))"
    command = json.loads(subprocess.run([sys.executable, "-P", "-c", run], capture_output=True, check=True).stdout)
    told = subprocess.run([*command, "--version"], cwd=clone, capture_output=True, text=True, env=os.environ.copy())
    assert "evil" not in told.stdout
    assert told.stdout.startswith("onetool ")
