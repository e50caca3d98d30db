"""GET /check and GET /trust: what is wrong with the config and the tools, and the folder of the project."""

import json
import os
import time

import pytest
import warm
from helpers import start as start_command
from helpers import until
from interfaces.rest.served import TOKEN, Api, problem
from interfaces.rest.test_openapi import checker
from interfaces.rest.test_run import run


@pytest.fixture
def real(tmp_path, start):
    config = {"packs": ["broken.py", "fine.py"], "http": {"token": TOKEN}, "watch": False}
    (tmp_path / "onetool.yaml").write_text(json.dumps(config))
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "fine.py").write_text('def one() -> int:\n    """One."""\n    return 1\n')
    api = start(real=tmp_path, args=["--config", str(tmp_path / "onetool.yaml")])
    api.client.headers["Authorization"] = f"Bearer {TOKEN}"
    return api


def test_it_says_what_the_command_says(real, tmp_path):
    found = real.get("/check").json()
    assert found["ok"] is False
    (error,) = [one for one in found["findings"] if one["level"] == "error"]
    assert error["where"] == f"{tmp_path / 'broken.py'}:1"
    assert "SyntaxError" in error["message"]
    assert error["reason"] == "tool"
    checker(real.get("/openapi.json").json(), "CheckReport").validate(found)
    bundle = real.bundle(slug="mine")
    request = {"urlTemplate": "https://api.example.com/${API_KEY}"}
    tool = {"type": "http", "httpImpl": {"request": request}}
    assert real.ask("PUT", f"{bundle}/tools/get/version/1", tool).status_code == 201
    fixes = {one.get("fix") for one in real.get("/check").json()["findings"]}
    assert "onetool hosts allow api.example.com" in fixes


def test_a_config_that_can_not_be_used_is_told(real, tmp_path):
    (tmp_path / "broken.py").write_text("")
    run(real, "ot.reload()")
    assert not [one for one in real.get("/check").json()["findings"] if one["level"] == "error"]
    (tmp_path / "onetool.yaml").write_text('{"menu": "nothing"}')
    assert run(real, "ot.reload()")["ok"] is False
    found = real.get("/check").json()
    assert found["ok"] is False
    [wrong] = [one for one in found["findings"] if "menu" in one["message"] and "onetool.yaml" in one["where"]]
    assert wrong["reason"] == "config"
    assert run(real, "fine.one()")["value"] == 1


def test_files_that_have_changed_are_told_until_they_are_read_again(real, tmp_path):
    def changed():
        return [
            one["where"] for one in real.get("/check").json()["findings"] if "Not loaded: changed" in one["message"]
        ]

    assert changed() == []
    later = time.time() + 60
    os.utime(tmp_path / "onetool.yaml", (later, later))
    os.utime(tmp_path / "fine.py", (later, later))
    assert changed() == [str(tmp_path / "onetool.yaml"), str(tmp_path / "fine.py")]
    now = time.time() - 60
    for name in ("onetool.yaml", "fine.py"):
        os.utime(tmp_path / name, (now, now))
    run(real, "ot.reload()")
    assert changed() == []


def test_a_server_that_is_not_reached_is_told(tmp_path, start):
    servers = {"gone": {"command": "no-such-program"}, "off": {"command": "no-such-program", "enabled": False}}
    (tmp_path / "onetool.yaml").write_text(json.dumps({"servers": servers}))
    api = start(real=tmp_path, args=["--config", str(tmp_path / "onetool.yaml")])

    def tried():
        found = api.get("/check").json()["findings"]
        return [one for one in found if "no-such-program" in one["message"] and "logs" in one["fix"]]

    (found,) = until(tried)
    assert [found["level"], found["where"]] == ["warning", "servers.gone"]
    assert found["fix"] == "onetool servers logs gone"
    assert api.get("/check").json()["ok"] is True


def test_where_all_is_well(tmp_path, start):
    (tmp_path / "onetool.yaml").write_text("{}")
    api = start(real=tmp_path, args=["--config", str(tmp_path / "onetool.yaml")])
    assert api.get("/check").json()["ok"] is True
    assert api.get("/trust").json() == {
        "folder": None,
        "trusted": False,
        "says": [],
        "message": None,
        "command": None,
        "digest": None,
    }


def test_the_folder_of_a_project(tmp_path):
    project = tmp_path / "project"
    (project / ".onetool").mkdir(parents=True)
    (project / ".onetool" / "onetool.yaml").write_text("servers: {a: {command: echo, enabled: false}}\n")
    env = {"HOME": str(tmp_path), "ONETOOL_HOME": ""}
    untrusted = Api(real=project, env=env)
    try:
        found = untrusted.get("/trust").json()
        assert (found["folder"], found["trusted"]) == (str(project / ".onetool"), False)
        assert found["says"][0] == "servers.a.command: echo"
        assert any(line.startswith("  program: /") for line in found["says"])
        assert f"  folder: {project}" in found["says"]
        assert found["command"] == "onetool trust"
        assert "not trusted" in found["message"]
        checker(untrusted.get("/openapi.json").json(), "TrustState").validate(found)
    finally:
        untrusted.stop()
    assert start_command("trust", "--yes", env={**os.environ, **env}, cwd=project).wait(20) == 0
    trusted = Api(real=project, env=env)
    try:
        found = trusted.get("/trust").json()
        assert (found["folder"], found["trusted"]) == (str(project / ".onetool"), True)
        assert found["command"] == "onetool trust --revoke"
    finally:
        trusted.stop()


def test_they_are_closed_where_changes_are(tmp_path, start):
    api = start(real=tmp_path, args=["--tool-allow", "time.now"])
    for path in ("/check", "/trust"):
        problem(api.get(path), 403, "read_only")


def test_what_was_seen_of_a_folder_is_trusted(tmp_path):
    """With the token of the person's own config. What has changed since it was shown is refused."""
    project, own = tmp_path / "project" / ".onetool", tmp_path / ".onetool"
    project.mkdir(parents=True)
    own.mkdir()
    (own / "onetool.yaml").write_text(json.dumps({"http": {"token": TOKEN}}))
    (project / "onetool.yaml").write_text("servers: {a: {command: echo, enabled: false}}\n")
    often = json.dumps({"onetool.interfaces.http.admissions.CHECK_EVERY_S": 0.001})  # the new config ends this caller
    api = Api(real=project.parent, env={"HOME": str(tmp_path), "ONETOOL_HOME": "", warm.CONSTANTS: often})
    api.client.headers["Authorization"] = f"Bearer {TOKEN}"
    try:
        seen = api.get("/trust").json()
        assert seen["trusted"] is False
        (project / "onetool.yaml").write_text("servers: {a: {command: cat, enabled: false}}\n")
        body = {"folder": seen["folder"], "digest": seen["digest"]}
        problem(api.ask("POST", "/tools/trust", body), 409, "changed")
        now = api.get("/trust").json()
        assert now["says"][0] == "servers.a.command: cat"
        assert api.ask("POST", "/tools/trust", {**body, "digest": now["digest"]}).status_code == 200
        found = api.get("/trust").json()
        assert (found["trusted"], found["digest"]) == (True, now["digest"])
        assert [one["name"] for one in api.get("/servers").json()["servers"]] == ["a"]
    finally:
        api.stop()
