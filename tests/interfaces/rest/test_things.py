"""Bundles and tools, one at a time: made, got, switched, deleted; and nobody overwrites what he has not seen."""

from urllib.parse import quote

import pytest
from helpers import each
from interfaces.rest.served import BUILT_IN, ECHO, problem


def test_a_bundle_is_created_replaced_switched_and_deleted(api):
    path = f"/tools/bundles/{api.new_id()}"
    created = api.ask("PUT", path, {"slug": "mine", "displayName": "Mine"})
    assert (created.status_code, created.headers["location"]) == (201, path)
    bundle = created.json()
    assert (bundle["slug"], bundle["isEnabled"], bundle["isBuiltIn"]) == ("mine", True, False)
    again = api.ask("PUT", path, {**bundle, "displayName": "Ours"})  # as it was got, with a change
    assert (again.status_code, "location" in again.headers) == (200, False)
    assert api.get(path).json() == again.json() == {**bundle, "displayName": "Ours"}
    off = api.ask("PATCH", path, {"isEnabled": False})
    assert (off.status_code, off.json()["isEnabled"]) == (200, False)
    gone = api.ask("DELETE", path)
    assert (gone.status_code, gone.content) == (204, b"")
    problem(api.get(path), 404, "not_found")


def test_a_tool_is_created_once_switched_and_deleted(api):
    bundle = api.bundle()
    path = f"{bundle}/tools/{quote('wörter-٣')}/version/1.0-rc"
    created = api.ask("PUT", path, ECHO)
    assert (created.status_code, created.headers["location"]) == (201, path)
    assert (created.json()["slug"], created.json()["version"]) == ("wörter-٣", "1.0-rc")
    problem(api.ask("PUT", path, {**ECHO, "tags": ["b"]}), 409, "conflict")
    assert api.get(path).json()["tags"] == ["a"]
    problem(api.ask("DELETE", bundle), 409, "not_empty")
    assert api.ask("PATCH", path, {"isEnabled": False}).json()["isEnabled"] is False
    assert api.ask("DELETE", path).status_code == 204
    problem(api.ask("DELETE", path), 404, "not_found")
    assert api.ask("DELETE", bundle).status_code == 204


def test_a_whole_number_may_be_written_as_a_fraction(api):
    body = b'{"type": "python", "pythonImpl": {"func": "echo"}, "limits": {"maxRetries": 2.0}, "argSchema": {"x": 0.5}}'
    path = f"{api.bundle()}/tools/echo/version/1"
    assert api.ask("PUT", path, content=body).status_code == 201
    assert api.get(path).json()["limits"] == {"maxRetries": 2}
    assert api.get(path).json()["argSchema"] == {"x": 0.5}


def test_head_is_get_without_a_body_and_options_says_what_there_is(api):
    path = api.bundle()
    got, head = api.get(path), api.ask("HEAD", path)
    assert (head.status_code, head.content) == (200, b"")
    assert [head.headers[name] for name in ("etag", "content-length")] == [
        got.headers[name] for name in ("etag", "content-length")
    ]
    options = api.ask("OPTIONS", path)
    assert (options.status_code, options.headers["allow"]) == (204, "GET, PUT, PATCH, DELETE, HEAD, OPTIONS")


@pytest.mark.parametrize("where", ["bundle", "tool"])
def test_if_match_keeps_others_changes(api, where):
    path = api.bundle() if where == "bundle" else api.tool()
    first = api.get(path).headers["etag"]
    second = api.ask("PATCH", path, {"isEnabled": False}, headers={"If-Match": first}).headers["etag"]
    assert first != second
    for stale in (first, '"other"', f'"x", {first}', f"W/{second}", '"*"'):
        problem(api.ask("PATCH", path, {"isEnabled": True}, headers={"If-Match": stale}), 412, "stale")
        problem(api.ask("DELETE", path, headers={"If-Match": stale}), 412, "stale")
    assert api.get(path).headers["etag"] == second
    for right in (f'"x", {second}', second.strip('"'), "*"):
        assert api.ask("PATCH", path, {"isEnabled": False}, headers={"If-Match": right}).status_code == 200
    assert api.ask("DELETE", path, headers={"If-Match": second}).status_code == 204
    problem(api.ask("DELETE", path, headers={"If-Match": second}), 404, "not_found")


def test_a_put_can_be_meant_for_one_state_alone(api):
    path, content = f"/tools/bundles/{api.new_id()}", {"slug": "mine"}
    problem(api.ask("PUT", path, content, headers={"If-Match": "*"}), 412, "stale")
    tag = api.ask("PUT", path, content, headers={"If-None-Match": "*"}).headers["etag"]
    problem(api.ask("PUT", path, content, headers={"If-None-Match": "*"}), 412, "stale")
    problem(api.ask("PUT", path, content, headers={"If-None-Match": tag}), 412, "stale")
    problem(api.ask("PUT", path, content, headers={"If-Match": '"other"'}), 412, "stale")
    changed = api.ask("PUT", path, {**content, "description": "d"}, headers={"If-Match": tag})
    assert (changed.status_code, changed.headers["etag"] != tag) == (200, True)
    tool = api.tool(path)
    problem(api.ask("PUT", tool, ECHO, headers={"If-None-Match": "*"}), 412, "stale")
    problem(api.ask("PUT", tool, ECHO, headers={"If-Match": "*"}), 409, "conflict")


