"""What the API says of tools and of the server, for pages that show them: facts of rows, and the status."""

import asyncio
import json
import sqlite3
import sys
from contextlib import closing

import pytest
from helpers import trusted
from interfaces.rest.served import TOKEN, Api, problem
from interfaces.rest.test_openapi import checker
from sources.mcp_servers.harness import SCRIPTS, Harness

from onetool._version import __version__
from onetool.sources.bundles.model import built_in_id
from onetool.sources.bundles.queries import ListQuery

FACTS = "fields=slug,version,name,bundleSlug,origin,health,isEnabled"
MESSAGE = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
FUNCTION = {"pythonImpl": {"func": "tools.echo"}, "argSchema": MESSAGE}
PACK = '''"""Adds up."""

pack = "sums"


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b
'''


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    (folder / ".onetool").mkdir()
    (folder / "sums.py").write_text(PACK)
    config = {
        "packs": [str(folder / "sums.py")],
        "servers": {"gone": {"command": sys.executable, "args": ["-c", "raise SystemExit(1)"]}},
    }
    (folder / ".onetool" / "onetool.yaml").write_text(json.dumps(config))
    trusted(folder)
    return folder


@pytest.fixture(scope="module")
def real(home):
    api = Api(real=home)
    yield api
    assert api.stop() == 0


def rows(api, bundle=None, more=""):
    ids = f"&bundleIDs={bundle.rpartition('/')[2]}" if bundle else ""
    found = api.get(f"/tools/tools?{FACTS}&includeDisabled=true&recommendedPageSize=1000{ids}{more}").json()["tools"]
    return {(one["slug"], one["version"]): one for one in found}


def test_a_row_of_a_kept_tool_says_its_name_in_code(real):
    bundle = real.bundle(slug="my-own")
    real.tool(bundle, "echo-it", "1", **FUNCTION)
    real.tool(bundle, "echo-it", "2", **FUNCTION)
    found = rows(real, bundle)
    assert found["echo-it", "2"] == {
        "slug": "echo-it", "version": "2", "name": "my_own.echo_it", "bundleSlug": "my-own", "origin": "bundle",
        "health": "ok", "isEnabled": True,
    }  # fmt: skip
    assert found["echo-it", "1"]["name"] == "my_own.echo_it@1"


def test_a_bundle_whose_name_another_has_gives_no_names(real):
    for number, name in ((1, "twin.echo"), (2, None)):
        bundle = real.bundle(slug="twin")
        real.tool(bundle, "echo", **FUNCTION)
        assert rows(real, bundle)["echo", "1"]["name"] == name, number


def test_rows_say_where_they_come_from(real):
    every = rows(real)
    assert [every[slug, "1"][key] for slug in ("now", "add") for key in ("name", "bundleSlug", "origin")] == [
        "time.now", "time", "built-in", "sums.add", "sums", "pack",
    ]  # fmt: skip


@pytest.mark.parametrize("of", ["tool", "bundle"])
def test_what_is_switched_off_is_off(real, of):
    bundle = real.bundle(slug=f"off-{of}")
    tool = real.tool(bundle, "echo", **FUNCTION)
    assert real.ask("PATCH", tool if of == "tool" else bundle, {"isEnabled": False}).status_code == 200
    assert rows(real, bundle)["echo", "1"]["health"] == "off"
    assert real.get(tool).json()["health"] == "off"


def test_a_search_has_the_same_facts(real):
    found = real.get(f"/tools/tools/search?q=now&{FACTS}").json()["tools"][0]
    assert (found["name"], found["health"], found["origin"]) == ("time.now", "ok", "built-in")


def test_one_tool_has_its_signature_too(real):
    bundle = next(one for one in real.get("/tools/bundles").json()["bundles"] if one["slug"] == "sums")
    found = real.get(f"/tools/bundles/{bundle['id']}/tools/add/version/1").json()
    assert found["signature"] == "sums.add(a: int, b: int = 2) -> int"
    assert found["name"] == "sums.add"
    now = real.get(f"/tools/bundles/{built_in_id('time')}/tools/now/version/1").json()
    assert now["signature"].startswith("time.now(")


