"""Editing over REST: a new version, a copy, another name."""

import pytest
from interfaces.rest.served import Api, problem

TOOL = {
    "type": "script",
    "scriptImpl": {"code": "n + 1"},
    "tags": ["a"],
    "description": "Adds one.",
    "argSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    "limits": {"maxCallsPerMinute": 60, "maxResponseBytes": 1000},
}


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    running = Api(real=tmp_path_factory.mktemp("editing"))
    yield running
    running.stop()


@pytest.fixture
def place(api):
    path = f"{api.bundle()}/tools/add/version/1"
    assert api.ask("PUT", path, TOOL).status_code == 201
    return path


def test_a_new_version_is_the_old_one_with_changes(api, place):
    changes = {"description": "Adds two.", "scriptImpl": {"code": "n + 2"}, "limits": {"maxResponseBytes": None}}
    reply = api.ask("POST", f"{place}/copy", {"version": "2", "changes": changes})
    assert reply.status_code == 201, reply.text
    new = reply.headers["location"]
    assert new == place.removesuffix("1") + "2"
    found = api.get(new)
    assert found.headers["etag"] == reply.headers["etag"]
    assert found.json()["description"] == "Adds two."
    assert found.json()["tags"] == ["a"]
    assert found.json()["limits"] == {"maxCallsPerMinute": 60}
    assert api.ask("POST", f"{new}/invoke", {"args": {"n": 1}}).json() == {"ok": True, "value": 3}
    assert api.get(place).json()["description"] == "Adds one."
    assert found.json()["id"] != api.get(place).json()["id"]


def test_a_copy_goes_to_another_bundle_and_slug(api, place):
    other = api.bundle().rpartition("/")[2]
    reply = api.ask("POST", f"{place}/copy", {"bundleID": other, "slug": "plus"})
    assert reply.headers["location"] == f"/tools/bundles/{other}/tools/plus/version/1"
    assert api.get(reply.headers["location"]).json()["scriptImpl"] == TOOL["scriptImpl"]


@pytest.mark.parametrize(
    ("body", "status", "code", "pointer"),
    [
        ({}, 409, "exists", None),
        ({"version": "1"}, 409, "exists", None),
        ({"version": "no good"}, 400, "invalid", "/version"),
        ({"version": 2}, 400, "invalid", "/version"),
        ({"verson": "2"}, 400, "invalid", "/verson"),
        ({"version": "2", "changes": []}, 400, "invalid", "/changes"),
        ({"version": "2", "changes": {"id": "x"}}, 400, "invalid", "/changes/id"),
        ({"version": "2", "changes": {"nope": 1}}, 400, "invalid", "/nope"),
        ({"version": "2", "changes": {"scriptImpl": {"code": "1 +"}}}, 400, "invalid", "/scriptImpl/code"),
        ({"bundleID": "01890a5d-ac96-774b-bcce-ffffffffffff"}, 404, "not_found", None),
    ],
)
def test_what_can_not_be_copied(api, place, body, status, code, pointer):
    assert problem(api.ask("POST", f"{place}/copy", body), status, code).get("pointer") == pointer
    tools = api.get(f"/tools/tools?bundleIDs={place.split('/')[3]}&fields=version").json()["tools"]
    assert tools == [{"version": "1"}]


def test_what_was_seen_is_copied(api, place):
    reply = api.ask("POST", f"{place}/copy", {"version": "2"}, headers={"If-Match": '"other"'})
    problem(reply, 412, "stale")


def test_a_built_in_tool_is_copied_as_its_function(api, place):
    now = next(one for one in api.get("/tools/tools?recommendedPageSize=1000").json()["tools"] if one["slug"] == "now")
    path = f"/tools/bundles/{now['bundleID']}/tools/now/version/1"
    reply = api.ask("POST", f"{path}/copy", {"bundleID": place.split("/")[3]})
    assert reply.status_code == 201, reply.text
    assert reply.json()["isBuiltIn"] is False
    assert api.ask("POST", f"{reply.headers['location']}/invoke", {}).json()["ok"] is True
    problem(api.ask("POST", f"{place}/copy", {"bundleID": now["bundleID"]}), 403, "built_in")
    problem(api.ask("POST", f"{path}/rename", {"slug": "then"}), 403, "built_in")


def test_a_tool_that_is_renamed_stays_the_same(api, place):
    assert api.ask("POST", f"{place}/invoke", {"args": {"n": 1}}).json()["value"] == 2
    api.ask("PATCH", place, {"isEnabled": False})
    before = api.get(place).json()
    reply = api.ask("POST", f"{place}/rename", {"slug": "plus", "version": "1.1"})
    assert reply.status_code == 200, reply.text
    new = reply.headers["content-location"]
    assert new.endswith("/tools/plus/version/1.1")
    after = api.get(new).json()
    assert reply.json()["name"] == after["name"]
    same = ("id", "createdAt", "isEnabled", "scriptImpl", "tags")
    assert [after[key] for key in same] == [before[key] for key in same]
    assert after["modifiedAt"] >= before["modifiedAt"]
    problem(api.get(place), 404, "not_found")
    api.ask("PATCH", new, {"isEnabled": True})
    assert api.ask("POST", f"{new}/invoke", {"args": {"n": 1}}).json()["value"] == 2
    assert api.ask("PUT", place, TOOL).status_code == 201, "its place is free"


def test_a_rename_refuses_a_name_that_is_taken(api, place):
    other = place.replace("/add/", "/plus/")
    assert api.ask("PUT", other, TOOL).status_code == 201
    problem(api.ask("POST", f"{place}/rename", {"slug": "plus"}), 409, "exists")
    problem(api.ask("POST", f"{place}/rename", {}), 400, "invalid")
    problem(api.ask("POST", f"{place}/rename", {"slug": "x"}, headers={"If-Match": '"other"'}), 412, "stale")
    assert {api.get(one).status_code for one in (place, other)} == {200}
