"""Packs, declared tools and MCP servers over REST: read-only bundles beside the built-in ones."""

import json
import re
import sys
from pathlib import Path
from time import time

import pytest
from helpers import cli, each, until
from interfaces.rest.served import Api, problem, sign_in_as_admin
from sources.mcp_servers.harness import block_of

from onetool.sources.bundles.derived import slug_of
from onetool.sources.bundles.names import check_id, check_slug, new_id

PACK = '''
def add_two(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b

def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)
'''
CLOCK = {"command": str(Path(sys.executable).with_name("mcp-server-time"))}
LIGHT_CLOCK = block_of("light_clock")
GONE = {"command": "/nonexistent/server"}

ALIKE = ("sky.a-b", "sky.a_b", "sky.a_b-c", "sky.a-b-c")


def declared(name):
    return {
        "name": name,
        "description": f"What {name} is for",
        "type": "function",
        "handler": "x",
        "parameters": {"type": "object", "properties": {}},
        "implementation": {"type": "mock", "mock_response": {"of": name}},
    }


def write_config(folder, name="onetool.yaml", **config):
    (folder / "functions").mkdir(exist_ok=True)
    (folder / "functions" / "my_sums.py").write_text(PACK)
    (folder / name).write_text(json.dumps(config))
    return folder / name


def begin(folder, *args, config="onetool.yaml"):
    return Api(real=folder, args=["--config", str(folder / config), *args])


def make_home(folder, clock=LIGHT_CLOCK):
    """Write a config with packs, tools and a server, and ask the server once for its tools."""
    tools = [declared(name) for name in ("weather", "sky.blue", *ALIKE)]
    write_config(folder, packs=["functions"], tools=tools, servers={"clock": clock})
    assert cli("tools", "list", "--json", "--config", "onetool.yaml", cwd=folder, env=home_of(folder)).returncode == 0
    return folder


def home_of(folder):
    return {"HOME": str(folder), "ONETOOL_HOME": str(folder)}


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path)


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """One for tests that leave it as it was, but for bundles of their own."""
    running = begin(make_home(tmp_path_factory.mktemp("catalogue")))
    yield running
    running.stop()


@pytest.fixture
def own(home):
    running = begin(home)
    yield running
    running.stop()


def bundles(api, query="?includeDisabled=true"):
    found = api.get(f"/tools/bundles{query}").json()["bundles"]
    return {(one["source"]["kind"], one["source"]["name"]): one for one in found if "source" in one}


def tools(api, query="?includeDisabled=true"):
    """Those that nobody has kept, by name."""
    found = api.get(f"/tools/tools{query}").json()["tools"]
    return {one["pythonImpl"]["func"]: one for one in found if one["isBuiltIn"]}


def place(tool):
    return f"/tools/bundles/{tool['bundleID']}/tools/{tool['slug']}/version/{tool['version']}"


def invoke(api, tool, **args):
    return api.ask("POST", f"{place(tool)}/invoke", {"args": args})


def test_they_are_listed_beside_the_built_in_ones(api):
    found = bundles(api)
    assert {key: one["slug"] for key, one in found.items()} == {
        ("pack", "my_sums"): "my-sums",
        ("config", "config"): "config",
        ("config", "sky"): "sky",
        ("server", "clock"): "clock",
    }
    assert all(one["isBuiltIn"] and one["isEnabled"] for one in found.values())
    assert all(check_id(one["id"]) for one in found.values())
    names = tools(api)
    assert {"my_sums.add_two", "weather", "sky.blue", "clock.get_current_time", "time.now"} <= set(names)
    one = names["my_sums.add_two"]
    assert (one["slug"], one["version"], one["isBuiltIn"]) == ("add-two", "1", True)
    assert one["source"] == {"kind": "pack", "name": "my_sums"}
    assert one["argSchema"]["required"] == ["a"]
    assert "source" not in names["time.now"]


def test_what_is_listed_is_as_described(api):
    import jsonschema_rs

    document = api.get("/openapi.json").json()
    for path, name in (("/tools/bundles", "BundlePage"), ("/tools/tools", "ToolPage")):
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema_rs.Draft202012Validator(schema, offline=True).validate(api.get(path).json())