def test_what_was_got_can_be_put_elsewhere(real):
    bundle = real.bundle(slug="got")
    found = real.get(real.tool(bundle, "echo", **FUNCTION)).json()
    reply = real.ask("PUT", f"{bundle}/tools/echo/version/9", {**found, "version": "9"})
    assert reply.status_code == 201, reply.text
    assert "signature" not in reply.json()


# Versions


def test_versions_are_listed_with_the_default_one(real):
    bundle = real.bundle(slug="many")
    for version in ("1", "2", "3"):
        tool = real.tool(bundle, "echo", version, **FUNCTION)
    assert real.ask("PATCH", tool, {"isEnabled": False}).status_code == 200
    assert real.ask("POST", f"{bundle}/tools/echo/version/1/invoke", {"args": {"message": "a"}}).json()["ok"]
    reply = real.get(f"{bundle}/tools/echo/versions")
    found = reply.json()["versions"]
    assert [(one["version"], one["isDefault"], one["isEnabled"], one["callCount"]) for one in found] == [
        ("3", False, False, 0), ("2", True, True, 0), ("1", False, True, 1),
    ]  # fmt: skip
    assert (found[2]["name"], found[1]["name"], found[0]["health"]) == ("many.echo@1", "many.echo", "off")
    checker(real.get("/openapi.json").json(), "VersionList").validate(reply.json())


def switched(api, tools, data):
    reply = api.ask("PATCH", f"{tools}/versions", data)
    assert reply.status_code == 200, reply.text
    checker(api.get("/openapi.json").json(), "VersionList").validate(reply.json())
    return {one["version"]: one["isEnabled"] for one in reply.json()["versions"]}


def test_all_versions_are_switched_in_one_request(real):
    bundle = real.bundle(slug="off-is-off")
    for version in ("1", "2", "3"):
        tool = real.tool(bundle, "echo", version, **FUNCTION)
    assert real.ask("PATCH", tool, {"isEnabled": False}).status_code == 200
    tools = f"{bundle}/tools/echo"
    assert switched(real, tools, {"isEnabled": False}) == {"3": False, "2": False, "1": False}
    assert real.ask("POST", "/call/off_is_off.echo", {"message": "a"}).status_code == 403
    before = {"3": False, "2": True, "1": True}
    assert switched(real, tools, {"versions": before}) == before
    assert switched(real, tools, {"versions": {"1": False}}) == {**before, "1": False}
    assert real.ask("POST", "/call/off_is_off.echo", {"message": "a"}).json() == "a"
    for wrong in ({}, {"isEnabled": True, "versions": {}}, {"versions": {"9": True}}, {"isEnabled": 1}, {"other": 1}):
        assert real.ask("PATCH", f"{tools}/versions", wrong).status_code == 400, wrong
    problem(real.ask("PATCH", f"{bundle}/tools/none/versions", {"isEnabled": False}), 404, "not_found")


def test_a_switch_of_one_version_says_which_one_takes_over(real):
    bundle = real.bundle(slug="heirs")
    tools = [real.tool(bundle, "echo", version, **FUNCTION) for version in ("1", "2", "3")]

    def off(number):
        return real.ask("PATCH", tools[number - 1], {"isEnabled": False}).json().get("takesOver")

    assert (off(2), off(3), off(3), off(1)) == (None, "1", None, None)
    assert real.ask("PATCH", tools[2], {"isEnabled": True}).json().get("takesOver") is None
    found = real.get(f"{bundle}/tools/echo/versions").json()["versions"]
    assert [one["version"] for one in found if one["isDefault"]] == ["3"]