@pytest.mark.parametrize("where", ["bundle", "tool"])
def test_what_a_client_has_is_not_sent_again(api, where):
    path = api.bundle() if where == "bundle" else api.tool()
    tag = api.get(path).headers["etag"]
    for known in (tag, f"W/{tag}", f'"x",{tag}', "*"):
        same = api.get(path, headers={"If-None-Match": known})
        assert (same.status_code, same.headers["etag"], same.content) == (304, tag, b"")
    assert api.get(path, headers={"If-None-Match": '"x"'}).status_code == 200


@each("header", ["", "a, b", '"a', '"a" "b"', '*, "a"', 'w/"a"'])
def test_a_condition_that_nobody_can_read_is_refused(api, header):
    found = problem(api.get(api.bundle(), headers={"If-None-Match": header}), 400, "bad_header")
    assert (found["in"], found["pointer"]) == ("header", "/If-None-Match")


def test_what_is_built_in_can_only_be_switched(api):
    path = f"/tools/bundles/{BUILT_IN}"
    for reply in (
        api.ask("PUT", path, {"slug": "mine"}),
        api.ask("DELETE", path),
        api.ask("PATCH", path, {"slug": "mine"}),
        api.ask("DELETE", f"{path}/tools/echo/version/1"),
    ):
        problem(reply, 403, "built_in")
    assert api.ask("PATCH", path, {"isEnabled": True}).status_code == 200


@each(
    "body", [{}, [], None, True, {"isEnabled": 1}, {"isEnabled": None}, {"isEnabled": True, "slug": "x"}, {"slug": "x"}]
)
def test_patch_takes_the_switch_and_nothing_else(api, body):
    import json

    for path in (api.bundle(), api.tool()):
        problem(api.ask("PATCH", path, content=json.dumps(body)), 400, "invalid")


@each(
    ("change", "pointer"),
    [
        ({"slug": "a_b"}, "/slug"),
        ({"slug": 1}, "/slug"),
        ({"slgu": "x"}, "/slgu"),
        ({"displayName": "x" * 201}, "/displayName"),
        ({"isEnabled": "yes"}, "/isEnabled"),
    ],
)
def test_a_problem_points_to_the_field(api, change, pointer):
    found = problem(api.ask("PUT", f"/tools/bundles/{api.new_id()}", {"slug": "mine", **change}), 400, "invalid")
    assert (found["in"], found["pointer"]) == ("body", pointer)


@each(
    ("path", "pointer"),
    [
        ("bundles/nothing", "/bundleID"),
        ("bundles/018905c7-ac96-474b-bcce-b302099a8057", "/bundleID"),
        ("bundles/01890A5D-AC96-474B-BCCE-B302099A8057", "/bundleID"),
        (f"bundles/{BUILT_IN}/tools/a_b/version/1", "/toolSlug"),
        (f"bundles/{BUILT_IN}/tools/{'a' * 65}/version/1", "/toolSlug"),
        (f"bundles/{BUILT_IN}/tools/a%CC%88/version/1", "/toolSlug"),
        (f"bundles/{BUILT_IN}/tools/a%2Fb/version/1", "/toolSlug"),
        (f"bundles/{BUILT_IN}/tools/%2e%2e/version/1", "/toolSlug"),
        (f"bundles/{BUILT_IN}/tools/a%01/version/1", "/toolSlug"),
        (f"bundles/{BUILT_IN}/tools/a/version/1+1", "/version"),
        (f"bundles/{BUILT_IN}/tools/a/version/1%zz", ""),
        (f"bundles/{BUILT_IN}/tools/a/version/%ff", ""),
        (f"bundles/{BUILT_IN}/tools/a/version/%c0%af", ""),
    ],
)
def test_every_part_of_an_address_is_checked(api, path, pointer):
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        found = problem(api.raw(method, f"/tools/{path}", b"{}"), 400, "bad_path")
        assert (found["in"], found["pointer"]) == ("path", pointer)


@each(
    "path",
    ["", "/", "/bundle", f"/bundles/{BUILT_IN}/", f"/bundles/{BUILT_IN}/tools", "/tools/x", "/bundles%2Fx"],
)
def test_where_nothing_is_the_problem_says_what_there_is(api, path):
    found = problem(api.raw("GET", f"/tools{path}"), 404, "not_found")
    assert "/tools/bundles/{bundleID}" in found["detail"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/tools/bundles", "GET, HEAD, OPTIONS"),
        ("PUT", "/tools/tools", "GET, HEAD, OPTIONS"),
        ("BREW", "/tools/bundles/x", "GET, PUT, PATCH, DELETE, HEAD, OPTIONS"),
        ("GET", f"/tools/bundles/{BUILT_IN}/tools/echo/version/1/invoke", "POST, OPTIONS"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(api, method, path, allow):
    reply = api.raw(method, path) if method == "BREW" else api.ask(method, path)
    if reply.status_code != 400:  # a method that the server below does not even read
        problem(reply, 405, "method_not_allowed")
        assert reply.headers["allow"] == allow


def test_parts_of_an_address_may_be_written_in_any_way(api):
    path = api.tool(slug="abc")
    odd = path.replace("/tools/bundles", "/%74ools/%62undles").replace("abc", "%61bc").replace("version", "%76ersion")
    assert api.raw("GET", odd).json()["slug"] == "abc"