def test_a_row_says_whether_a_tool_reads_or_changes_something(api):
    id = new_id(time())
    bundle = f"/tools/bundles/{id}"
    assert api.ask("PUT", bundle, {"slug": "marks"}).is_success
    for method in ("GET", "POST", "DELETE"):
        impl = {"request": {"method": method, "urlTemplate": "https://example.com/"}, "response": {}}
        tool = {"type": "http", "argSchema": {"type": "object"}, "httpImpl": impl}
        assert api.ask("PUT", f"{bundle}/tools/{method.lower()}/version/1", tool).is_success
    listed = {one["name"]: one for one in api.get("/tools/tools").json()["tools"]}
    names = ("time.now", "ot.reload", "my_sums.add_two", "marks.get", "marks.post", "marks.delete")
    marks = [listed[name].get("effect") for name in names]
    assert marks == ["reads", "changes", None, "reads", None, "changes, repeatable"]
    path = f"{bundle}/tools/delete/version/1"
    one = api.get(path).json()
    assert one["effect"] == "changes, repeatable"
    assert api.ask("DELETE", path).is_success
    assert api.ask("PUT", path, one).is_success  # what was got can be put


def test_they_are_searched_and_got(api):
    tool = tools(api)["my_sums.add_two"]
    found = api.get("/tools/tools/search?q=add+two").json()["tools"]
    assert found[0]["pythonImpl"]["func"] == "my_sums.add_two"
    mine = api.tool(api.bundle(slug="other"), "add-two", "1", argSchema={}, pythonImpl={"func": "my_sums.add_two"})
    found = api.get("/tools/tools/search?q=add-two").json()["tools"]
    assert {"source" in one for one in found[:2]} == {True, False}  # merged with those of files
    reply = api.get(place(tool))
    assert reply.json()["id"] == tool["id"]
    assert api.get(place(tool), headers={"If-None-Match": reply.headers["etag"]}).status_code == 304
    assert api.get(f"/tools/bundles/{tool['bundleID']}").json()["slug"] == "my-sums"
    assert api.get(mine).status_code == 200


def test_pages_go_on_over_both(api):
    api.bundle(slug="one")
    everything = [one["id"] for one in api.get("/tools/bundles").json()["bundles"]]
    for path, name, size in (("bundles", "bundles", "pageSize"), ("tools", "tools", "recommendedPageSize")):
        found, token = [], ""
        while token is not None:
            page = api.get(f"/tools/{path}?{size}=2{token and f'&pageToken={token}'}").json()
            found += [one["id"] for one in page[name]]
            token = page["nextPageToken"]
        assert found == sorted(set(found))
        assert path != "bundles" or found == everything
    found, token = [], ""
    while token is not None:
        page = api.get(f"/tools/tools/search?q=&pageSize=3{token and f'&pageToken={token}'}").json()
        found += [one["id"] for one in page["tools"]]
        token = page["nextPageToken"]
    assert sorted(found) == [one["id"] for one in api.get("/tools/tools").json()["tools"]]


def test_they_are_listed_by_the_ids_of_bundles(api):
    one = bundles(api)["pack", "my_sums"]
    assert list(bundles(api, f"?bundleIDs={one['id']}")) == [("pack", "my_sums")]
    assert set(tools(api, f"?bundleIDs={one['id']}")) == {"my_sums.add_two", "my_sums.fail"}


@pytest.mark.long
def test_they_are_invoked_also_those_of_a_real_server(tmp_path, start):
    api = start(real=make_home(tmp_path, CLOCK), args=["--config", str(tmp_path / "onetool.yaml")])
    names = tools(api)
    assert invoke(api, names["my_sums.add_two"], a=3).json() == {"ok": True, "value": 4}
    assert invoke(api, names["weather"]).json() == {"ok": True, "value": {"of": "weather"}}
    assert invoke(api, names["clock.get_current_time"], timezone="UTC").json()["value"]["timezone"] == "UTC"
    failed = invoke(api, names["my_sums.fail"], why="so").json()
    assert (failed["ok"], failed["error"]["code"]) == (False, "execution_error")
    problem(invoke(api, names["my_sums.add_two"], a="x"), 400, "invalid_args")
    assert api.get(place(names["weather"])).json()["callCount"] == 1


def test_names_that_are_alike_have_slugs_of_their_own(api):
    names = tools(api)
    assert len({names[name]["slug"] for name in ALIKE}) == len(ALIKE)
    assert (names["sky.a_b"]["slug"], names["sky.a-b-c"]["slug"]) == ("a-b", "a-b-c")
    for name in ALIKE:
        assert invoke(api, names[name]).json() == {"ok": True, "value": {"of": name}}
        assert api.ask("POST", f"/call/{name}", {}).json() == {"of": name}


def test_only_the_switch_can_change(api):
    tool = tools(api)["my_sums.add_two"]
    bundle = f"/tools/bundles/{tool['bundleID']}"
    problem(api.ask("PUT", bundle, {"slug": "mine"}), 403, "built_in")
    problem(api.ask("DELETE", bundle), 403, "built_in")
    problem(api.ask("PATCH", bundle, {"slug": "mine"}), 403, "built_in")
    problem(api.ask("DELETE", place(tool)), 403, "built_in")
    content = {"type": "python", "pythonImpl": {"func": "my_sums.add_two"}}
    problem(api.ask("PUT", f"{bundle}/tools/other/version/1", content), 403, "built_in")


