"""`onetool init --client …`: what each client gets, where it is written, and what never happens to a file."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from helpers import invoke, trusted

from onetool.app import own_server as server_module
from onetool.app.own_server import own_command, served_at
from onetool.config import load_config
from onetool.config.client_files import EditError, put_file
from onetool.config.known_clients import CLIENTS, OneToolEntry, _vscode_user
from onetool.interfaces.cli.clients import json_snippet, toml_snippet
from onetool.interfaces.cli.init import CLIENTS as CHOICES

ONETOOL = str(Path(sys.executable).with_name("onetool"))
FILES = {
    "claude-code": (".mcp.json", ".claude.json"),
    "claude-desktop": (None, ".config/Claude/claude_desktop_config.json"),
    "cursor": (".cursor/mcp.json", ".cursor/mcp.json"),
    "vscode": (".vscode/mcp.json", ".config/Code/User/mcp.json"),
    "codex": (".codex/config.toml", ".codex/config.toml"),
    "gemini": (".gemini/settings.json", ".gemini/settings.json"),
}
OF_PROJECTS = [name for name in FILES if FILES[name][0]]
MOVES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME")


@pytest.fixture(autouse=True)
def clients_are_where_they_usually_are(monkeypatch):
    for name in MOVES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def configured(folder, text=""):
    (folder / ".onetool").mkdir(parents=True, exist_ok=True)
    (folder / ".onetool" / "onetool.yaml").write_text(text)
    return trusted(folder) / ".onetool" / "onetool.yaml"


def parsed(client, text):
    return tomllib.loads(text) if client == "codex" else json.loads(text)


def entry_of(client, done):
    assert done.returncode == 0, done.stderr
    return parsed(client, done.stdout)[CLIENTS[client].section]["onetool"]


# What is printed


def test_the_choices_are_the_clients_that_are_known():
    assert list(CHOICES) == list(CLIENTS) == list(FILES)


@pytest.mark.parametrize(
    ("client", "section", "more"),
    [
        ("claude-code", "mcpServers", {}),
        ("cursor", "mcpServers", {"type": "stdio"}),
        ("vscode", "servers", {"type": "stdio"}),
        ("codex", "mcp_servers", {}),
        ("gemini", "mcpServers", {}),
    ],
)
def test_the_entry_alone_is_printed_and_where_it_belongs_is_said(project, client, section, more):
    done = invoke("init", "--client", client, cwd=project)
    assert done.returncode == 0
    assert parsed(client, done.stdout) == {section: {"onetool": {**more, "command": ONETOOL, "args": ["mcp"]}}}
    assert str(project / FILES[client][0]) in done.stderr
    assert list(project.iterdir()) == []


@pytest.mark.parametrize("client", CLIENTS)
def test_the_file_for_all_projects(project, own_home, client):
    done = invoke("init", "--client", client, "--user", cwd=project)
    assert f"{own_home / FILES[client][1]} (" in done.stderr
    assert list(own_home.iterdir()) == []


@pytest.mark.parametrize(
    ("client", "entry"),
    [
        ("claude-code", {"type": "http", "headers": {"Authorization": "Bearer ${MY_TOKEN}"}}),
        ("cursor", {"headers": {"Authorization": "Bearer ${env:MY_TOKEN}"}}),
        ("vscode", {"type": "http", "headers": {"Authorization": "Bearer ${env:MY_TOKEN}"}}),
        ("codex", {"bearer_token_env_var": "MY_TOKEN"}),
        ("gemini", {"type": "http", "headers": {"Authorization": "Bearer ${MY_TOKEN}"}}),
    ],
)
def test_over_http_the_token_stays_in_the_environment(project, client, entry):
    configured(project, "http: {port: 9123, token: '${MY_TOKEN}'}\n")
    done = invoke("init", "--client", client, "--http", cwd=project, env={"MY_TOKEN": "hunter2hunter2"})
    assert entry_of(client, done) == {**entry, "url": "http://127.0.0.1:9123/mcp"}
    assert "MY_TOKEN" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


def test_over_http_without_a_token(project):
    assert entry_of("cursor", invoke("init", "--client", "cursor", "--http", cwd=project)) == {
        "url": "http://127.0.0.1:8765/mcp"
    }


def test_a_token_that_stands_in_the_config_is_not_shown(project):
    configured(project, "http: {token: hunter2hunter2}\n")
    done = invoke("init", "--client", "codex", "--http", "--write", cwd=project)
    written = (project / ".codex" / "config.toml").read_text()
    assert 'bearer_token_env_var = "ONETOOL_TOKEN"' in written
    assert "hunter2" not in written + done.stdout + done.stderr


@pytest.mark.parametrize(
    ("url", "called", "token"),
    [
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000/mcp", None),
        ("http://localhost/", "http://localhost/mcp", None),
        ("http://[::1]:1/other", "http://[::1]:1/other", None),
        ("https://tools.example.com/mcp", "https://tools.example.com/mcp", "ONETOOL_TOKEN"),
    ],
)
def test_a_server_elsewhere_is_called_with_a_token(url, called, token):
    server = served_at(url, load_config(None))
    assert (server.url, server.token) == (called, token)


@pytest.mark.parametrize(
    ("host", "called"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("box", "box")]
)
def test_where_a_server_listens_and_where_it_is_called(project, host, called):
    config = load_config(configured(project, f"http: {{host: '{host}', token: xxxxxxxx}}\n"))
    assert served_at(None, config).url == f"http://{called}:8765/mcp"


@pytest.mark.parametrize("url", ["ftp://x/y", "project", "http://", "http://u:p@x/", "http://[x/", "http://x:99999/"])
def test_a_url_that_is_none_is_wrong_usage(project, url):
    done = invoke("init", "--client", "cursor", "--http", url, cwd=project)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--http" in done.stderr


def test_a_port_that_the_system_chooses_must_be_said(project):
    configured(project, "http: {port: 0}\n")
    done = invoke("init", "--client", "cursor", "--http", cwd=project)
    assert (done.returncode, "so the URL is unknown" in done.stderr) == (2, True)


@pytest.mark.parametrize("option", [["--write"], ["--user"], ["--http"], ["--name", "x"]])
def test_options_for_a_client_need_one(project, option):
    done = invoke("init", *option, cwd=project)
    assert (done.returncode, "--client" in done.stderr) == (2, True)
    assert list(project.iterdir()) == []


@pytest.mark.parametrize("name", ["", "a b", "a.b", '"', "x" * 65, "ä"])
def test_names_that_some_client_would_not_take(project, name):
    assert invoke("init", "--client", "codex", "--name", name, cwd=project).returncode == 2


def test_the_starter_config_is_still_written_and_says_what_is_next(project):
    done = invoke("init", cwd=project)
    assert (project / ".onetool" / "onetool.yaml").exists()
    assert "onetool init --client" in done.stdout


def test_the_docs_show_what_is_printed():
    page = (Path(__file__).parents[3] / "docs" / "guide" / "clients.md").read_text()
    shown = dict(zip(CLIENTS, re.findall(r"```(?:json|toml)\n(.*?)```", page, re.DOTALL), strict=True))
    for name, client in CLIENTS.items():
        dump = toml_snippet if name == "codex" else json_snippet
        assert shown[name] == dump(
            client.section, "onetool", client.entry(OneToolEntry(command="onetool", args=("mcp",)))
        )
        assert client.project_file is None or f"`{client.project_file}`" in page


# Which config the server will use


def args_of(client, *options, cwd, env=None):
    return entry_of(client, invoke("init", "--client", client, *options, cwd=cwd, env=env))["args"]


@pytest.mark.parametrize("client", [name for name in OF_PROJECTS if name != "cursor"])
def test_a_projects_own_config_is_found_by_the_server_itself(project, client):
    configured(project)
    assert args_of(client, cwd=project) == ["mcp"]


def test_cursor_starts_servers_elsewhere_and_gets_the_config_in_its_own_words(project):
    configured(project)
    below = project / "a" / "b"
    below.mkdir(parents=True)
    assert args_of("cursor", cwd=project) == ["mcp", "--config", "${workspaceFolder}/.onetool/onetool.yaml"]
    assert args_of("cursor", cwd=below) == ["mcp", "--config", "${workspaceFolder}/../../.onetool/onetool.yaml"]
    assert args_of("cursor", "a", cwd=project) == ["mcp", "--config", "${workspaceFolder}/../.onetool/onetool.yaml"]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_users_own_file_names_a_projects_config_with_its_path(project, client):
    config = configured(project)
    assert args_of(client, "--user", cwd=project) == ["mcp", "--config", str(config)]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_users_own_config_needs_no_word(project, own_home, client):
    configured(own_home)
    assert args_of(client, cwd=project) == args_of(client, "--user", cwd=project) == ["mcp"]


@pytest.mark.parametrize(
    ("client", "said"),
    [("cursor", "${workspaceFolder}/x.yaml"), ("vscode", "${workspaceFolder}/x.yaml"), ("codex", "x.yaml")],
)
def test_a_config_that_was_named_is_named(project, tmp_path, client, said):
    (project / "x.yaml").touch()
    (tmp_path / "y.yaml").touch()
    assert args_of(client, "--config", "x.yaml", cwd=project) == ["mcp", "--config", said]
    assert args_of(client, cwd=project, env={"ONETOOL_CONFIG": "x.yaml"}) == ["mcp", "--config", said]
    elsewhere = ["mcp", "--config", str(tmp_path / "y.yaml")]
    assert args_of(client, "--config", "../y.yaml", cwd=project) == elsewhere
    assert args_of(client, "--user", cwd=project, env={"ONETOOL_CONFIG": "../y.yaml"}) == elsewhere


def test_a_config_that_is_not_there_is_told(project):
    done = invoke("init", "--client", "cursor", "--config", "none.yaml", cwd=project)
    assert (done.returncode, "this config file does not exist" in done.stderr) == (2, True)


# Which command it will be


def test_the_command_starts_from_anywhere(project):
    entry = entry_of("claude-code", invoke("init", "--client", "claude-code", cwd=project))
    env = {"PATH": os.defpath, "HOME": os.environ["HOME"]}
    done = subprocess.run([entry["command"], "--version"], cwd="/", env=env, capture_output=True, text=True, timeout=30)
    assert done.stdout.startswith("onetool ")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A script in an environment of its own, which is active: first on the PATH."""
    scripts = tmp_path / "venv" / "bin"
    scripts.mkdir(parents=True)
    script = scripts / "onetool"
    script.touch(mode=0o755)
    monkeypatch.setattr(server_module.sysconfig, "get_path", lambda name: str(scripts))
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setenv("PATH", str(scripts))
    return script


