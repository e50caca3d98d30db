"""Drafts: a tool, a bundle or arguments are checked, and nothing is stored or sent."""

import pytest
from interfaces.rest.served import Api, problem
from interfaces.rest.test_openapi import checker

from onetool.sources.bundles.model import built_in_id

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
HTTP = {
    "type": "http",
    "argSchema": CITY,
    "httpImpl": {"request": {"urlTemplate": "https://api.example.com/v1/${city}"}},
}


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    api = Api(real=tmp_path_factory.mktemp("home"))
    yield api
    assert api.stop() == 0


def validated(api, status=200, **body):
    reply = api.ask("POST", "/tools/validate", body)
    assert reply.status_code == status, reply.text
    return reply.json()


def pointers(report):
    assert report["ok"] is not bool(report["errors"])
    return [one["pointer"] for one in report["errors"]]


def test_a_draft_that_is_right_is_ok_and_stored_nowhere(real):
    bundle = real.bundle(slug="drafts")
    place = {"bundleID": bundle.rpartition("/")[2], "slug": "weather", "version": "1"}
    found = validated(real, tool=HTTP, **place)
    assert (found["ok"], found["errors"]) == (True, [])
    assert [one["pointer"] for one in found["warnings"]] == ["/httpImpl"]
    assert "api.example.com" in found["warnings"][0]["message"]
    problem(real.get(f"{bundle}/tools/weather/version/1"), 404, "not_found")
    checker(real.get("/openapi.json").json(), "DraftReport").validate(found)


def test_all_mistakes_come_at_once(real):
    request = {"method": "GRAB", "urlTemplate": "ftp://example.com", "headers": {"X-A": "${city"}, "retrys": 1}
    tool = {**HTTP, "tags": "a", "colour": "red", "outputSchema": {"type": 1}, "httpImpl": {"request": request}}
    found = validated(real, tool={**tool, "limits": {"maxCallsPerMinute": -1}})
    assert set(pointers(found)) == {
        "/tags", "/colour", "/outputSchema", "/limits/maxCallsPerMinute", "/httpImpl/request/method",
        "/httpImpl/request/retrys", "/httpImpl/request/urlTemplate", "/httpImpl/request/headers/X-A",
    }  # fmt: skip
    message = {one["pointer"]: one["message"] for one in found["errors"]}
    assert "retries" in message["/httpImpl/request/retrys"]
    assert not message["/colour"].startswith("/")


def test_what_follows_from_a_mistake_is_none(real):
    assert pointers(validated(real, tool={**HTTP, "argSchema": {"type": "array"}})) == ["/argSchema/type"]
    assert pointers(validated(real, tool={"type": "http"})) == ["/httpImpl"]
    assert pointers(validated(real, tool={**HTTP, "type": "ftp"})) == ["/type"]
    assert pointers(validated(real, tool={})) == [""]


def test_a_script_and_a_function_are_checked_too(real):
    assert pointers(validated(real, tool={"type": "script", "scriptImpl": {"code": "nope.nope()"}})) == [
        "/scriptImpl/code"
    ]
    assert pointers(validated(real, tool={"type": "python", "pythonImpl": {"func": "time.nuw"}})) == [
        "/pythonImpl/func"
    ]


def test_a_place_that_is_taken_is_told(real):
    bundle = real.bundle(slug="taken")
    id = bundle.rpartition("/")[2]
    assert real.ask("PUT", f"{bundle}/tools/weather/version/1", HTTP).status_code == 201
    assert pointers(validated(real, tool=HTTP, bundleID=id, slug="weather", version="1")) == ["/version"]
    assert validated(real, tool=HTTP, bundleID=id, slug="weather", version="2")["ok"]
    assert pointers(validated(real, tool=HTTP, bundleID=real.new_id())) == ["/bundleID"]
    assert pointers(validated(real, tool=HTTP, bundleID=built_in_id("time"))) == ["/bundleID"]
    assert pointers(validated(real, tool=HTTP, slug="no slug")) == ["/slug"]


def test_a_bundle_is_checked(real):
    assert validated(real, bundle={"slug": "fine"})["ok"]
    found = validated(real, bundle={"slug": "not fine", "displayName": 1, "x": 2})
    assert set(pointers(found)) == {"/slug", "/displayName", "/x"}


def test_a_body_that_is_no_draft_is_refused(real):
    assert validated(real, 400)["code"] == "invalid"
    assert validated(real, 400, tool={}, bundle={})["code"] == "invalid"
    assert validated(real, 400, tol={})["pointer"] == "/tol"


def test_arguments_are_checked_and_nothing_is_called(real):
    bundle = real.bundle(slug="args")
    tool = f"{bundle}/tools/weather/version/1"
    assert real.ask("PUT", tool, HTTP).status_code == 201
    good, bad = ({"city": "Oslo"}, {"city": 1, "town": "Oslo"})
    assert real.ask("POST", f"{tool}/validate", {"args": good}).json() == {"ok": True, "errors": [], "warnings": []}
    assert set(pointers(real.ask("POST", f"{tool}/validate", {"args": bad}).json())) == {"/city", "/town"}
    assert real.ask("PATCH", tool, {"isEnabled": False}).status_code == 200
    assert real.ask("POST", f"{tool}/validate", {"args": good}).json()["ok"]
    assert real.get(tool).json()["callCount"] == 0
    problem(real.ask("POST", f"{bundle}/tools/none/version/1/validate", {}), 404, "not_found")


def test_arguments_are_those_that_pre_processors_make(real):
    def wrong(number, code):
        tool = f"{real.bundle(slug=f'prepared{number}')}/tools/weather/version/1"
        steps = [{"type": "script", "code": code}]
        assert real.ask("PUT", tool, {**HTTP, "preProcessors": steps}).status_code == 201
        return pointers(real.ask("POST", f"{tool}/validate", {"args": {"town": "Oslo"}}).json())

    assert wrong(1, "{'city': args['town']}") == []
    assert wrong(2, "{'city': 1}") == ["/city"]
    assert wrong(3, "args['nothing']") == [""]
