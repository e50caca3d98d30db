"""The files of clients: read with comments, and changed by the client's own command or as plain JSON and TOML."""

import json
import os
import shutil
import subprocess
import tomllib

import pytest
from helpers import each, invoke
from hypothesis import given
from hypothesis import strategies as st

from onetool.config.client_files import EditError, JsoncError, read_json
from onetool.config.known_clients import CLIENTS, json_snippet
from onetool.interfaces.cli.clients import _put_json, _put_toml

ENTRY = {"command": "onetool", "args": ["mcp"]}


def put(text):
    return _put_json(text, "mcpServers", "onetool", ENTRY)


def toml(text):
    return _put_toml(text, "mcp_servers", "onetool", ENTRY)


# Reading


@each(
    ("text", "data"),
    [
        ('// a\n{"a": [1, /* b */ 2,], "c//": "/* d */", }', {"a": [1, 2], "c//": "/* d */"}),
        ('{"a": "\\",}", "b": {},}', {"a": '",}', "b": {}}),
        ("/* a */ [] // b", []),
    ],
)
def test_comments_and_trailing_commas_are_skipped(text, data):
    assert read_json(text) == data


@each(
    ("text", "told"),
    [
        ("{", "line 1, column 2"),
        ('{"a": 1\n"b": 2}', "line 2, column 1"),
        ('// b\n{"a": nul}', "line 2, column 7"),
        ('{"a": NaN}', "NaN"),
        ('{"a": 1e999}', "1e999"),
        ('{"a": 1, "a": 2}', "it has the key 'a' twice"),
        ('{"a": ' + "[" * 100_000, "nested too deeply"),
        ('{"a": ' + "1" * 5000 + "}", ""),
    ],
)
def test_what_is_no_json_is_told(text, told):
    with pytest.raises(JsoncError) as caught:
        read_json(text)
    assert told in str(caught.value)


@given(st.text(alphabet='{}[]",:/*\\ \n\rabc1.-', max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        data = read_json(text)
    except JsoncError:
        return
    assert json.loads(json.dumps(data)) == data


# Changing


@each("unit", ["  ", "    ", "\t"])
@each("newline", ["\n", "\r\n"])
def test_json_keeps_its_content_and_indentation(unit, newline):
    before = f'{{\n{unit}"ä": [1, "ä"],\n{unit}"b": {{}},\n{unit}"mcpServers": {{}}\n}}'.replace("\n", newline)
    after = put(before)
    assert json.loads(after) == {"ä": [1, "ä"], "b": {}, "mcpServers": {"onetool": ENTRY}}
    assert after.startswith(before[: before.rindex("{}")])
    assert f'{newline}{unit * 2}"onetool": {{{newline}{unit * 3}"command": "onetool",{newline}' in after
    assert put("") == json_snippet("mcpServers", "onetool", ENTRY)


def test_comments_are_not_lost():
    with pytest.raises(EditError, match="comments"):
        put('{"mcpServers": {}} // mine')


def test_a_table_is_appended():
    assert toml("# mine\na = 1") == '# mine\na = 1\n\n[mcp_servers.onetool]\ncommand = "onetool"\nargs = ["mcp"]\n'
    assert tomllib.loads(toml("[mcp_servers.b]\ncommand = 'x'\n"))["mcp_servers"] == {
        "b": {"command": "x"},
        "onetool": ENTRY,
    }


@each("text", ["mcp_servers = {b = {command = 'x'}}\n", "[mcp_servers.onetool]\ncommand = 'x'\n"])
def test_toml_that_is_left_alone(text):
    with pytest.raises(EditError):
        toml(text)


# Clients' own commands


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Commands of clients that write down how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("claude", "codex", "code"):
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/called\nexit ${{STUB_EXIT:-0}}\n')
        (folder / name).chmod(0o755)
    env = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}

    def called(*args, **more):
        done = invoke("init", "--user", "--write", *args, cwd=tmp_path, env={**env, **more})
        file = tmp_path / "called"
        return done, file.read_text().splitlines() if file.exists() else []

    return called


@pytest.mark.parametrize(
    ("client", "start", "http"),
    [
        (
            "claude-code",
            "claude mcp add --scope user onetool -- ",
            "claude mcp add --scope user --transport http onetool http://127.0.0.1:8765/mcp",
        ),
        ("codex", "codex mcp add onetool -- ", "codex mcp add onetool --url http://127.0.0.1:8765/mcp"),
        ("vscode", 'code --add-mcp {"name": "onetool", "type": "stdio", ', 'code --add-mcp {"name": "onetool", '),
    ],
)
def test_the_clients_own_command_adds_the_entry_for_all_projects(client, start, http, stub):
    done, calls = stub("--client", client)
    assert done.returncode == 0, done.stderr
    assert calls[0].startswith(start)
    assert stub("--client", client, "--http")[1][1].startswith(http)


@pytest.mark.parametrize(("client", "calls"), [("claude-code", ["remove", "add"]), ("codex", ["add"]), ("vscode", [])])
def test_force_replaces_another_entry(client, calls, stub, own_home):
    file = CLIENTS[client].user_file(own_home, {})
    file.parent.mkdir(parents=True, exist_ok=True)
    there = {CLIENTS[client].section: {"onetool": {"command": "other"}}}
    toml = '[mcp_servers.onetool]\ncommand = "other"\n'
    file.write_text(toml if file.suffix == ".toml" else json.dumps(there))
    done, _ = stub("--client", client)
    assert (done.returncode, "--force" in done.stderr) == (1, True)
    _, called = stub("--client", client, "--force")
    assert [line.split()[2] for line in called if " mcp " in line] == calls
    assert len(called) == max(len(calls), 1)


def test_a_command_that_fails_leaves_the_entry_to_paste(stub):
    done, _ = stub("--client", "claude-code", STUB_EXIT="3")
    assert done.returncode == 1
    assert "claude mcp add failed" in done.stderr
    assert '"onetool": {' in done.stdout


def test_cursor_has_a_link(tmp_path):
    done = invoke("init", "--client", "cursor", cwd=tmp_path)
    assert "cursor://anysphere.cursor-deeplink/mcp/install?name=onetool&config=" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini"])
def test_the_real_client_has_the_entry_afterwards(client, own_home, tmp_path):
    command = client.removesuffix("-code")
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed (npm)")
    done = invoke("init", "--client", client, "--user", "--write", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    env = {**os.environ, "HOME": str(own_home)}
    listed = subprocess.run(
        [command, "mcp", "list"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert "onetool" in listed.stdout + listed.stderr
    again = invoke("init", "--client", client, "--user", "--write", cwd=tmp_path)
    assert (again.returncode, "already" in again.stdout) == (0, True)
    assert "--force" in invoke("init", "--client", client, "--user", "--write", "--http", cwd=tmp_path).stderr
    forced = invoke("init", "--client", client, "--user", "--write", "--http", "--force", cwd=tmp_path)
    assert forced.returncode == 0, forced.stderr