def test_a_script_in_an_environment_is_named_by_its_path(installed):
    assert own_command() == (str(installed),)


def test_a_script_that_everybody_finds_is_named_by_its_name(installed, tmp_path, monkeypatch):
    everywhere = tmp_path / "bin"
    everywhere.mkdir()
    (everywhere / "onetool").symlink_to(installed)
    monkeypatch.setenv("PATH", os.pathsep.join([str(installed.parent), str(everywhere)]))
    assert own_command() == ("onetool",)
    monkeypatch.setattr(sys, "argv", ["/some/where/onetool/__main__.py"])
    assert own_command() == ("onetool",)


def test_another_script_of_that_name_is_not_ours(installed, tmp_path, monkeypatch):
    (tmp_path / "onetool").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_command() == (str(installed),)


def test_without_a_script_it_is_a_module(installed):
    installed.unlink()
    assert own_command() == (sys.executable, "-P", "-m", "onetool")


@pytest.mark.parametrize(
    ("client", "command"),
    [("vscode", "${workspaceFolder}/.venv/bin/onetool"), ("gemini", "{project}/.venv/bin/onetool")],
)
def test_an_environment_in_the_project_is_named_in_the_clients_words(project, client, command):
    (project / ".venv").symlink_to(sys.prefix)
    run = "import sys; sys.argv[0] = '.venv/bin/onetool'; from onetool.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", run, "init", "--client", client], cwd=project, capture_output=True, text=True, timeout=60
    )
    assert entry_of(client, done)["command"] == command.replace("{project}", str(project))


