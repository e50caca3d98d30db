"""`onetool check` looks at every tool of every bundle."""

import json

import pytest
from helpers import cli

from onetool import App

MESSAGE = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}


def http(**request):
    return {"type": "http", "httpImpl": {"request": {"urlTemplate": "https://api.example.com/", **request}}}


@pytest.fixture
def put(tmp_path):
    """Write a tool's file by hand."""
    (tmp_path / "onetool.yaml").write_text("allowedHosts: [api.example.com]\n")
    folder = tmp_path / "bundles" / "mine"
    (folder / "tools").mkdir(parents=True)
    (folder / "bundle.json").write_text(json.dumps({"slug": "mine", "schemaVersion": "1"}))

    def put(slug, **tool):
        text = json.dumps({"slug": slug, "version": "1", "schemaVersion": "1", **tool})
        (folder / "tools" / f"{slug}@1.json").write_text(text)

    return put


def found(tmp_path):
    with App.open(tmp_path / "onetool.yaml") as app:
        return {(one.key, one.severity): str(one) for one in app.findings()}


def test_nothing_is_wrong(put, tmp_path):
    put("say", type="python", argSchema=MESSAGE, pythonImpl={"func": "tools.echo"})
    put("get", **http())
    put("two", type="script", scriptImpl={"code": "mine.say(message='x')"})
    assert found(tmp_path) == {}


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        (http(urlTemplate="ftp://x.y/"), "urlTemplate"),
        (http(urlTemplate="https://api.example.com/${x"), "urlTemplate"),
        (http(auth={"type": "hmac", "secret": "${S}", "payload": "{nonce}"}), "payload"),
        ({**http(), "httpImpl": {**http()["httpImpl"], "response": {"selector": "a[["}}}, "selector"),
        ({"type": "script", "scriptImpl": {"code": "foo.bar(1"}}, "code"),
        ({"type": "script", "scriptImpl": {"code": "brve.search(q='x')"}}, "brve"),
    ],
)
def test_what_can_never_run_is_an_error_with_its_file(put, tmp_path, tool, words):
    put("wrong", **tool)
    told = found(tmp_path)["bundles.mine/wrong@1", "error"]
    assert words in told
    assert "wrong@1.json" in told


def test_what_is_missing_is_a_warning(put, tmp_path):
    put("gone", type="python", pythonImpl={"func": "no.thing"})
    put("get", **http(urlTemplate="https://nope.example/", auth={"type": "bearer", "value": "${NOT_SET_ANYWHERE}"}))
    with App.open(tmp_path / "onetool.yaml") as app:
        told = [str(one) for one in app.findings()]
        assert all(one.severity == "warning" for one in app.findings())
    assert any("no.thing" in one for one in told)
    assert any("NOT_SET_ANYWHERE" in one and "onetool auth set" in one for one in told)
    assert any("nope.example" in one and "onetool hosts allow" in one for one in told)


@pytest.mark.attack("secrets")
def test_a_secret_that_is_not_bound_is_told_with_the_command_that_binds_it(put, tmp_path):
    put("get", **http(headers={"X-A": "${FREE} ${BOUND}"}))
    put("other", **http(urlTemplate="http://api.example.com/", query={"a": "${FREE}"}))
    put("unset", **http(query={"a": "${NOT_SET_ANYWHERE}"}))
    bound = "{value: bound-0123456789, hosts: [api.example.com]}"
    with (tmp_path / "onetool.yaml").open("a") as file:
        file.write(f"secrets: {{FREE: free-0123456789, BOUND: {bound}}}\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        [told] = [one for one in app.findings() if "not bound" in one.message]
    assert "uses the secret FREE" in told.message
    assert told.hint == "onetool auth set FREE --host api.example.com --host http://api.example.com"
    assert told.severity == "warning"


def test_a_credential_in_a_tool_is_told(put, tmp_path):
    put("get", **http(auth={"type": "bearer", "value": "literal"}))
    assert "${NAME}" in found(tmp_path)["bundles.mine/get@1", "warning"]


def test_the_command_tells_them(put, tmp_path):
    put("wrong", **http(urlTemplate="ftp://x.y/"))
    done = cli("check", "--config", "onetool.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert [one["key"] for one in json.loads(done.stdout)] == ["bundles.mine/wrong@1"]


def test_each_of_several_requests_is_looked_at(put, tmp_path):
    login = {"name": "login", "request": {"urlTemplate": "https://login.example.com/", "query": {"k": "${LOGIN_KEY}"}}}
    auth = {"type": "bearer", "value": "written-here"}
    get = {"name": "get", "request": {"urlTemplate": "https://api.example.com/${steps.login.id}", "auth": auth}}
    put("both", type="http", httpImpl={"requests": [login, get]})
    with App.open(tmp_path / "onetool.yaml") as app:
        told = "\n".join(str(one) for one in app.findings())
    assert "LOGIN_KEY" in told
    assert "login.example.com" in told
    assert told.count("auth.value") == 1
    put("both", type="http", httpImpl={"requests": [get, login]})
    assert "httpImpl.requests[0].request.urlTemplate" in found(tmp_path)["bundles.mine/both@1", "error"]


def test_a_pre_processor_that_can_not_run_is_an_error(put, tmp_path):
    steps = [{"type": "script", "code": "args +"}]
    put("say", type="python", argSchema=MESSAGE, pythonImpl={"func": "tools.echo"}, preProcessors=steps)
    [told] = found(tmp_path).values()
    assert "preProcessors[0].code: " in told