def test_a_switch_can_be_bound_to_what_was_seen(api):
    path = f"/tools/bundles/{bundles(api)['pack', 'my_sums']['id']}"
    seen = api.get(path).headers["etag"]
    for status in (200, 412):
        reply = api.ask("PATCH", path, {"isEnabled": False}, headers={"If-Match": seen})
        assert reply.status_code == status, reply.text
    assert api.ask("PATCH", path, {"isEnabled": True}).status_code == 200


def listed(home, *more):
    done = cli("tools", "list", "--json", "--config", "onetool.yaml", *more, cwd=home, env=home_of(home))
    return {one["name"] for one in json.loads(done.stdout)}


SWITCHED = {
    "my_sums.add_two": ("pack", "my_sums", {"a": 1}),
    "weather": ("config", "config", {}),
    "clock.get_current_time": ("server", "clock", {"timezone": "UTC"}),
}


@pytest.mark.long
def test_a_switch_hides_its_tools_everywhere_and_stays(home, start):
    args = ["--config", str(home / "onetool.yaml")]
    api = start(real=home, args=args)
    known, was = bundles(api), tools(api)
    for tool, (kind, name, given) in SWITCHED.items():
        path = f"/tools/bundles/{known[kind, name]['id']}"
        assert api.ask("PATCH", path, {"isEnabled": False}).json()["isEnabled"] is False
        problem(invoke(api, was[tool]), 403, "disabled")
        problem(api.ask("POST", f"/call/{tool}", {}), 403, "disabled")
        assert tool not in tools(api, "")
        assert tool in tools(api)
        assert (kind, name) not in bundles(api, "")
        code = f"ot.call({tool!r}, {given})"
        menu = api.ask("POST", "/mcp", mcp("tools/call", name="run", arguments={"code": code}), **MCP)
        assert "switched off" in menu.text
    api.stop()
    assert not listed(home) & SWITCHED.keys()
    for tool, (_, _, given) in SWITCHED.items():
        done = cli("run", f"ot.call({tool!r}, {given})", "--config", "onetool.yaml", cwd=home, env=home_of(home))
        assert (done.returncode, "switched off" in done.stderr) == (1, True)
    api = start(real=home, args=args)
    state = json.loads(cli("servers", "list", "--json", "--config", "onetool.yaml", cwd=home, env=home_of(home)).stdout)
    assert [server["state"] for server in state] != ["disabled"]
    for tool, (kind, name, _) in SWITCHED.items():
        assert bundles(api)[kind, name] == {**known[kind, name], "isEnabled": False}
        path = f"/tools/bundles/{known[kind, name]['id']}"
        assert api.ask("PATCH", path, {"isEnabled": True}).json()["isEnabled"] is True
        assert tool in tools(api, "")
    api.stop()
    assert listed(home) >= SWITCHED.keys()


def test_a_function_that_was_just_switched_on_can_be_stood_for(api):
    bundle, mine = bundles(api)["pack", "my_sums"], api.bundle(slug="mine")
    for number, on in enumerate((False, True)):
        assert api.ask("PATCH", f"/tools/bundles/{bundle['id']}", {"isEnabled": on}).status_code == 200
        content = {"type": "python", "pythonImpl": {"func": "my_sums.add_two"}}
        reply = api.ask("PUT", f"{mine}/tools/add/version/{number}", content)
        assert reply.status_code == (201 if on else 400), reply.text


MCP = {
    "headers": {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "run",
    }
}


def mcp(method, **params):
    about = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": about}}


def test_one_tool_of_a_pack_is_switched_by_rest_and_by_the_command_line(home, own):
    tool = tools(own)["my_sums.fail"]
    assert own.ask("PATCH", place(tool), {"isEnabled": False}).status_code == 200
    assert listed(home) & {"my_sums.fail", "my_sums.add_two"} == {"my_sums.add_two"}
    for words, there in (
        (("enable", "my-sums/fail"), True),
        (("disable", "my-sums"), False),
        (("enable", "my_sums.fail"), None),
        (("enable", "my-sums"), True),
    ):
        done = cli("bundles", *words, "--config", "onetool.yaml", cwd=home, env=home_of(home))
        if there is None:
            assert "disabled" in done.stderr  # the bundle around it
            continue
        assert done.returncode == 0, done.stderr
        status = 424 if there else 403  # soon: what another process has written is looked for now and then
        until(lambda: own.ask("POST", "/call/my_sums.fail", {"why": "x"}).status_code == status)  # noqa: B023