# Where the files are


def test_files_that_the_environment_moves(tmp_path):
    env = dict.fromkeys(MOVES, str(tmp_path))
    found = {name: client.user_file(Path("/home/ann"), env) for name, client in CLIENTS.items()}
    assert found == {
        "claude-code": tmp_path / ".claude.json",
        "claude-desktop": tmp_path / "Claude/claude_desktop_config.json",
        "cursor": Path("/home/ann/.cursor/mcp.json"),
        "vscode": tmp_path / "Code/User/mcp.json",
        "codex": tmp_path / "config.toml",
        "gemini": tmp_path / ".gemini/settings.json",
    }


@pytest.mark.parametrize(
    ("system", "env", "folder"),
    [
        ("linux", {}, "/home/ann/.config"),
        ("darwin", {}, "/home/ann/Library/Application Support"),
    ],
)
def test_the_folder_of_vscode_on_each_system(system, env, folder):
    assert _vscode_user(Path("/home/ann"), env, system) == Path(folder, "Code/User/mcp.json")


def test_claude_desktop_knows_no_projects_and_no_urls(project, own_home):
    config = configured(project)
    file = own_home / FILES["claude-desktop"][1]
    file.parent.mkdir(parents=True)
    file.write_text('{\n    "theme": "dark",\n    "mcpServers": {}\n}\n')
    done = invoke("init", "--client", "claude-desktop", "--write", cwd=project)
    assert done.returncode == 0, done.stderr
    assert str(file) in done.stdout
    written = json.loads(file.read_text())
    assert written["mcpServers"]["onetool"]["args"][-3:] == ["mcp", "--config", str(config)]
    assert os.path.isabs(written["mcpServers"]["onetool"]["command"])
    assert file.read_text().startswith('{\n    "theme": "dark",\n    "mcpServers": {\n        "onetool": {\n')
    refused = invoke("init", "--client", "claude-desktop", "--http", cwd=project)
    assert (refused.returncode, "takes no URL" in refused.stderr) == (2, True)


