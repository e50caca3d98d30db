"""Drafts: a tool, a bundle or arguments are checked, and nothing is stored or sent."""

import json

import pytest
from helpers import each
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


@each(
    ("schema", "pointer"),
    [
        ("text", "/argSchema"),
        ({"type": "array"}, "/argSchema/type"),
        ({**CITY, "type": "array"}, "/argSchema/type"),
        ({**CITY, "properties": []}, "/argSchema"),
        ({**CITY, "properties": {"city": 7}}, "/argSchema"),
        ({**CITY, "properties": {"city": {"type": "txt"}}}, "/argSchema"),
        ({**CITY, "properties": {"city": {"pattern": "("}}}, "/argSchema"),
    ],
)
def test_a_wrong_url_is_told_beside_a_wrong_schema(real, schema, pointer):
    wrong = {"request": {"urlTemplate": "ftp://example.com/${city}", "auth": {"type": "bearer", "value": "${TOKEN}"}}}
    found = validated(real, tool={**HTTP, "argSchema": schema, "httpImpl": wrong})
    assert pointers(found) == [pointer, "/httpImpl/request/urlTemplate"]
    right = {"request": {**wrong["request"], "urlTemplate": "https://example.com/${city}"}}
    assert pointers(validated(real, tool={**HTTP, "argSchema": schema, "httpImpl": right})) == [pointer]


def test_a_member_that_is_spelled_almost_like_the_schema_is_told(real):
    found = pointers(validated(real, tool={**HTTP, "argSchemas": 1, "argSchema": "text"}))
    assert set(found) == {"/argSchemas", "/argSchema"}


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
    host = {"host": "api.example.com", "command": "onetool hosts allow api.example.com"}
    assert real.ask("POST", f"{tool}/validate", {"args": good}).json() == {
        "ok": True, "errors": [], "warnings": [], "needs": [host]
    }  # fmt: skip
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


# What would be sent


SECRET = "sesame-open-0123456789"


def shown(api, tool, args):
    reply = api.ask("POST", "/tools/preview", {"tool": tool, "args": args})
    assert reply.status_code == 200, reply.text
    assert SECRET not in reply.text
    checker(api.get("/openapi.json").json(), "PreviewReport").validate(reply.json())
    return reply.json()


@pytest.fixture(scope="module")
def secretive(tmp_path_factory):
    """It knows a secret, and a host that nobody listens at: what is sent would fail."""
    home = tmp_path_factory.mktemp("home")
    home.joinpath("onetool.yaml").write_text(json.dumps({"allowedHosts": ["api.example.com"]}))
    home.joinpath("secrets.yaml").write_text(json.dumps({"OPEN": SECRET}))
    home.joinpath("secrets.yaml").chmod(0o600)
    api = Api(real=home, args=["--config", str(home / "onetool.yaml")])
    yield api
    assert api.stop() == 0


def http(auth=None, **request):
    url = {"urlTemplate": "https://api.example.com/v1/${city}?key=${OPEN}"}
    return {**HTTP, "httpImpl": {"request": {**url, **({"auth": auth} if auth else {}), **request}}}


def test_a_preview_shows_the_request_without_secrets(secretive):
    body = {"city": "${city}", "key": "${OPEN}"}
    tool = http(method="POST", headers={"X-Key": "k ${OPEN}"}, body=body)
    found = shown(secretive, tool, {"city": "São Paulo"})
    (request,) = found["requests"]
    assert (request["method"], request["url"]) == ("POST", "https://api.example.com/v1/S%C3%A3o%20Paulo?key=***")
    assert request["headers"]["X-Key"] == "k ***"
    assert request["headers"]["Content-Type"] == "application/json"
    assert json.loads(request["body"]) == {"city": "São Paulo", "key": "***"}
    assert "notes" not in request
    assert "errors" not in found


def test_a_preview_cuts_what_is_long(secretive):
    tool = http(method="POST", headers={"X-City": "${city}"}, body="${city}")
    (request,) = shown(secretive, tool, {"city": "x" * 70_000})["requests"]
    assert request["url"] == ("https://api.example.com/v1/" + "x" * 70_000)[:65_536]
    assert request["headers"]["X-City"] == request["body"] == "x" * 65_536
    ways = {"the URL": 70_035, "the header X-City": 70_000, "the body": 70_000}
    for what, size in ways.items():
        assert f"{what} has {size:,} characters, of which the first 65,536 are shown" in request["notes"]


