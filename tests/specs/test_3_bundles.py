"""3-bundles.md, rule by rule, through the real HTTP server. Names follow the document's headings."""

import asyncio
import hashlib
import hmac
import json
import os
import re
import time
from io import BytesIO
from zipfile import ZipFile

import pytest
from helpers import BUILT_IN_PACKS, until
from interfaces.mcp.peers import HttpPeer
from specs.rest import ADD, PACK, TOKEN, Api, place
from upstream import CLOSE
from upstream import Reply as Answer

from onetool import App, ToolCall
from onetool.sources.bundles.archive import pack, unpack
from onetool.sources.bundles.errors import ConflictError, ForbiddenError
from onetool.sources.bundles.model import BundleContent
from onetool.sources.bundles.names import new_id
from onetool.sources.bundles.queries import ListQuery
from onetool.sources.bundles.store.store import folder_store
from onetool.sources.bundles.validation import read_tool

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
JSON = {"Content-Type": "application/json"}
UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    api = Api(tmp_path_factory.mktemp("bundles"))
    yield api
    api.close()


@pytest.fixture(autouse=True)
def _fresh_upstream(api):
    api.upstream.seen.clear()
    api.upstream.say(Answer(headers=JSON, body=b'{"sky": "clear"}'))


def code(reply):
    assert reply.headers["content-type"] == "application/problem+json", reply
    assert reply.json["status"] == reply.status
    return reply.status, reply.json["code"]


def edit(file, data):
    """Replace a file as an editor does. A file that is read while it is written is a broken one."""
    draft = file.with_name("draft")
    draft.write_text(json.dumps(data))
    draft.rename(file)


# Data model and constraints


def test_bundle_id_and_tool_id_are_present_and_uuidv7(api):
    bundle = api.bundle("ids")
    tool = api.made(bundle, **ADD)
    assert UUID7.fullmatch(tool["id"])
    assert tool["bundleID"] == bundle
    for wrong in ("1", "01890a5d-ac96-474b-bcce-b302099a8057", "01890A5D-AC96-474B-BCCE-B302099A8057"):
        assert api.ask("PUT", f"/bundles/{wrong}", {"slug": "x"}).status == 400
        assert api.ask("GET", place(wrong)).status == 400
        assert api.ask("GET", "/bundles", bundleIDs=wrong).status == 400


def test_an_id_may_be_written_in_upper_case(api):
    bundle = api.bundle("shouted")
    made = api.ask("PUT", place(bundle.upper(), "add"), ADD)
    assert (made.status, made.json["bundleID"]) == (201, bundle)
    assert api.ask("GET", f"/bundles/{bundle.upper()}").json["id"] == bundle
    assert [one["id"] for one in api.ask("GET", "/bundles", bundleIDs=bundle.upper()).json["bundles"]] == [bundle]
    assert api.invoke(bundle.upper(), "add", a=1).json == {"ok": True, "value": 2}
    other = new_id(1_790_000_000)
    assert api.ask("PUT", f"/bundles/{other.upper()}", {"slug": "loud"}).json["id"] == other


def test_a_missing_argument_of_the_path_is_400(api):
    bundle = api.bundle("paths")
    api.made(bundle, **api.http("/v1/${city}/${day}", {"city": {"type": "string"}, "day": {"type": "string"}}))
    reply = api.invoke(bundle, city="Rome")
    assert code(reply) == (400, "invalid_args")
    assert (reply.json["pointer"], "day" in reply.json["detail"]) == ("/args/day", True)
    assert code(api.invoke(bundle, city="", day="now")) == (400, "invalid_args")
    assert api.upstream.seen == []
    assert api.invoke(bundle, city="Rome", day="now").json["ok"] is True


def test_a_tool_whose_host_is_not_allowed_is_kept_and_the_answer_says_so(api):
    bundle = api.bundle("hosts")
    tool = api.http("/x") | {"httpImpl": {"request": {"urlTemplate": "https://api.example.com/v1/${WEATHER_TOKEN}"}}}
    made = api.made(bundle, **tool)
    [warning] = made["warnings"]
    assert "api.example.com" in warning
    assert "allowedHosts" in warning
    assert TOKEN not in warning
    got = api.get(bundle).json
    assert (got["httpImpl"], "warnings" in got) == (tool["httpImpl"], False)
    again = api.ask("PUT", place(bundle, "again"), {**made, "slug": "again"})  # as it was got
    assert again.status == 201
    assert "warnings" not in api.made(bundle, "allowed", **api.http("/x"))


@pytest.mark.parametrize("what", ["tool", "bundle"])
def test_modified_at_follows_edits_of_the_file_and_no_switch(api, what):
    bundle = api.bundle(f"edited-{what}")
    api.made(bundle, **ADD)
    where = place(bundle) if what == "tool" else f"/bundles/{bundle}"
    [file] = api.folder.glob(f"**/bundles/edited-{what}-*/" + ("tools/*.json" if what == "tool" else "bundle.json"))
    before = api.ask("GET", where).json
    api.ask("PATCH", where, {"isEnabled": False})
    api.ask("PATCH", where, {"isEnabled": True})
    assert api.ask("GET", where).json["modifiedAt"] == before["modifiedAt"]
    data = json.loads(file.read_text())
    until(lambda: time.time() > os.stat(file).st_mtime + 0.05)
    edit(file, {**data, "isEnabled": False})
    until(lambda: api.ask("GET", where).json["isEnabled"] is False)
    assert api.ask("GET", where).json["modifiedAt"] == before["modifiedAt"]
    edit(file, {**data, "description": "By hand."})
    until(lambda: api.ask("GET", where).json["description"] == "By hand.")
    after = api.ask("GET", where).json
    assert (after["createdAt"], after["id"]) == (before["createdAt"], before["id"])
    assert after["modifiedAt"] > before["modifiedAt"]
    api.ask("PATCH", where, {"isEnabled": False})
    assert api.ask("GET", where).json["modifiedAt"] == after["modifiedAt"]