def test_a_server_that_is_down_lists_what_is_remembered_and_says_why_it_does_not_answer(home):
    config = json.loads((home / "onetool.yaml").read_text())
    command = home / "clock-server"
    command.symlink_to(sys.executable)
    config["servers"] = {"clock": {**LIGHT_CLOCK, "command": str(command)}, "never": GONE}
    write_config(home, **config)
    assert "clock.get_current_time" in listed(home)
    command.unlink()
    api = begin(home)
    try:
        tool = tools(api)["clock.get_current_time"]
        reply = invoke(api, tool, timezone="UTC")
        assert reply.status_code == 200
        assert reply.json()["ok"] is False
        assert reply.json()["error"]["reason"] == "source_unavailable"
        told = problem(api.ask("POST", "/call/clock.get_current_time", {"timezone": "UTC"}), 424, "execution_error")
        assert told["reason"] == "source_unavailable"
        assert bundles(api)["server", "never"]["slug"] == "never"
    finally:
        api.stop()


def test_another_config_of_the_same_folder_sees_nothing_of_it(home, own):
    write_config(home, "other.yaml", tools=[declared("weather"), declared("moon")])
    other = begin(home, config="other.yaml")
    try:
        assert set(bundles(other)) == {("config", "config")}
        assert "my_sums.add_two" not in tools(other)
        assert "moon" not in tools(own)
        assert tools(other)["weather"]["id"] == tools(own)["weather"]["id"]
        shared = other.bundle(slug="shared")
        until(lambda: own.get(shared).status_code == 200)  # what another process has written is looked for now and then
        assert {"my_sums.add_two", "sky.blue"} <= set(tools(own))
        fail = tools(own)["my_sums.fail"]
        assert own.ask("PATCH", place(fail), {"isEnabled": False}).status_code == 200
        assert set(bundles(other)) == {("config", "config")}
        assert tools(own)["my_sums.fail"]["isEnabled"] is False
    finally:
        other.stop()


def test_a_bundle_whose_name_is_taken_is_stored_with_a_warning(api):
    first, *others = (f"/tools/bundles/{api.new_id()}" for _ in range(4))
    made = api.ask("PUT", first, {"slug": "free"}).json()
    assert "warnings" not in made
    taken = {"free": f"the bundle {made['id']}", "time": "a pack", "sky": "a tool of the config"}
    for path, (slug, other) in zip(others, taken.items(), strict=True):
        shadowed = api.ask("PUT", path, {"slug": slug}).json()
        [warning] = shadowed["warnings"]
        assert f"({shadowed['id']}) is shadowed: {other} has the same name in code" in warning
        assert "warnings" not in api.get(path).json()
        again = api.ask("PUT", path, shadowed | {"slug": f"my-{slug}"})  # as it was got, with another name
        assert (again.status_code, "warnings" in again.json()) == (200, False)
    for path in (first, *others):
        assert api.ask("DELETE", path).status_code == 204


def test_under_an_allow_list_only_what_is_allowed_is_seen(home):
    api = begin(home, "--tool-allow", "my_sums.add_two,weather")
    try:
        assert set(tools(api)) == {"my_sums.add_two", "weather"}
        assert set(bundles(api)) == {("pack", "my_sums"), ("config", "config")}
        found = api.get("/tools/tools/search?q=fail").json()["tools"]
        assert found == []
    finally:
        api.stop()


def test_tools_that_come_with_a_reload_are_there(home, own):
    (home / "functions" / "late.py").write_text('def one() -> int:\n    """One."""\n    return 1\n')
    sign_in_as_admin(own, home)
    assert own.ask("POST", "/call/ot.reload", {}).status_code == 200
    assert invoke(own, tools(own)["late.one"]).json() == {"ok": True, "value": 1}
    assert [one["slug"] for one in own.get("/tools/tools/search?q=one").json()["tools"]][:1] == ["one"]


def test_a_bundle_of_the_same_slug_comes_first_on_the_command_line(home):
    done = cli("bundles", "create", "my-sums", "--config", "onetool.yaml", cwd=home, env=home_of(home))
    assert done.returncode == 0, done.stderr
    shown = json.loads(
        cli("bundles", "show", "my-sums", "--json", "--config", "onetool.yaml", cwd=home, env=home_of(home)).stdout
    )
    assert shown["isBuiltIn"] is False


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("read_file", "read-file"),
        ("read-file", "read-file"),
        ("Änderung", "Änderung"),
        ("x" * 64, "x" * 64),
    ],
)
def test_a_slug_follows_from_the_name(name, slug):
    assert slug_of(name) == slug


@each("name", ["a_b-c", "a.b", "a b", "x" * 65, "…", "\ud800", "a/b", "e\u0301"])
def test_other_names_get_a_hash(name):
    slug = slug_of(name)
    assert check_slug(slug) == slug == slug_of(name)
    assert re.search(r"(^|-)[0-9a-f]{8}$", slug)