# Writing


@pytest.mark.parametrize("client", OF_PROJECTS)
@pytest.mark.parametrize("user", [False, True])
def test_a_new_file_holds_what_is_printed(project, own_home, client, user):
    options = ["--client", client, *(["--user"] if user else [])]
    printed = invoke("init", *options, cwd=project).stdout
    done = invoke("init", *options, "--write", cwd=project)
    file = (own_home if user else project) / FILES[client][user]
    assert (done.returncode, str(file) in done.stdout) == (0, True)
    assert file.read_text() == printed
    assert file.stat().st_mode & 0o077 == (0 if user else 0o666 & ~umask() & 0o077)
    assert [one.name for one in file.parent.iterdir() if "mcp.json." in one.name or "config.toml." in one.name] == []


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("client", OF_PROJECTS)
def test_a_second_time_changes_nothing(project, client):
    invoke("init", "--client", client, "--write", cwd=project)
    file = project / FILES[client][0]
    before = (file.read_bytes(), file.stat().st_ino)
    again = invoke("init", "--client", client, "--write", cwd=project)
    assert (again.returncode, "already" in again.stdout) == (0, True)
    assert (file.read_bytes(), file.stat().st_ino) == before


@pytest.mark.parametrize("client", [name for name in OF_PROJECTS if name != "codex"])
def test_another_entry_of_that_name_needs_force(project, client):
    invoke("init", "--client", client, "--write", "--http", cwd=project)
    file = project / FILES[client][0]
    before = file.read_bytes()
    refused = invoke("init", "--client", client, "--write", cwd=project)
    assert (refused.returncode, "--force" in refused.stderr) == (1, True)
    assert (file.read_bytes(), "Traceback" in refused.stderr) == (before, False)
    assert ONETOOL in refused.stdout  # to be put in by hand
    assert invoke("init", "--client", client, "--write", "--force", cwd=project).returncode == 0
    assert "command" in parsed(client, file.read_text())[CLIENTS[client].section]["onetool"]
    assert invoke("init", "--client", client, "--write", "--name", "two", cwd=project).returncode == 0
    assert set(parsed(client, file.read_text())[CLIENTS[client].section]) == {"onetool", "two"}