@pytest.mark.parametrize("url", ["ftp://a/x", "api.example.com/x", "//a/x", "file:///etc/passwd", "${u}"])
def test_url_template_must_start_with_http_or_https(api, url):
    tool = api.http("/x") | {"httpImpl": {"request": {"urlTemplate": url}}}
    reply = api.put(api.bundle("schemes"), **tool)
    assert reply.status == 400
    assert reply.json["pointer"] == "/httpImpl/request/urlTemplate"


def test_placeholders_come_from_call_arguments_or_app_scoped_secrets(api):
    bundle = api.bundle("placeholders")
    api.made(
        bundle,
        **api.http("/v1/${city}", {"city": {"type": "string"}}, ["city"], query={"k": "${WEATHER_TOKEN}"}),
    )
    reply = api.invoke(bundle, city="a b/../c")
    assert reply.json == {"ok": True, "value": {"sky": "clear"}}
    (seen,) = api.upstream.seen
    assert seen.target == f"/v1/a%20b%2F..%2Fc?k={TOKEN}"


def test_destination_host_must_match_allowed_hosts(api):
    bundle = api.bundle("hosts")
    api.made(bundle, **api.http("/x") | {"httpImpl": {"request": {"urlTemplate": "http://elsewhere.example/x"}}})
    error = api.invoke(bundle).json["error"]
    assert "allowedHosts" in error["message"] + " ".join(error.get("hints", ()))
    assert error["reason"] == "denied"
    assert api.upstream.seen == []


@pytest.mark.parametrize("slug", ["a", "Read-File", "9", "天気", "été", "a" * 64, "𝒳", "-"])
def test_slugs_are_letters_digits_and_dashes(api, slug):
    bundle = api.bundle("good-slugs")
    assert api.made(bundle, slug, **ADD)["slug"] == slug
    assert api.get(bundle, slug).status == 200


@pytest.mark.parametrize("slug", ["a_b", "a b", "a.b", "a" * 65, "a\u0301", "½", "a\n", "+a", "a\u200b", "a%2fb", ".."])
def test_slugs_have_nothing_else(api, slug):
    bundle = api.bundle("bad-slugs")
    assert api.put(bundle, slug, **ADD).status in (400, 404)
    assert api.ask("PUT", f"/bundles/{UNKNOWN}", {"slug": slug}).status == 400


def test_a_dot_is_allowed_in_a_version(api):
    bundle = api.bundle("versions")
    for version in ("1.0.0-rc.1", "..", "v.", "2026.11"):
        assert api.made(bundle, "tool", version, **ADD)["version"] == version
        assert api.invoke(bundle, "tool", version, a=1).json["value"] == 2
    assert api.put(bundle, "tool", "1_0", **ADD).status == 400


def test_slugs_are_case_sensitive(api):
    bundle = api.bundle("cases")
    api.made(bundle, "tool", **ADD)
    api.made(bundle, "Tool", **ADD | {"description": "another"})
    assert api.get(bundle, "tool").json["description"] == "Add numbers"
    assert api.get(bundle, "Tool").json["description"] == "another"


def test_within_one_bundle_slug_and_version_are_unique_and_across_bundles_they_may_repeat(api):
    one, other = api.bundle("one"), api.bundle("other")
    api.made(one, **ADD)
    api.made(one, version="2", **ADD)
    api.made(other, **ADD)
    assert code(api.put(one, **ADD)) == (409, "exists")


def test_created_at_is_immutable_and_modified_at_is_the_last_structural_change(api):
    id = api.bundle("times")
    before = api.ask("GET", f"/bundles/{id}").json
    toggled = api.ask("PATCH", f"/bundles/{id}", {"isEnabled": False}).json
    assert (toggled["createdAt"], toggled["modifiedAt"]) == (before["createdAt"], before["modifiedAt"])
    time.sleep(0.005)
    changed = api.ask("PUT", f"/bundles/{id}", {"slug": "times", "displayName": "Other", "isEnabled": True}).json
    assert changed["createdAt"] == before["createdAt"]
    assert changed["modifiedAt"] > before["modifiedAt"]
    tool = api.made(id, **ADD)
    patched = api.ask("PATCH", place(id), {"isEnabled": False}).json
    assert patched["modifiedAt"] == tool["modifiedAt"] == tool["createdAt"]
    assert patched["isEnabled"] is False


# API surface


def test_put_bundle_creates_or_replaces(api):
    id = api.bundle("replaced", description="first")
    reply = api.ask("PUT", f"/bundles/{id}", {"slug": "replaced-2", "displayName": "Second", "isEnabled": True})
    assert reply.status == 200
    assert reply.json["slug"] == "replaced-2"
    assert set(reply.json) == {
        "id", "slug", "displayName", "description", "isEnabled", "isBuiltIn", "createdAt", "modifiedAt",
        "softDeletedAt",
    }  # fmt: skip
    etag = reply.headers["etag"]
    stale = api.ask("PUT", f"/bundles/{id}", {"slug": "mine"}, {"If-Match": '"somebody-elses"'})
    assert stale.status == 412
    assert api.ask("PUT", f"/bundles/{id}", {"slug": "mine"}, {"If-Match": etag}).status == 200


def test_patch_bundle_toggles_the_enabled_flag_and_nothing_else(api):
    id = api.bundle("toggled")
    assert api.ask("PATCH", f"/bundles/{id}", {"isEnabled": False}).json["isEnabled"] is False
    for wrong in ({"slug": "x"}, {"isEnabled": False, "slug": "x"}, {}, {"isEnabled": 1}):
        assert api.ask("PATCH", f"/bundles/{id}", wrong).status == 400, wrong
    assert api.ask("PATCH", f"/bundles/{UNKNOWN}", {"isEnabled": True}).status == 404


