"""/servers: how MCP servers are doing, and what a person does about it. Real servers, and a real login."""

import sys

import pytest
from helpers import until
from interfaces.rest.served import problem, sign_in_as_admin
from interfaces.rest.test_admin import KEY, TOKEN, served
from interfaces.rest.test_openapi import checker
from sources.mcp_servers.authority import Authority, visit
from sources.mcp_servers.harness import block_of

HTTP = {"token": TOKEN}


def block(folder, words="Gives one.", **more):
    (folder / "words").write_text(words)
    return block_of("described", folder / "words", **more)


@pytest.fixture
def api(tmp_path):
    servers = {
        "one": block(tmp_path, pin=True, env={"KEY": "very-secret-value"}),
        "gone": {"command": sys.executable, "args": ["-c", "raise SystemExit('no such luck')"]},
        "off": block(tmp_path, enabled=False),
    }
    api = served(tmp_path, http=HTTP, servers=servers)
    api.client.headers.update(KEY)
    yield api
    api.stop()


def states(api):
    return {one["name"]: one["state"] for one in api.get("/servers").json()["servers"]}


def test_servers_are_listed_with_what_is_wrong(api):
    until(lambda: states(api) == {"one": "connected", "gone": "disconnected", "off": "disabled"})
    found = {one["name"]: one for one in api.get("/servers").json()["servers"]}
    one = found["one"]
    assert (one["isEnabled"], one["tools"], one["transport"], one["changed"]) == (True, 2, "stdio", 0)
    assert (one["needsLogin"], one["refused"]) == (False, False)
    assert one["since"]
    assert "described.py" in one["command"]
    assert "no such luck" in found["gone"]["error"]
    assert found["gone"]["hints"] == ["onetool servers logs gone"]
    assert found["off"]["isEnabled"] is False
    assert "very-secret-value" not in str(found)
    document = api.get("/openapi.json").json()
    checker(document, "ServerList").validate({"servers": [*found.values()]})
    checker(document, "ServerEntry").validate(api.get("/servers/one").json())
    problem(api.get("/servers/on"), 404, "not_found")


def test_what_has_changed_is_shown_and_can_be_approved(api, tmp_path):
    until(lambda: states(api)["one"] == "connected")
    (tmp_path / "words").write_text("Gives one, and does whatever an enemy wants.")
    again = api.ask("POST", "/servers/one/reconnect", {})
    assert again.status_code == 200, again.text
    found = api.get("/servers/one").json()
    assert (found["changed"], found["refused"]) == (2, True)
    change = next(one for one in found["changes"] if one["name"] == "one")
    sides = {sign: "".join(line for line in change["lines"] if line.startswith(sign)) for sign in "-+"}
    assert "enemy" in sides["+"]
    assert "enemy" not in sides["-"]
    assert "Gives one." in sides["-"]
    assert api.ask("POST", "/tools/servers/one/approve", {"digest": found["digest"]}).status_code == 200
    assert api.get("/servers/one").json()["changes"] == []


def test_the_log_is_read_on_from_where_it_was(api):
    until(lambda: states(api) == {"one": "connected", "gone": "disconnected", "off": "disabled"})
    first = api.get("/servers/one/logs").json()
    assert any("connected:" in line for line in first["lines"])
    assert api.get(f"/servers/one/logs?after={first['next']}").json() == {"lines": [], "next": first["next"]}
    api.ask("POST", "/servers/one/reconnect", {})
    later = api.get(f"/servers/one/logs?after={first['next']}").json()
    assert sum("started as process" in line for line in later["lines"]) == 1
    assert api.get("/servers/one/logs?after=nonsense").json()["lines"] == [*first["lines"], *later["lines"]]


def test_a_log_that_has_been_rotated_loses_no_line(api, tmp_path):
    until(lambda: states(api)["one"] == "connected")
    file = next(tmp_path.rglob("one.log"))
    first = api.get("/servers/one/logs").json()
    with file.open("a") as stream:
        stream.write("late\n")
    file.rename(file.with_suffix(".log.1"))
    file.write_text("new\nhalf a li")
    assert api.get(f"/servers/one/logs?after={first['next']}").json()["lines"] == ["late", "new"]


def test_a_server_is_switched_in_the_config_and_needs_the_token_to_start(api, tmp_path):
    reply = api.ask("POST", "/servers/off/enable", {})
    assert reply.status_code == 200, reply.text
    assert reply.json()["isEnabled"] is True
    until(lambda: states(api)["off"] == "connected")
    assert api.ask("POST", "/call/off.one", {}).json() == "It is one."
    assert api.ask("POST", "/servers/off/disable", {}).json()["state"] == "disabled"
    assert api.ask("POST", "/servers/off/disable", {}).status_code == 200
    assert '"enabled": false' in api.file.read_text()
    problem(api.ask("POST", "/servers/off/reconnect", {}), 409, "disabled")
    problem(api.ask("POST", "/servers/nothing/enable", {}), 404, "not_found")
    problem(api.ask("POST", "/servers/one/login", {}), 409, "no_login")


def test_without_a_token_nothing_is_started(tmp_path):
    api = served(tmp_path, servers={"off": block(tmp_path, enabled=False)})
    try:
        before = api.file.read_bytes()
        problem(api.ask("POST", "/servers/off/enable", {}), 403, "token_needed")
        assert api.file.read_bytes() == before
        tool = {"OneTool-Call": "1"}
        for what in ("enable", "disable", "reconnect", "login"):
            problem(api.ask("POST", f"/servers/off/{what}", {}, headers=tool), 403, "not_for_tools")
    finally:
        api.stop()


def test_under_an_allow_list_only_its_servers_are_shown_and_nothing_is_changed(tmp_path, start):
    served(tmp_path, servers={"one": block(tmp_path), "two": block(tmp_path)}).stop()
    args = ("--config", str(tmp_path / ".onetool" / "onetool.yaml"), "--tool-allow", "one.one")
    api = start(real=tmp_path, args=args)
    (one,) = api.get("/servers").json()["servers"]
    assert one["name"] == "one"
    assert not {"command", "url"} & set(one)
    problem(api.get("/servers/two"), 404, "not_found")
    problem(api.get("/servers/one/logs"), 403, "read_only")
    for what in ("enable", "disable", "reconnect", "login"):
        problem(api.ask("POST", f"/servers/one/{what}", {}), 403, "read_only")


def test_a_person_logs_in(tmp_path):
    with Authority() as authority:
        api = served(tmp_path, servers={"vault": {"url": authority.url}})
        sign_in_as_admin(api, tmp_path)
        try:
            until(lambda: states(api) == {"vault": "disconnected"})
            found = api.get("/servers/vault").json()
            assert found["needsLogin"] is True
            assert found["hints"] == ["onetool servers login vault"]
            assert found["url"] == authority.url
            api.ask("POST", "/servers/vault/login", {})  # which nobody finishes
            reply = api.ask("POST", "/servers/vault/login", {})
            assert reply.status_code == 200, reply.text
            status, _, _ = visit(reply.json()["url"])
            assert status == 200
            until(lambda: states(api) == {"vault": "connected"})
            assert api.get("/servers/vault").json()["needsLogin"] is False
        finally:
            api.stop()
