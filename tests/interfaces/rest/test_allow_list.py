"""`serve --tool-allow`: what is listed, and what can be changed."""

import json

import pytest
from interfaces.rest.served import Api, problem

from onetool.sources.bundles.model import built_in_id

ALLOWED = ("--tool-allow", "time.now,mine.echo,tools.echo")
CHANGES = [("PUT", {"slug": "other"}), ("PATCH", {"isEnabled": False}), ("DELETE", None)]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two bundles, of which one has a tool that is allowed, in two versions, and one that is not."""
    folder = tmp_path_factory.mktemp("home")
    api = Api(real=folder)
    mine = api.bundle(slug="mine")
    schema = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
    function = {"pythonImpl": {"func": "tools.echo"}, "argSchema": schema}
    for slug, version in (("echo", "1"), ("echo", "2"), ("hidden", "1")):
        api.tool(mine, slug, version, **function)
    api.tool(api.bundle(slug="other"), "echo", "1", **function)
    assert api.stop() == 0
    folder.joinpath("where").write_text(mine)
    return folder


@pytest.fixture(scope="module")
def narrow(home):
    api = Api(real=home, args=ALLOWED)
    yield api
    assert api.stop() == 0


@pytest.fixture(scope="module")
def mine(home):
    return home.joinpath("where").read_text()


def slugs(api, path, name):
    return sorted(one["slug"] for one in api.get(path).json()[name])


@pytest.mark.parametrize("more", ["", "?includeDisabled=true", "?recommendedPageSize=1"])
def test_the_list_of_tools_has_what_is_allowed(narrow, more):
    found = narrow.get(f"/tools/tools{more}").json()["tools"]
    assert found
    assert {(one["slug"], one["version"]) for one in found} <= {("now", "1"), ("echo", "1"), ("echo", "2")}


def test_lists_search_and_bundles_show_nothing_else(narrow):
    assert slugs(narrow, "/tools/tools", "tools") == ["echo", "echo", "now"]
    assert slugs(narrow, "/tools/tools/search?q=echo", "tools") == ["echo", "echo"]
    assert slugs(narrow, "/tools/bundles", "bundles") == ["mine", "time", "tools"]


def test_pages_go_on_over_what_is_not_shown(narrow):
    for place, size, name, every in (
        ("/tools/tools", "recommendedPageSize", "tools", ["echo", "echo", "now"]),
        ("/tools/bundles", "pageSize", "bundles", ["mine", "time", "tools"]),
    ):
        found, token = [], ""
        while token is not None:
            page = narrow.get(f"{place}?{size}=1{token and f'&pageToken={token}'}").json()
            assert len(page[name]) == 1
            found += [one["slug"] for one in page[name]]
            token = page["nextPageToken"]
        assert sorted(found) == every


def test_what_is_not_allowed_is_not_there_to_be_read(narrow, mine):
    problem(narrow.get(f"{mine}/tools/hidden/version/1"), 404, "not_found")
    problem(narrow.get(f"{mine}/tools/echo/version/1"), 404, "not_found")  # `mine.echo@1`, which is not named
    problem(narrow.get(f"/tools/bundles/{built_in_id('fs')}"), 404, "not_found")
    assert narrow.get(f"{mine}/tools/echo/version/2").json()["slug"] == "echo"
    assert narrow.get(mine).json()["slug"] == "mine"


def test_versions_that_are_not_allowed_are_not_listed(narrow, mine):
    found = narrow.get(f"{mine}/tools/echo/versions").json()["versions"]
    assert [one["version"] for one in found] == ["2"]
    problem(narrow.get(f"{mine}/tools/hidden/versions"), 404, "not_found")


def test_drafts_are_for_those_who_may_change_something(narrow, mine):
    problem(narrow.ask("POST", "/tools/validate", {"bundle": {"slug": "other"}}), 403, "read_only")
    problem(narrow.ask("POST", "/tools/preview", {"tool": {}}), 403, "read_only")
    args = {"args": {"message": "hi"}}
    preview = narrow.ask("POST", f"{mine}/tools/echo/version/2/preview", args).json()
    assert preview == {"call": "tools.echo(message='hi')"}
    problem(narrow.ask("POST", f"{mine}/tools/hidden/version/1/preview", args), 404, "not_found")
    assert narrow.ask("POST", f"{mine}/tools/echo/version/2/validate", args).json()["ok"]
    problem(narrow.ask("POST", f"{mine}/tools/hidden/version/1/validate", args), 404, "not_found")


def test_examples_are_of_what_is_allowed(narrow, mine):
    assert narrow.get(f"{mine}/tools/echo/version/2/examples").json() == {"examples": []}
    problem(narrow.get(f"{mine}/tools/hidden/version/1/examples"), 404, "not_found")
    problem(narrow.ask("PUT", f"{mine}/tools/echo/version/2/examples", {"examples": []}), 403, "read_only")


def test_usage_is_of_what_is_allowed(narrow, mine):
    assert narrow.get(f"{mine}/tools/echo/version/2/usage").json()["enabled"]
    problem(narrow.get(f"{mine}/tools/hidden/version/1/usage"), 404, "not_found")


def test_what_is_allowed_can_be_called(narrow, mine):
    reply = narrow.ask("POST", f"{mine}/tools/echo/version/2/invoke", {"args": {"message": "hi"}})
    assert reply.json() == {"ok": True, "value": "hi"}


@pytest.mark.parametrize(("method", "body"), CHANGES)
def test_nothing_can_be_changed_and_the_problem_says_why(narrow, mine, method, body):
    new = f"/tools/bundles/{narrow.new_id()}"
    for path in (mine, new, f"{mine}/tools/echo/version/2", f"{mine}/tools/later/version/1"):
        detail = problem(narrow.ask(method, path, body), 403, "read_only")["detail"]
        assert detail.startswith("Nothing can be changed through this server")
        assert "--tool-allow" in detail
        assert "http.admin" in detail
    assert narrow.get(mine).json()["isEnabled"] is True


def test_what_can_be_changed_is_what_allow_says(narrow, mine):
    reply = narrow.ask("OPTIONS", mine)
    assert reply.headers["allow"] == "GET, HEAD, OPTIONS"
    assert narrow.ask("OPTIONS", "/servers/x/logs").headers["allow"] == "OPTIONS"  # GET is for admins


def test_who_is_capped_is_told_so(narrow):
    assert narrow.get("/login").json()["isCapped"] is True
    assert narrow.get("/status").json()["isCapped"] is True
    detail = problem(narrow.get("/servers/x/logs"), 403, "read_only")["detail"]
    assert detail.startswith("This can't be read through this server")


def with_config(home, http, *args):
    home.joinpath("onetool.yaml").write_text(json.dumps({"http": http}))
    return Api(real=home, args=[*args, "--config", str(home / "onetool.yaml")])


def test_admin_is_for_those_who_want_the_other(tmp_path):
    api = with_config(tmp_path, {"admin": True}, "--tool-allow", "time.now")
    try:
        bundle = api.bundle(slug="mine")
        assert "fs" in slugs(api, "/tools/bundles", "bundles")
        assert api.ask("PATCH", bundle, {"isEnabled": False}).status_code == 200
        tool = f"/tools/bundles/{built_in_id('fs')}/tools/read-file/version/1"
        assert api.ask("POST", f"{tool}/invoke", {}).status_code == 403
    finally:
        api.stop()


def test_without_admin_nothing_changes_where_everything_may_be_called(tmp_path):
    api = with_config(tmp_path, {"admin": False})
    try:
        reply = api.ask("PUT", f"/tools/bundles/{api.new_id()}", {"slug": "mine"})
        assert "http.admin" in problem(reply, 403, "read_only")["detail"]
        assert "fs" in slugs(api, "/tools/bundles", "bundles")
    finally:
        api.stop()