def test_delete_bundle_soft_deletes(api):
    id = api.bundle("deleted")
    tool = api.made(id, **ADD)
    assert code(api.ask("DELETE", f"/bundles/{id}"))[0] == 409, "it has tools"
    assert api.ask("DELETE", place(id)).status == 204
    assert api.ask("DELETE", f"/bundles/{id}").status == 204
    assert id not in [one["id"] for one in api.ask("GET", "/bundles", pageSize=1000).json["bundles"]]
    (gone,) = api.ask("GET", "/bundles", bundleIDs=id, includeDisabled="true").json["bundles"]
    assert gone["softDeletedAt"]
    assert api.put(id, **ADD).status == 403
    assert api.ask("PUT", f"/bundles/{id}", {"slug": "deleted"}).json["softDeletedAt"] is None
    assert api.made(id, **ADD)["id"] != tool["id"]


def test_get_bundles_in_pages(api):
    ids = [api.bundle(f"page-{number}") for number in range(5)]
    found, token = [], None
    while True:
        query = {"bundleIDs": ids, "pageSize": 2} | ({"pageToken": token} if token else {})
        page = api.ask("GET", "/bundles", **query).json
        found += [one["id"] for one in page["bundles"]]
        assert len(page["bundles"]) <= 2
        if not (token := page.get("nextPageToken")):
            break
    assert found == sorted(ids)
    assert [one["id"] for one in api.ask("GET", "/bundles", bundleIDs=",".join(ids[:2])).json["bundles"]] == ids[:2]