def test_a_call_changes_what_a_client_has_but_not_the_tool(real):
    tool = real.tool(real.bundle(slug="counted"), "echo", **FUNCTION)
    known = real.get(tool).headers["etag"]
    assert real.ask("POST", f"{tool}/invoke", {"args": {"message": "a"}}).json()["ok"]
    shown = real.get(tool, headers={"If-None-Match": known})
    assert (shown.status_code, shown.json()["callCount"]) == (200, 1)
    used = shown.headers["etag"]
    assert real.get(tool, headers={"If-None-Match": used}).status_code == 304
    for tag in (known, used):
        assert real.ask("PATCH", tool, {"isEnabled": True}, headers={"If-Match": tag}).status_code == 200


def test_a_tool_that_is_built_in_has_one_version(real):
    found = real.get(f"/tools/bundles/{built_in_id('time')}/tools/now/versions").json()["versions"]
    assert [(one["version"], one["isDefault"], one["name"]) for one in found] == [("1", True, "time.now")]


def test_versions_of_what_is_not_there_are_not_found(real):
    problem(real.get(f"{real.bundle(slug='empty')}/tools/none/versions"), 404, "not_found")
    problem(real.get(f"/tools/bundles/{real.new_id()}/tools/none/versions"), 404, "not_found")


# Servers


def server_rows(app):
    app.connect()
    asyncio.run(app.servers.wait_connected())
    return {
        one["name"]: one["health"] for one in app.bundles.tools(ListQuery(limit=1000))[0] if one["origin"] == "server"
    }


def test_tools_of_a_server_say_how_it_does(tmp_path):
    harness = Harness(tmp_path)
    described = tmp_path / "definitions.json"

    def health(description, script="changes"):
        tool = {"name": "pay", "description": description, "inputSchema": {"type": "object", "properties": {}}}
        described.write_text(json.dumps([tool]))
        with harness.app({"shop": harness.nasty(script, env={"DEFINITIONS": str(described)})}) as app:
            return server_rows(app)

    assert health("Pays.") == {"shop.pay": "ok"}
    assert health("Pays later.") == {"shop.pay": "changed"}
    assert health("Pays.") == {"shop.pay": "ok"}


def test_tools_of_a_server_that_is_gone_are_down(tmp_path):
    harness = Harness(tmp_path)
    script = tmp_path / "server.py"
    run = f"runpy.run_path({str(SCRIPTS / 'ok.py')!r}, run_name='__main__')"
    works = f"import sys, runpy\nsys.path.insert(0, {str(SCRIPTS)!r})\n{run}"
    block = {**harness.nasty("ok"), "args": ["-S", "-X", "utf8", str(script)]}
    for text, health in ((works, "ok"), ("raise SystemExit(1)", "down")):
        script.write_text(text)
        with harness.app({"good": block}) as app:
            assert set(server_rows(app).values()) == {health}


# The status


def with_config(home, http, *args):
    home.joinpath("onetool.yaml").write_text(json.dumps({"http": http}))
    return {"real": home, "args": [*args, "--config", str(home / "onetool.yaml")]}


def test_the_status_says_what_the_server_is(real, home):
    found = real.get("/status").json()
    health = found.pop("health")
    assert health["registry"]["status"] == "ok"
    assert "gone" in health["proxy"]["servers"]
    assert found.pop("tools") > 10
    assert found == {
        "version": __version__, "url": real.url, "needsToken": False, "canChange": True, "isAdmin": False,
        "isCapped": False,
        "config": str(home / ".onetool" / "onetool.yaml"), "followsFiles": True,
        "pending": 0,
    }  # fmt: skip
    checker(real.get("/openapi.json").json(), "StatusReport").validate({**found, "tools": 1, "health": health})


def test_the_status_is_for_those_with_the_token(start, tmp_path):
    api = start(**with_config(tmp_path, {"token": TOKEN}))
    problem(api.get("/status"), 401, "unauthorized")
    found = api.get("/status", headers={"Authorization": f"Bearer {TOKEN}"}).json()
    assert (found["needsToken"], found["isAdmin"], found["canChange"]) == (True, True, True)
    assert TOKEN not in json.dumps(found)