@pytest.mark.parametrize(
    ("client", "text", "told"),
    [
        ("claude-code", '{\n  "mcpServers": {x}\n}', "line 2, column 18"),
        ("claude-code", '{"mcpServers": {"a": {}}} // mine', "has comments or trailing commas, which would be lost"),
        ("cursor", '{"mcpServers": []}', "mcpServers in it is not an object"),
        ("gemini", '{"a": 1, "a": 2}', "it has the key 'a' twice"),
        ("vscode", "[]", "it does not contain an object"),
        ("codex", "a = 1\nb = \n", "line 2"),
        ("codex", "mcp_servers = {other = {command = 'x'}}\n", "can't be edited automatically"),
    ],
)
def test_a_file_that_is_not_understood_is_left_alone(project, client, text, told):
    file = project / FILES[client][0]
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    done = invoke("init", "--client", client, "--write", cwd=project)
    assert (done.returncode, file.read_text()) == (1, text)
    assert str(file) in done.stderr
    assert told in done.stderr
    assert ONETOOL in done.stdout
    assert [one.name for one in file.parent.iterdir() if one.is_file()] == [file.name]


def test_a_link_stays_a_link_and_a_mode_stays_a_mode(project):
    real = project / "clients.json"
    real.write_text("{}")
    real.chmod(0o640)
    (project / ".mcp.json").symlink_to(real)
    assert invoke("init", "--client", "claude-code", "--write", cwd=project).returncode == 0
    assert (project / ".mcp.json").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert "onetool" in real.read_text()


def test_a_link_that_leads_nowhere_or_in_a_circle(project):
    (project / ".mcp.json").symlink_to("later.json")
    assert invoke("init", "--client", "claude-code", "--write", cwd=project).returncode == 0
    assert (project / "later.json").is_file()
    (project / ".cursor").mkdir()
    (project / ".cursor" / "mcp.json").symlink_to(project / ".cursor" / "mcp.json")
    done = invoke("init", "--client", "cursor", "--write", cwd=project)
    assert (done.returncode, "Can't write" in done.stderr) == (1, True)
    assert (project / ".cursor" / "mcp.json").is_symlink()


def test_a_file_that_is_no_file(project):
    os.mkfifo(project / ".mcp.json")
    done = invoke("init", "--client", "claude-code", "--write", cwd=project)
    assert (done.returncode, "not a regular file" in done.stderr) == (1, True)


def test_a_folder_that_is_a_file(project):
    (project / ".cursor").touch()
    done = invoke("init", "--client", "cursor", "--write", cwd=project)
    assert (done.returncode, "Can't write" in done.stderr, "Traceback" in done.stderr) == (1, True, False)


def test_text_that_is_not_utf8_and_a_byte_order_mark(tmp_path):
    file = tmp_path / "x.json"
    file.write_bytes(b'{\n"a": "\xff"}')
    with pytest.raises(EditError, match="line 2"):
        put_file(file, lambda text: text + "!", private=False)
    file.write_bytes(b"\xef\xbb\xbf{}")
    assert put_file(file, lambda text: text + "!", private=False)
    assert file.read_bytes() == b"\xef\xbb\xbf{}!"
    with pytest.raises(EditError, match="not UTF-8"):
        put_file(file, lambda text: text + "\udcff", private=False)
    assert [one.name for one in tmp_path.iterdir()] == ["x.json"]


def test_a_file_that_changes_meanwhile_is_not_overwritten(tmp_path):
    file = tmp_path / "x.json"
    file.write_text("{}")

    def change(text):
        file.write_text("the client's own")
        return text + "!"

    with pytest.raises(EditError, match="try again"):
        put_file(file, change, private=False)
    assert file.read_text() == "the client's own"
    assert [one.name for one in tmp_path.iterdir()] == ["x.json"]


def test_a_plain_init_loads_nothing_of_clients(project):
    code = "import sys; from onetool.interfaces.cli.init import init; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, timeout=30)
    assert "onetool.interfaces.cli.clients" not in done.stdout.split()
