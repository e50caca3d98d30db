"""Servers in the config, changed over REST: found at other clients, added, edited, renamed, removed, and back again."""

import json
import os
import sys

import pytest
from helpers import trusted, until
from interfaces.rest.served import Api, problem
from interfaces.rest.test_admin import KEY, TOKEN, served
from interfaces.rest.test_openapi import checker
from sources.mcp_servers.harness import block_of

SECRET = "ghp_0123456789abcdefABCDEF"
MOVES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME", "APPDATA")


@pytest.fixture
def api(tmp_path, monkeypatch):
    for name in MOVES:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".onetool").mkdir()
    (tmp_path / ".onetool" / "secrets.yaml").touch(0o600)
    servers = {"old": {"url": "http://127.0.0.1:9/x"}}
    api = served(tmp_path, http={"token": TOKEN}, secrets="secrets.yaml", servers=servers)
    api.client.headers.update(KEY)
    yield api
    api.stop()


def put(file, servers, section="mcpServers", **more):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**more, section: servers}))


def found(api):
    reply = api.get("/servers/found")
    assert reply.status_code == 200, reply.text
    checker(api.get("/openapi.json").json(), "FoundClients").validate(reply.json())
    return {
        (client["client"], server["name"]): server
        for client in reply.json()["clients"]
        for server in client.get("servers", ())
    }


def servers_of(api):
    return {one["name"]: one for one in api.get("/servers").json()["servers"]}


# Other clients


def test_servers_of_other_clients_are_found_shown_and_imported(api, tmp_path):
    script = block_of("described", tmp_path / "words")
    (tmp_path / "words").write_text("Gives one.")
    put(tmp_path / ".cursor" / "mcp.json", {"one": {**script, "env": {"GITHUB_TOKEN": SECRET, "LEVEL": "a b"}}})
    put(tmp_path / ".config" / "Code" / "User" / "mcp.json", {"docs": {"url": "http://127.0.0.1:9/mcp"}}, "servers")
    put(tmp_path / ".claude.json", {"old": {"command": "x"}, "self": {"command": "onetool", "args": ["mcp"]}})
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text("not TOML")
    clients = {one["client"]: one for one in api.get("/servers/found").json()["clients"]}
    assert set(clients) == {"cursor", "vscode", "claude-code", "codex"}
    assert clients["cursor"]["title"] == "Cursor"
    assert clients["cursor"]["file"] == str(tmp_path / ".cursor" / "mcp.json")
    assert "TOML" in clients["codex"]["error"]

    shown = found(api)
    assert SECRET not in json.dumps(api.get("/servers/found").json())
    one = shown["cursor", "one"]
    assert one["command"].endswith(f"described.py {tmp_path / 'words'}")
    assert {"env GITHUB_TOKEN=${GITHUB_TOKEN}", "env LEVEL=a b"} <= set(one["details"])
    assert (one["exists"], one["canImport"], one["secrets"]) == (False, True, ["GITHUB_TOKEN"])
    assert shown["vscode", "docs"]["url"] == "http://127.0.0.1:9/mcp"
    assert (shown["claude-code", "old"]["exists"], shown["claude-code", "old"]["canImport"]) == (True, False)
    assert "OneTool itself" in shown["claude-code", "self"]["why"]

    ids = [shown["cursor", "one"]["id"], shown["claude-code", "old"]["id"]]
    report = api.ask("POST", "/servers/import", {"ids": ids})
    assert report.status_code == 200, report.text
    assert [(row["name"], row["what"]) for row in report.json()["servers"]] == [("one", "new"), ("old", "kept")]
    assert report.json()["secretsKept"] == ["GITHUB_TOKEN"]
    assert SECRET not in api.file.read_text()
    assert SECRET in (api.file.parent / "secrets.yaml").read_text()
    until(lambda: servers_of(api)["one"]["state"] == "connected")
    assert found(api)["cursor", "one"]["canImport"] is False


def test_only_what_was_shown_is_imported(api, tmp_path):
    file = tmp_path / ".cursor" / "mcp.json"
    put(file, {"one": {"command": "harmless"}})
    ids = [found(api)["cursor", "one"]["id"]]
    put(file, {"one": {"command": "harmful"}})
    before = api.file.read_bytes()
    problem(api.ask("POST", "/servers/import", {"ids": ids}), 409, "changed")
    problem(api.ask("POST", "/servers/import", {"ids": []}), 400, "invalid")
    assert api.file.read_bytes() == before


def test_what_can_not_be_seen_is_shown(api, tmp_path):
    block = {"command": "x", "args": ["a\u200bb", "c\nd", "e f", "\x1b[2J"]}
    put(tmp_path / ".cursor" / "mcp.json", {"o\u202ene": block})
    (server,) = found(api).values()
    assert (server["name"], server["canImport"]) == ("o\\u202ene", False)
    put(tmp_path / ".cursor" / "mcp.json", {"one": block})
    (server,) = found(api).values()
    assert server["command"] == "x 'a\\u200bb' 'c\\nd' 'e f' '\\x1b[2J'"


def test_files_of_a_project_are_not_read(tmp_path, monkeypatch):
    for name in MOVES:
        monkeypatch.delenv(name, raising=False)
    home, project = tmp_path / "home", tmp_path / "project"
    (home / ".onetool").mkdir(parents=True)
    (home / ".onetool" / "onetool.yaml").write_text(json.dumps({"http": {"token": TOKEN}}))
    put(project / ".cursor" / "mcp.json", {"theirs": {"command": "x"}})
    put(project / ".mcp.json", {"theirs": {"command": "x"}})
    projects = {str(project): {"mcpServers": {"theirs": {"command": "x"}}}}
    put(home / ".claude.json", {"mine": {"command": "y"}}, projects=projects)
    api = Api(real=project, env={"HOME": str(home), "ONETOOL_HOME": str(home)})
    try:
        api.client.headers.update(KEY)
        assert [name for _, name in found(api)] == ["mine"]
    finally:
        api.stop()


def test_nothing_is_written_to_a_project_that_is_not_trusted_any_more(tmp_path, monkeypatch):
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    config = project / ".onetool" / "onetool.yaml"
    config.parent.mkdir(parents=True)
    off = {"command": sys.executable, "args": ["-c", "pass"], "enabled": False}
    config.write_text(json.dumps({"http": {"token": TOKEN}, "watch": False, "servers": {"off": off}}))
    env = {"HOME": str(home), "ONETOOL_HOME": str(home)}
    monkeypatch.setenv("HOME", str(home))
    trusted(project)
    put(home / ".cursor" / "mcp.json", {"new": {"command": "x"}})
    api = Api(real=project, env=env)
    try:
        api.client.headers.update(KEY)
        ids = [one["id"] for one in found(api).values()]
        data = json.loads(config.read_text())
        data["servers"]["more"] = {"command": "harmful"}
        config.write_text(json.dumps(data))
        before = config.read_bytes()
        for method, path, body in (
            ("POST", "/servers/off/enable", {}),
            ("POST", "/servers/import", {"ids": ids}),
            ("POST", "/tools/imports/servers", {"mcpServers": {"new": {"command": "x"}}}),
        ):
            assert "trust" in problem(api.ask(method, path, body), 409, "config_unchanged")["detail"]
        assert config.read_bytes() == before
        assert not os.path.exists(home / ".onetool" / "onetool.yaml")
    finally:
        api.stop()