def test_the_status_under_an_allow_list_counts_what_is_allowed(start, tmp_path):
    api = start(**with_config(tmp_path, {}, "--tool-allow", "time.now"))
    found = api.get("/status").json()
    assert (found["tools"], found["canChange"]) == (1, False)
    assert problem(api.get("/status?x=1"), 400, "unknown_parameter")
    assert api.ask("POST", "/status", {}).status_code == 405


# Usage


def test_usage_counts_calls_and_errors_of_a_version(real):
    bundle = real.bundle(slug="used")
    for version in ("1", "2"):
        tool = real.tool(bundle, "echo", version, **FUNCTION)
    said = "words that nobody keeps"
    real.ask("POST", "/call/used.echo", {"message": said})
    real.ask("POST", "/call/used.echo@2", {"message": said})
    real.ask("POST", f"{tool}/invoke", {"args": {"massage": said}})
    reply = real.get(f"{tool}/usage?days=2")
    found = reply.json()
    assert (found["enabled"], found["calls"], found["errors"]) == (True, 3, 1)
    assert [one["ok"] for one in found["recent"]] == [False, True, True]
    assert found["recent"][0]["source"] == "rest"
    assert found["recent"][0]["at"] == found["lastCalledAt"]
    assert [(one["code"], one["message"]) for one in found["lastErrors"]] == [("invalid_args", "invalid_args")]
    assert len(found["series"]) == 49
    assert (sum(one["calls"] for one in found["series"]), sum(one["errors"] for one in found["series"])) == (3, 1)
    assert found["latency"]["p50"] <= found["latency"]["p95"] <= found["latency"]["p99"]
    assert said not in reply.text
    assert real.get(f"{bundle}/tools/echo/version/1/usage").json()["calls"] == 0
    checker(real.get("/openapi.json").json(), "ToolUsage").validate(found)


def test_usage_has_days_where_there_are_many(real):
    tool = f"/tools/bundles/{built_in_id('shell')}/tools/pwd/version/1"
    found = real.get(f"{tool}/usage").json()
    assert (found["calls"], found["lastCalledAt"], found["latency"]["p50"], found["recent"]) == (0, None, None, [])
    assert len(found["series"]) == 31
    assert {one["at"][11:19] for one in found["series"]} == {"00:00:00"}
    assert {one["p50"] for one in found["series"]} == {None}
    for days in ("0", "367", "x", "1.5"):
        assert problem(real.get(f"{tool}/usage?days={days}"), 400, "bad_parameter")["pointer"] == "/days"


def test_usage_that_is_not_counted_says_so(start, tmp_path):
    tmp_path.joinpath("onetool.yaml").write_text(json.dumps({"stats": {"enabled": False}}))
    api = start(real=tmp_path, args=["--config", str(tmp_path / "onetool.yaml")])
    found = api.get(f"/tools/bundles/{built_in_id('time')}/tools/now/version/1/usage").json()
    assert (found["enabled"], found["calls"], found["series"]) == (False, 0, [])


@pytest.mark.parametrize("prefix", ["ot_", "ots_"])
def test_a_credential_in_place_of_a_name_is_not_recorded(start, tmp_path, prefix):
    api = start(real=tmp_path)
    credential = f"{prefix}{'x' * 43}"
    assert api.ask("POST", f"/call/{credential}", {}).status_code == 404
    assert api.ask("POST", "/call/ot.stats", {}).status_code == 200  # reading writes what was recorded
    [file] = tmp_path.rglob("state.db")
    with closing(sqlite3.connect(file)) as connection:
        names = [name for (name,) in connection.execute("SELECT tool FROM events")]
    assert f"{prefix}***" in names
    assert credential not in names


def test_usage_of_a_file_that_cannot_be_read_is_unavailable(start, tmp_path):
    api = start(real=tmp_path)
    [file] = tmp_path.rglob("state.db")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TABLE events")
    reply = api.get(f"/tools/bundles/{built_in_id('time')}/tools/now/version/1/usage")
    detail = problem(reply, 503, "unavailable")["detail"]
    assert ("state.db can't be used" in detail, str(tmp_path) in detail) == (True, False)