@each(
    ("auth", "header", "value"),
    [
        ({"type": "bearer", "value": "${OPEN}"}, "Authorization", "Bearer ***"),
        ({"type": "basic", "username": "me", "password": "${OPEN}"}, "Authorization", "Basic ***"),
        ({"type": "apiKey", "name": "X-Api", "value": "${OPEN}"}, "X-Api", "***"),
        ({"type": "hmac", "secret": "${OPEN}", "header": "X-Sign"}, "X-Sign", "***"),
        (
            {"type": "oauth2", "tokenUrl": "https://api.example.com/t", "clientId": "me", "clientSecret": "${OPEN}"},
            "Authorization",
            "Bearer ***",
        ),
    ],
)
def test_what_logs_in_is_masked(secretive, auth, header, value):
    (request,) = shown(secretive, http(auth), {"city": "Oslo"})["requests"]
    assert request["headers"][header] == value


def test_what_would_keep_it_from_being_sent_is_a_note(secretive):
    tool = {**HTTP, "httpImpl": {"request": {"urlTemplate": "https://other.example.com/${city}?k=${NOT_SET}"}}}
    (request,) = shown(secretive, tool, {"city": "Oslo"})["requests"]
    assert request["url"] == "https://other.example.com/Oslo?k=***"
    assert any("NOT_SET" in note for note in request["notes"])
    assert any("other.example.com" in note for note in request["notes"])


def test_a_step_that_needs_an_answer_shows_where_it_goes(secretive):
    steps = [
        {"name": "find", "request": {"urlTemplate": "https://api.example.com/find?q=${city}"}},
        {
            "name": "read",
            "request": {"urlTemplate": "https://api.example.com/read/${steps.find.id}?key=${OPEN}"},
        },
    ]
    first, second = shown(secretive, {**HTTP, "httpImpl": {"requests": steps}}, {"city": "Oslo"})["requests"]
    assert (first["step"], first["url"]) == ("find", "https://api.example.com/find?q=Oslo")
    assert second["url"] == "https://api.example.com/read/${steps.find.id}?key=***"


def test_wrong_arguments_and_templates_are_errors(secretive):
    found = shown(secretive, http(), {"city": 1, "town": 2})
    assert found["requests"] == []
    assert {one["pointer"] for one in found["errors"]} == {"/args/city", "/args/town"}
    found = shown(secretive, http(method="GRAB"), {"city": "Oslo"})
    assert [one["pointer"] for one in found["errors"]] == ["/tool/httpImpl/request/method"]


def test_scripts_and_calls_are_shown(secretive):
    script = {"type": "script", "scriptImpl": {"code": "city * 2"}, "argSchema": CITY}
    assert shown(secretive, script, {"city": "Oslo"}) == {"code": "city = 'Oslo'\ncity * 2"}
    path = f"/tools/bundles/{built_in_id('tools')}/tools/echo/version/1"
    reply = secretive.ask("POST", f"{path}/preview", {"args": {"message": "hi"}})
    assert reply.json() == {"call": "tools.echo(message='hi')"}
    wrong = secretive.ask("POST", f"{path}/preview", {"args": {}}).json()
    assert (wrong["requests"], len(wrong["errors"])) == ([], 1)


def test_a_kept_tool_is_shown_and_not_called(secretive):
    bundle = secretive.bundle(slug="seen")
    tool = f"{bundle}/tools/weather/version/1"
    assert secretive.ask("PUT", tool, http({"type": "bearer", "value": "${OPEN}"})).status_code == 201
    reply = secretive.ask("POST", f"{tool}/preview", {"args": {"city": "Oslo"}})
    assert reply.json()["requests"][0]["url"] == "https://api.example.com/v1/Oslo?key=***"
    assert SECRET not in reply.text
    assert secretive.get(tool).json()["callCount"] == 0
    problem(secretive.ask("POST", f"{bundle}/tools/none/version/1/preview", {}), 404, "not_found")