def test_page_tokens_are_opaque_tied_to_their_query_and_tamper_evident(api):
    bundle = api.bundle("tokens")
    for number in range(3):
        api.made(bundle, f"t{number}", **ADD)
    token = api.ask("GET", "/tools", bundleIDs=bundle, recommendedPageSize=1).json["nextPageToken"]
    assert api.ask("GET", "/tools", bundleIDs=bundle, recommendedPageSize=1, pageToken=token).status == 200
    other = "A" if token[len(token) // 2] != "A" else "B"
    tampered = token[: len(token) // 2] + other + token[len(token) // 2 + 1 :]
    for wrong in (tampered, token[:-2], "x", ""):
        assert api.ask("GET", "/tools", bundleIDs=bundle, pageToken=wrong).status == 400, wrong
    assert api.ask("GET", "/tools", pageToken=token).status == 400, "another query"
    assert api.ask("GET", "/bundles", pageToken=token).status == 400, "another list"


def test_put_tool_with_an_existing_slug_and_version_is_a_conflict_and_leaves_it_unchanged(api):
    bundle = api.bundle("conflicts")
    api.made(bundle, **ADD)
    before = api.get(bundle).json
    assert code(api.put(bundle, **ADD | {"description": "mine"})) == (409, "exists")
    assert api.get(bundle).json == before


def test_patch_tool_only_enables_and_disables(api):
    bundle = api.bundle("switches")
    api.made(bundle, **ADD)
    assert api.ask("PATCH", place(bundle), {"isEnabled": False}).json["isEnabled"] is False
    assert api.invoke(bundle, a=1).status == 403
    assert api.ask("PATCH", place(bundle), {"description": "x"}).status == 400
    assert api.ask("PATCH", place(bundle), {"isEnabled": True}).status == 200
    assert api.invoke(bundle, a=1).json == {"ok": True, "value": 2}


def test_delete_tool_hard_deletes(api):
    bundle = api.bundle("hard")
    api.made(bundle, **ADD)
    assert len(list(api.folder.glob("state/bundles/hard-*/tools/*.json"))) == 1
    assert api.ask("DELETE", place(bundle)).status == 204
    assert list(api.folder.glob("state/bundles/hard-*/tools/*.json")) == []
    assert api.get(bundle).status == 404
    assert api.ask("DELETE", place(bundle)).status == 404


def test_get_tool_gives_back_what_was_put(api):
    bundle = api.bundle("back")
    tool = {
        "displayName": "Forecast", "description": "…", "tags": ["weather"], "isEnabled": True, "type": "http",
        "argSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "outputSchema": {},
        "httpImpl": {
            "request": {
                "method": "GET", "urlTemplate": "https://api.example.com/v1/${city}", "query": {"k": "${API_KEY}"},
                "headers": {}, "body": None, "auth": {"type": "bearer", "value": "${TOKEN}"}, "timeoutMs": 10000,
                "retries": 2,
            },
            "response": {"successCodes": [200], "encoding": "json", "selector": "daily[0]", "errorMode": "fail"},
        },
        "limits": {"maxCallsPerMinute": 60, "maxResponseBytes": 4194304},
    }  # fmt: skip
    api.made(bundle, **tool)
    got = api.get(bundle).json
    assert {key: got[key] for key in tool} == tool
    added = {"id", "slug", "version", "isBuiltIn", "createdAt", "modifiedAt", "schemaVersion"}
    assert added <= set(got)
    assert (got["slug"], got["version"], got["isBuiltIn"]) == ("forecast", "1", False)


def test_get_tools_lists_globally_by_tags_and_bundles(api):
    one, other = api.bundle("list-one"), api.bundle("list-other")
    api.made(one, "a", **ADD | {"tags": ["red"]})
    api.made(one, "b", **ADD | {"tags": ["blue"]})
    api.made(other, "c", **ADD | {"tags": ["red", "blue"], "isEnabled": False})

    def slugs(**query):
        return [tool["slug"] for tool in api.ask("GET", "/tools", bundleIDs=[one, other], **query).json["tools"]]

    assert slugs() == ["a", "b"]
    assert slugs(includeDisabled="true") == ["a", "b", "c"]
    assert slugs(tags="red") == ["a"]
    assert slugs(tags=["red", "blue"]) == slugs(tags="red,blue") == ["a", "b"]
    assert slugs(tags="none") == []
    assert api.ask("GET", "/tools", tag="red").status == 400


# Behavioral rules


def test_go_is_another_word_for_python_and_given_back_as_it_was_stored(api):
    bundle = api.bundle("go")
    tool = {key: value for key, value in ADD.items() if key != "pythonImpl"}
    api.made(bundle, **tool | {"type": "go", "goImpl": {"func": "sums.add"}})
    assert api.get(bundle).json["type"] == "go"
    assert api.get(bundle).json["goImpl"] == {"func": "sums.add"}
    assert api.invoke(bundle, a=4).json == {"ok": True, "value": 5}


def test_built_in_bundles_can_only_be_switched(api):
    read_only = [one for one in api.ask("GET", "/bundles", pageSize=1000).json["bundles"] if one["isBuiltIn"]]
    built_in = [one for one in read_only if "source" not in one]
    assert {one["slug"] for one in built_in} == BUILT_IN_PACKS
    (time_,) = [one for one in built_in if one["slug"] == "time"]
    assert UUID7.fullmatch(time_["id"])
    url = f"/bundles/{time_['id']}"
    assert code(api.ask("PUT", url, {"slug": "time"})) == (403, "built_in")
    assert code(api.ask("DELETE", url)) == (403, "built_in")
    assert code(api.ask("PATCH", url, {"slug": "x"})) == (403, "built_in")
    assert code(api.put(time_["id"], "more", **ADD)) == (403, "built_in")
    assert code(api.ask("DELETE", place(time_["id"], "now"))) == (403, "built_in")
    assert code(api.put(time_["id"], "now", "1", **ADD))[0] in (403, 409)
    assert api.ask("GET", place(time_["id"], "now")).json["isBuiltIn"] is True
    assert api.invoke(time_["id"], "now").json["ok"] is True
    try:
        assert api.ask("PATCH", url, {"isEnabled": False}).json["isEnabled"] is False
        assert api.invoke(time_["id"], "now").status == 403
        assert "time" not in [one["slug"] for one in api.ask("GET", "/bundles", pageSize=1000).json["bundles"]]
    finally:
        assert api.ask("PATCH", url, {"isEnabled": True}).status == 200
    assert api.invoke(time_["id"], "now").json["ok"] is True


def test_packs_are_read_only_bundles_too(api):
    (pack,) = [one for one in api.ask("GET", "/bundles", pageSize=1000).json["bundles"] if one["slug"] == "sums"]
    assert UUID7.fullmatch(pack["id"])
    assert (pack["isBuiltIn"], pack["source"]) == (True, {"kind": "pack", "name": "sums"})
    tool = api.ask("GET", place(pack["id"], "add", "1")).json
    assert (tool["slug"], tool["version"], tool["isBuiltIn"]) == ("add", "1", True)
    assert api.ask("GET", "/tools/search", q="sums add").json["tools"][0]["id"] == tool["id"]
    assert api.invoke(pack["id"], "add", a=4).json == {"ok": True, "value": 5}
    assert code(api.ask("DELETE", place(pack["id"], "add", "1"))) == (403, "built_in")
    try:
        assert api.ask("PATCH", f"/bundles/{pack['id']}", {"isEnabled": False}).json["isEnabled"] is False
        assert code(api.invoke(pack["id"], "add", a=4)) == (403, "disabled")
    finally:
        assert api.ask("PATCH", f"/bundles/{pack['id']}", {"isEnabled": True}).status == 200


def test_built_in_tools_are_slugs_with_dashes_in_version_1(api):
    found = api.ask("GET", "/tools/search", q="read-file").json["tools"]
    (tool,) = [one for one in found if one["isBuiltIn"] and one["slug"] == "read-file"]
    assert (tool["version"], tool["type"], tool["pythonImpl"]) == ("1", "python", {"func": "fs.read_file"})


def test_search_ranks_prefix_then_whole_word_then_fuzzy_then_recency(api):
    bundle = api.bundle("ranking")

    def tool(slug, description):
        api.made(bundle, slug, **ADD | {"displayName": slug, "description": description})
        time.sleep(0.003)

    tool("quolka", "one letter is another one")
    tool("second", "about the quokka and its life")
    tool("first", "also about the quokka and its life")
    tool("quokka-facts", "about animals")
    tool("zebras", "about other animals")
    found = [one["slug"] for one in api.ask("GET", "/tools/search", q="quokka").json["tools"]]
    assert found == ["quokka-facts", "first", "second", "quolka"], "of two alike the newer one is first"
    everything = api.ask("GET", "/tools/search", q="", pageSize=3).json["tools"]
    assert [one["slug"] for one in everything] == ["zebras", "quokka-facts", "first"], "only recency is left"


def test_disabled_rows_are_excluded_unless_asked_for(api):
    bundle = api.bundle("hidden-rows")
    api.made(bundle, "wombat", **ADD | {"displayName": "wombat", "isEnabled": False})
    assert api.ask("GET", "/tools/search", q="wombat").json["tools"] == []
    (found,) = api.ask("GET", "/tools/search", q="wombat", includeDisabled="true").json["tools"]
    assert found["slug"] == "wombat"
    api.ask("PATCH", place(bundle, "wombat"), {"isEnabled": True})
    api.ask("PATCH", f"/bundles/{bundle}", {"isEnabled": False})
    assert api.ask("GET", "/tools/search", q="wombat").json["tools"] == [], "its bundle is off"


def test_a_soft_deleted_bundle_is_reaped_after_two_days_if_still_empty(tmp_path):
    now = [1_790_000_000.0]
    store = folder_store(tmp_path / "bundles", now=lambda: now[0])
    id = new_id(now[0])
    store.put_bundle(id, BundleContent(slug="old"))
    store.delete_bundle(id)
    now[0] += 2 * 86400 - 10
    assert store.reap() == []
    now[0] += 20
    assert store.reap() == [id]
    assert store.bundles(ListQuery(include_disabled=True)) == []
    assert list(tmp_path.glob("bundles/old*")) == []
    store.close()


def test_put_and_patch_inside_a_disabled_bundle_are_refused_and_get_and_delete_work(api):
    bundle = api.bundle("off")
    api.made(bundle, **ADD)
    api.ask("PATCH", f"/bundles/{bundle}", {"isEnabled": False})
    assert code(api.put(bundle, "new", **ADD))[0] == 403
    assert code(api.ask("PATCH", place(bundle), {"isEnabled": False}))[0] == 403
    assert code(api.invoke(bundle, a=1))[0] == 403
    assert api.get(bundle).status == 200
    assert api.ask("DELETE", place(bundle)).status == 204


def test_args_are_validated_against_arg_schema_before_anything_runs(api):
    bundle = api.bundle("args")
    api.made(bundle, **ADD)
    reply = api.invoke(bundle, a="one")
    assert reply.status == 400
    assert reply.json["pointer"] == "/args/a"
    assert api.invoke(bundle).status == 400
    assert api.invoke(bundle, a=1, c=2).status == 400, "an unknown argument"
    api.made(bundle, "web", **api.http("/x", {"n": {"type": "integer"}}, ["n"]))
    assert api.invoke(bundle, "web", n="x").status == 400
    assert api.upstream.seen == []


def test_a_registered_function_is_called_and_what_it_raises_is_a_failed_result(api):
    bundle = api.bundle("functions")
    api.made(bundle, **ADD)
    assert api.invoke(bundle, a=41).json == {"ok": True, "value": 42}
    schema = {"type": "object", "properties": {"why": {"type": "string"}}, "required": ["why"]}
    api.made(bundle, "fail", type="python", argSchema=schema, pythonImpl={"func": "sums.fail"})
    reply = api.invoke(bundle, "fail", why="too wet")
    assert reply.status == 200
    assert reply.json["ok"] is False
    assert reply.json["error"]["code"] == "execution_error"
    assert "too wet" in reply.json["error"]["message"]
    unknown = api.put(bundle, "typo", type="python", argSchema=schema, pythonImpl={"func": "sums.fial"})
    assert unknown.status == 400
    assert "sums.fail" in unknown.json["detail"]


def test_http_requests_are_built_from_templates_and_run_with_retry_and_backoff(api):
    bundle = api.bundle("retries")
    tool = api.http(
        "/v/${a}", {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "array"}}, ["a"],
        method="PUT", query={"b": "${b}", "c": "${c}"}, headers={"X-A": "<${a}>"}, body={"n": "${b}", "s": "b=${b}"},
        retries=2,
    )  # fmt: skip
    api.made(bundle, **tool)
    api.upstream.say(Answer(503), Answer(429, {"Retry-After": "0"}), Answer(headers=JSON, body=b'{"n": 1}'))
    assert api.invoke(bundle, a="x", b=7, c=["p", "q"]).json == {"ok": True, "value": {"n": 1}}
    assert len(api.upstream.seen) == 3
    seen = api.upstream.seen[-1]
    assert (seen.method, seen.target) == ("PUT", "/v/x?b=7&c=p&c=q")
    assert seen.headers["x-a"] == "<x>"
    assert json.loads(seen.body) == {"n": 7, "s": "b=7"}
    api.upstream.say(Answer(500, body=b"no luck"))
    api.made(bundle, "once", **api.http("/y", method="POST", retries=3))
    failed = api.invoke(bundle, "once").json
    assert failed["ok"] is False
    assert "500" in failed["error"]["message"]
    assert len(api.upstream.seen) == 4, "a POST is not repeated"


def test_the_response_is_parsed_selected_and_validated_against_output_schema(api):
    bundle = api.bundle("responses")
    api.upstream.say(Answer(headers=JSON, body=b'{"daily": [{"c": 21}, {"c": 3}]}'))
    tool = api.http("/x", response={"selector": "daily[0].c"}) | {"outputSchema": {"type": "integer"}}
    api.made(bundle, **tool)
    assert api.invoke(bundle).json == {"ok": True, "value": 21}
    api.upstream.say(Answer(headers=JSON, body=b'{"daily": [{"c": "warm"}]}'))
    reply = api.invoke(bundle)
    assert reply.status == 200
    assert (reply.json["ok"], reply.json["error"]["reason"]) == (False, "output_invalid")


def test_usage_metrics_are_updated_asynchronously_and_live_apart(api):
    bundle = api.bundle("usage")
    api.made(bundle, **ADD)
    (file,) = api.folder.glob("state/bundles/usage-*/tools/*.json")
    before = file.read_bytes()
    for _ in range(3):
        api.invoke(bundle, a=1)
    got = until(lambda: (one := api.get(bundle).json)["callCount"] == 3 and one)
    assert got["lastCalledAt"]
    assert file.read_bytes() == before


def test_a_tool_whose_function_vanishes_shows_as_disabled_and_comes_back(tmp_path):
    pack = tmp_path / "packs" / "sums.py"
    pack.parent.mkdir()
    pack.write_text("def add(a: int) -> int:\n    return a + 1\n")
    (tmp_path / "onetool.yaml").write_text("packs: [packs]\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        id = new_id(time.time())
        app.bundles.put_bundle(id, {"slug": "mine"})
        app.bundles.put_tool(id, "add", "1", ADD)
        (file,) = tmp_path.glob("bundles/mine-*/tools/*.json")
        before = file.read_bytes()
        pack.unlink()
        app.reload()
        tool, _ = app.bundles.get_tool(id, "add", "1")
        assert tool["isEnabled"] is False
        assert "sums.add" in tool["disabledReason"]
        assert app.bundles.tools(ListQuery(bundle_ids=[id]))[0] == []
        with pytest.raises(ForbiddenError):
            asyncio.run(app.bundles.invoke(id, "add", "1", {"a": 1}))
        pack.write_text("def add(a: int) -> int:\n    return a + 2\n")
        app.reload()
        assert asyncio.run(app.bundles.invoke(id, "add", "1", {"a": 1})).data == 3
        assert file.read_bytes() == before


# Non-functional requirements


def test_storage_is_flat_files_of_json_that_are_picked_up_when_edited_by_hand(api):
    bundle = api.bundle("by-hand")
    api.made(bundle, **ADD)
    (file,) = api.folder.glob("state/bundles/by-hand-*/tools/*.json")
    assert file.name.startswith("forecast")
    written = json.loads(file.read_text())
    assert (written["slug"], written["version"]) == ("forecast", "1")
    edit(file, written | {"description": "edited by hand"})
    # A look that was slow, as on a full machine, is followed by a long pause.
    until(lambda: api.get(bundle).json["description"] == "edited by hand", within=90)
    file.write_text('{"half": ')
    until(lambda: api.get(bundle).status == 404)
    assert api.ask("GET", "/bundles", bundleIDs=bundle).json["bundles"], "everything else is served"
    edit(file, written)
    until(lambda: api.get(bundle).status == 200)


def test_the_same_rules_hold_through_the_python_api(tmp_path):
    (tmp_path / "onetool.yaml").write_text("{}\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        id = new_id(time.time())
        app.bundles.put_bundle(id, {"slug": "mine"})
        echo = ADD | {
            "argSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
            "pythonImpl": {"func": "tools.echo"},
            "outputSchema": {},
        }
        app.bundles.put_tool(id, "say-it", "1", echo)
        with pytest.raises(ConflictError):
            app.bundles.put_tool(id, "say-it", "1", echo)
        app.bundles.put_tool(id, "say-it", "2", echo | {"isEnabled": False})
        assert asyncio.run(app.call(ToolCall("1", "mine.say_it", {"message": "hi"}))).data == "hi"
        assert asyncio.run(app.run('mine.say_it(message="ho")')).data == "ho"
        assert asyncio.run(app.run('ot.call("mine.say_it@1", {"message": "one"})')).data == "one"
        assert asyncio.run(app.call(ToolCall("1", "mine.say_it@2", {"message": "hi"}))).error.reason == "denied"
        app.bundles.patch_bundle(id, {"isEnabled": False})
        assert asyncio.run(app.call(ToolCall("1", "mine.say_it", {"message": "hi"}))).error.reason == "denied"


# Pending / future


def test_hmac_signs_what_is_sent(api):
    bundle = api.bundle("hmac")
    auth = {"type": "hmac", "secret": "${WEATHER_TOKEN}", "payload": "{method}\n{path}\n{body}", "header": "X-Sign"}
    api.made(bundle, **api.http("/signed", method="POST", body={"a": 1}, auth=auth))
    assert api.invoke(bundle).json["ok"] is True
    (seen,) = api.upstream.seen
    signed = f"POST\n/signed\n{seen.body.decode()}".encode()
    assert seen.headers["x-sign"] == hmac.new(TOKEN.encode(), signed, hashlib.sha256).hexdigest()


def test_oauth2_tokens_are_fetched_kept_and_refreshed(api):
    bundle = api.bundle("oauth")
    tokens = iter("abc")

    def answer(seen):
        if seen.target == "/token":
            return Answer(headers=JSON, body=json.dumps({"access_token": next(tokens), "expires_in": 3600}).encode())
        return Answer(
            401 if seen.headers["authorization"] == "Bearer a" and len(api.upstream.seen) > 3 else 200, JSON, b"1"
        )

    api.upstream.say(answer)
    auth = {
        "type": "oauth2", "tokenUrl": f"{api.upstream.url}/token", "clientId": "me", "clientSecret": "${WEATHER_TOKEN}",
    }  # fmt: skip
    api.made(bundle, **api.http("/data", auth=auth))
    for _ in range(3):
        assert api.invoke(bundle).json == {"ok": True, "value": 1}
    assert [seen.target for seen in api.upstream.seen] == ["/token", "/data", "/data", "/data", "/token", "/data"]
    assert api.upstream.seen[-1].headers["authorization"] == "Bearer b"


def test_limits_of_bytes_sent_and_received(api):
    bundle = api.bundle("limits")
    text = {"s": {"type": "string"}}
    limits = {"maxRequestBytes": 100, "maxResponseBytes": 50}
    api.made(bundle, **api.http("/x", text, method="POST", body={"s": "${s}"}, limits=limits))
    assert api.invoke(bundle, s="short").json["ok"] is True
    assert api.invoke(bundle, s="x" * 200).json["error"]["reason"] == "too_large"
    assert len(api.upstream.seen) == 1
    api.upstream.say(Answer(headers=JSON, body=b'"' + b"x" * 100 + b'"'))
    assert api.invoke(bundle, s="short").json["error"]["reason"] == "too_large"


def test_rate_limiting_per_tool(api):
    bundle = api.bundle("rates")
    api.made(bundle, **ADD | {"limits": {"maxCallsPerMinute": 2}})
    assert [api.invoke(bundle, a=1).status for _ in range(2)] == [200, 200]
    reply = api.invoke(bundle, a=1)
    assert code(reply) == (429, "rate_limited")
    assert 0 < int(reply.headers["retry-after"]) <= 60


def test_a_limit_says_how_much_is_left_and_outlives_delete_and_put(api):
    bundle = api.bundle("left")
    tool = ADD | {"limits": {"maxCallsPerMinute": 3}}
    api.made(bundle, **tool)
    assert api.invoke(bundle, a=1).status == 200
    streamed = api.invoke(bundle, headers={"Accept": "text/event-stream"}, a=1)
    assert b'"rate_limit":{"limit":3,"remaining":1,' in streamed.body
    assert api.ask("DELETE", place(bundle)).status == 204
    api.made(bundle, **tool)
    assert api.invoke(bundle, a=1).status == 200
    refused = api.invoke(bundle, a=1)
    assert (refused.status, "retry-after" in refused.headers) == (429, True)


def test_streaming_outputs_are_passed_on_as_they_come(api):
    bundle = api.bundle("streams")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    api.upstream.say([head, b"data: one\n\n", 0.05, b"data: two\n\n", CLOSE])
    api.made(bundle, **api.http("/stream", response={"encoding": "sse"}))
    reply = api.invoke(bundle, headers={"Accept": "text/event-stream"})
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = [block.split("\n") for block in reply.body.decode().strip().split("\n\n")]
    kinds = [line for block in events for line in block if line.startswith("event:")]
    assert kinds == ["event: chunk", "event: chunk", "event: result"]
    result = json.loads(events[-1][1].removeprefix("data: "))
    assert result.pop("meta")["upstream"]["status"] == 200
    assert result == {"ok": True, "value": ["one", "two"]}


def test_multi_step_tools_are_scripts(api):
    bundle = api.bundle("steps")
    api.made(bundle, "fetch", **api.http("/${city}", {"city": {"type": "string"}}, ["city"]))
    script = {
        "type": "script",
        "argSchema": {"type": "object", "properties": {"cities": {"type": "array"}, "n": {"default": 2}}},
        "scriptImpl": {"code": "{c: steps.fetch(city=c)['sky'] for c in cities[:n]}"},
    }
    api.made(bundle, "all", **script)
    assert api.invoke(bundle, "all", cities=["a", "b", "c"]).json == {"ok": True, "value": {"a": "clear", "b": "clear"}}
    for wrong in ("steps.fetsh(city=1)", "1 +", "steps.fetch(town='x')"):
        reply = api.put(bundle, "bad", **script | {"scriptImpl": {"code": wrong}})
        assert (reply.status, reply.json["pointer"]) == (400, "/scriptImpl/code"), wrong


def test_export_and_import_as_zip(tmp_path):
    store = folder_store(tmp_path / "bundles")
    id = new_id(time.time())
    store.put_bundle(id, BundleContent(slug="shared"))
    store.put_tool(id, "add", "1", read_tool(ADD, "add", "1"))
    data = pack(store.bundle(id), store.tools(ListQuery(bundle_ids=[id], include_disabled=True)))
    assert any(name.endswith("bundle.json") for name in ZipFile(BytesIO(data)).namelist())
    again = unpack(data)
    other = folder_store(tmp_path / "others")
    other.put_all(again.bundle, again.tools)
    assert other.tool(id, "add", "1") == store.tool(id, "add", "1")
    store.close()
    other.close()


# Several requests in one tool


def several(api, *steps, properties=None, **more):
    """A tool of these steps: (name, path, more of the request, more of the step)."""
    made = [
        {"name": name, "request": {"urlTemplate": api.upstream.url + path, **request}, **step}
        for name, path, request, step in steps
    ]
    schema = {"type": "object", "properties": properties or {}}
    return {"type": "http", "argSchema": schema, "httpImpl": {"requests": made}, **more}


def test_one_or_many_outbound_rest_calls(api):
    bundle = api.bundle("many")
    tool = several(
        api,
        ("login", "/login", {"method": "POST", "body": {"key": "${WEATHER_TOKEN}"}}, {}),
        ("find", "/find", {"query": {"q": "${city}"}, "auth": {"type": "bearer", "value": "${steps.login.t}"}}, {}),
        ("get", "/places/${steps.find.id}", {}, {"response": {"selector": "sky"}}),
        properties={"city": {"type": "string"}},
        limits={"maxCallsPerMinute": 2},
    )
    made = api.made(bundle, **tool)
    assert made["httpImpl"] == api.get(bundle).json["httpImpl"] == tool["httpImpl"]
    api.upstream.say(
        Answer(body=b'{"t": "session-1234"}'), Answer(body=b'{"id": "a/b"}'), Answer(body=b'{"sky": "clear"}')
    )
    assert api.invoke(bundle, city="x&y").json == {"ok": True, "value": "clear"}
    assert [seen.target for seen in api.upstream.seen] == ["/login", "/find?q=x%26y", "/places/a%2Fb"]
    assert api.upstream.seen[1].headers["authorization"] == "Bearer session-1234"
    assert TOKEN.encode() in api.upstream.seen[0].raw
    api.upstream.say(Answer(body=b'{"t": "session-1234"}'), Answer(403, body=b"session-1234 may not"))
    failed = api.invoke(bundle, city="x").json["error"]
    assert (failed["code"], failed["reason"]) == ("execution_error", "upstream_error")
    assert re.fullmatch(r"step `find` failed: .*403.*\*\*\* may not; done: `login`", failed["message"])
    assert api.invoke(bundle, city="x").status == 429  # one call is one call, whatever it sends


@pytest.mark.parametrize(
    ("change", "pointer", "words"),
    [
        ({"request": {"urlTemplate": "https://x.example/"}}, "/httpImpl", "requests"),
        ({"response": {"encoding": "text"}}, "/httpImpl", "requests"),
        ({"requests": []}, "/httpImpl/requests", ""),
        ({"requests": None}, "/httpImpl", "`request`"),
        ({"requests": [{"name": "no-name", "request": {}}]}, "/httpImpl/requests/0/name", ""),
    ],
)
def test_a_tool_has_request_or_requests(api, change, pointer, words):
    tool = several(api, ("a", "/a", {}, {}))
    reply = api.put(api.bundle("either"), **tool | {"httpImpl": tool["httpImpl"] | change})
    assert (code(reply), reply.json["pointer"]) == ((400, "invalid"), pointer)
    assert words in reply.json["detail"]


def test_a_step_names_earlier_ones_alone_and_is_in_no_host(api):
    bundle = api.bundle("earlier")
    for path, words in (
        ("/${steps.frist.id}", "did you mean first"),
        ("/${steps.last.id}", "no value yet"),
        ("/${steps.second}", "no value yet"),
        (".${steps.first}/x", "host"),
    ):
        reply = api.put(bundle, **several(api, ("first", "", {}, {}), ("second", path, {}, {}), ("last", "", {}, {})))
        assert (code(reply)[0], reply.json["pointer"]) == (400, "/httpImpl/requests/1/request/urlTemplate"), path
        assert words in reply.json["detail"], path
    reply = api.put(bundle, **several(api, ("first", "/", {}, {}), properties={"steps": {"type": "integer"}}))
    assert (code(reply)[0], reply.json["pointer"]) == (400, "/httpImpl/requests")
    assert "another name" in reply.json["detail"]


def test_the_last_of_several_requests_is_streamed(api):
    events = Answer(headers={"Content-Type": "text/event-stream"}, body=b"data: one\n\ndata: two\n\n")
    api.upstream.say(Answer(headers=JSON, body=b'{"id": 1}'), events)
    bundle = api.bundle("several-streamed")
    api.made(bundle, **several(api, ("a", "/a", {}, {}), ("b", "/b", {}, {"response": {"encoding": "sse"}})))
    reply = api.invoke(bundle, headers={"Accept": "text/event-stream"})
    assert reply.body.count(b"event: chunk") == 2
    assert b'"value":["one","two"]' in reply.body.replace(b" ", b"")


# Pre-processors


def test_pre_processors_change_the_arguments_before_validation(api):
    bundle = api.bundle("prepared")
    steps = [{"type": "script", "code": "args['a'] = int(args.pop('text'))\nargs"}]
    made = api.made(bundle, "add", **ADD, preProcessors=steps)
    assert made["preProcessors"] == api.get(bundle, "add").json["preProcessors"] == steps
    assert api.invoke(bundle, "add", text="41").json == {"ok": True, "value": 42}
    reply = api.invoke(bundle, "add", text="no number")
    assert code(reply) == (400, "invalid_args")
    assert "preProcessors[0]: line 1: ValueError" in reply.json["detail"]
    assert reply.json["pointer"] == "/args"
    reply = api.invoke(bundle, "add", text="1", b=2)
    assert (code(reply), reply.json["pointer"]) == ((400, "invalid_args"), "/args/b")
    http = api.http("/v1/${city}", {"city": {"type": "string"}}, ["city"])
    api.made(bundle, "get", **http, preProcessors=[{"type": "script", "code": "{'city': args['town'].title()}"}])
    assert api.invoke(bundle, "get", town="rome").json["ok"] is True
    assert api.upstream.seen[0].target == "/v1/Rome"
    assert HttpPeer(api.server, "new").text("run", {"code": "prepared.add(text='41')"}) == "42"
    direct = HttpPeer(api.server, "new", query="?menu=direct")
    assert direct.text("prepared__add", {"text": "41"}) == "42"


@pytest.mark.parametrize(
    ("steps", "pointer", "words"),
    [
        ([{"type": "scripts", "code": "args"}], "/preProcessors/0/type", "did you mean script"),
        ([{"type": "script", "code": "args +"}], "/preProcessors/0/code", "line 1"),
        (
            [{"type": "script", "code": "args"}, {"type": "script", "code": "sums.lie()"}],
            "/preProcessors/1/code",
            "",
        ),
        ({"type": "script", "code": "args"}, "/preProcessors", "a list of objects"),
        (["args"], "/preProcessors/0", "object"),
    ],
)
def test_pre_processors_are_checked_when_they_are_put(api, steps, pointer, words):
    reply = api.put(api.bundle("unprepared"), **ADD, preProcessors=steps)
    assert (code(reply), reply.json["pointer"]) == ((400, "invalid"), pointer)
    assert words in reply.json["detail"]


def test_modified_at_is_the_last_change_of_body_tags_or_pre_processors(api):
    bundle = api.bundle("prepared-edited")
    api.made(bundle, "add", **ADD, preProcessors=[{"type": "script", "code": "args"}])
    [file] = api.folder.glob("**/bundles/prepared-edited-*/tools/*.json")
    before = api.get(bundle, "add").json
    data = json.loads(file.read_text())
    until(lambda: time.time() > os.stat(file).st_mtime + 0.05)
    edit(file, {**data, "preProcessors": [{"type": "script", "code": "{'a': 5}"}]})
    until(lambda: api.get(bundle, "add").json["preProcessors"][0]["code"] == "{'a': 5}")
    assert api.get(bundle, "add").json["modifiedAt"] > before["modifiedAt"]
    assert api.invoke(bundle, "add").json == {"ok": True, "value": 6}


# Secrets


def test_secrets_are_in_no_answer_and_in_no_file(api):
    bundle = api.bundle("secrets")
    api.upstream.say(lambda seen: Answer(500, body=seen.raw))
    api.made(
        bundle,
        **api.http("/x", headers={"X-Key": "${WEATHER_TOKEN}"}, auth={"type": "bearer", "value": "${WEATHER_TOKEN}"}),
    )
    reply = api.invoke(bundle)
    assert reply.json["ok"] is False
    assert TOKEN not in reply.body.decode()
    assert TOKEN in api.upstream.seen[0].raw.decode()
    for file in api.folder.glob("state/**/*"):
        if file.is_file():
            assert TOKEN.encode() not in file.read_bytes(), file


def test_a_tool_of_a_function_is_what_the_function_is_where_it_says_nothing_itself(tmp_path):
    (tmp_path / "sums.py").write_text(PACK)
    (tmp_path / "onetool.yaml").write_text("packs: [sums.py]")
    bare = {"type": "python", "pythonImpl": {"func": "sums.add"}}
    own = {"description": "My own.", "argSchema": ADD["argSchema"], "outputSchema": {"type": "string"}}
    with App.open(tmp_path / "onetool.yaml") as app:
        bundle = new_id(1_790_000_000)
        app.bundles.put_bundle(bundle, {"slug": "standing"})
        app.bundles.put_tool(bundle, "bare", "1", bare)
        app.bundles.put_tool(bundle, "own", "1", {**bare, **own})
        app.bundles.put_tool(bundle, "lie", "1", {"type": "go", "goImpl": {"func": "sums.lie"}})
        for key in ("description", "inputSchema", "outputSchema"):
            assert app.info("standing.bare")[key] == app.info("sums.add")[key] != app.info("standing.own")[key], key
        assert app.info("standing.bare")["outputSchema"] is not None
        for name, reason in (("bare", None), ("own", "output_invalid"), ("lie", "output_invalid")):
            args = {} if name == "lie" else {"a": 1}
            result = asyncio.run(app.call(ToolCall("1", f"standing.{name}", args)))
            assert (result.data, result.error and result.error.reason) == (None if reason else 2, reason), name
        result = asyncio.run(app.bundles.invoke(bundle, "lie", "1", {}))
        assert result.error.reason == "output_invalid"
        assert app.bundles.get_tool(bundle, "bare", "1")[0]["outputSchema"] == {}  # it is kept as it was put
