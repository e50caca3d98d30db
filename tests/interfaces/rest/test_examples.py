"""The examples of a tool: kept with it, or beside the switches, and shown by help."""

import json

import pytest
from helpers import each
from interfaces.rest.served import Api, problem
from interfaces.rest.test_openapi import checker

from onetool.sources.bundles.model import built_in_id

MESSAGE = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
ECHO = {"type": "python", "pythonImpl": {"func": "tools.echo"}, "argSchema": MESSAGE}
HI = {"name": "Greeting", "args": {"message": "hi there"}, "description": "Says hi."}
BUILT_IN = f"/tools/bundles/{built_in_id('tools')}/tools/echo/version/1/examples"

DECLARED = {
    "name": "plain.say",
    "description": "Says it.",
    "type": "function",
    "handler": "say",
    "parameters": {"type": "object", "properties": {}},
    "implementation": {"type": "mock", "mock_response": 1},
}


def nested(levels):
    args = {}
    for _ in range(levels):
        args = {"a": args}
    return args


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def real(home):
    home.joinpath("onetool.yaml").write_text(json.dumps({"tools": [DECLARED]}))
    api = Api(real=home, args=["--config", str(home / "onetool.yaml")])
    yield api
    assert api.stop() == 0


def put(api, path, *examples, **options):
    return api.ask("PUT", path, {"examples": list(examples)}, **options)


def help_on(api, name):
    return api.ask("POST", "/call/ot.help", {"query": name}).json()


def test_examples_of_a_kept_tool_are_part_of_it(real, home):
    bundle = real.bundle(slug="kept")
    tool = real.tool(bundle, "echo", **ECHO)
    before = real.get(tool).json()
    assert real.get(f"{tool}/examples").json() == {"examples": []}
    reply = put(real, f"{tool}/examples", HI)
    assert (reply.status_code, reply.json()) == (200, {"examples": [HI]})
    found = real.get(tool)
    assert found.json() == {**before, "examples": [HI]}  # modifiedAt, too, is the one of before
    assert found.headers["etag"] == reply.headers["etag"] == real.get(f"{tool}/examples").headers["etag"]
    (file,) = home.glob("bundles/kept-*/tools/echo@1.json")
    assert json.loads(file.read_text())["examples"] == [HI]
    assert "kept.echo(message='hi there')" in str(help_on(real, "kept.echo"))
    checker(real.get("/openapi.json").json(), "ExampleList").validate(reply.json())
    checker(real.get("/openapi.json").json(), "Tool").validate(found.json())


def test_a_tool_may_come_with_its_examples(real):
    tool = real.tool(real.bundle(slug="whole"), "echo", **ECHO, examples=[HI])
    assert real.get(f"{tool}/examples").json() == {"examples": [HI]}
    assert put(real, f"{tool}/examples").json() == {"examples": []}
    assert "examples" not in real.get(tool).json()


@pytest.mark.parametrize("which", ["built-in", "config"])
def test_examples_of_what_is_read_only_are_kept_beside_the_switches(real, home, which):
    rows = real.get("/tools/tools?recommendedPageSize=1000&fields=name,bundleID,slug,version").json()["tools"]
    name = {"built-in": "shell.pwd", "config": "plain.say"}[which]
    row = next(one for one in rows if one["name"] == name)
    tool = f"/tools/bundles/{row['bundleID']}/tools/{row['slug']}/version/{row['version']}"
    example = {"name": "Plain", "args": {}}
    assert put(real, f"{tool}/examples", example).json() == {"examples": [example]}
    assert real.get(f"{tool}/examples").json() == {"examples": [example]}
    assert real.get(tool).json()["examples"] == [example]
    assert real.get(tool).json()["isEnabled"] is True
    assert "examples" in json.loads((home / "bundles" / "builtin.json").read_text())
    assert f"{name}()" in str(help_on(real, name))
    assert real.ask("POST", f"/call/{name}", {}).status_code == 200
    assert put(real, f"{tool}/examples").json() == {"examples": []}
    assert "examples" not in real.get(tool).json()


def test_an_outdated_change_is_refused(real):
    tag = real.get(BUILT_IN).headers["etag"]
    assert real.get(BUILT_IN, headers={"If-None-Match": tag}).status_code == 304
    assert put(real, BUILT_IN, HI, headers={"If-Match": tag}).status_code == 200
    problem(put(real, BUILT_IN, headers={"If-Match": tag}), 412, "stale")
    assert put(real, BUILT_IN).status_code == 200


@each(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"examples": {}}, "/examples"),
        ({"examples": [{"name": "a"}]}, "/examples/0"),
        ({"examples": [{"name": "", "args": {}}]}, "/examples/0/name"),
        ({"examples": [{"name": "a", "args": []}]}, "/examples/0/args"),
        ({"examples": [HI, {"name": "a", "args": {"message": "x" * 17_000}}]}, "/examples/1"),
        ({"examples": [HI] * 21}, "/examples"),
        ({"examples": [HI, {"name": "a", "args": nested(300)}]}, "/examples/1/args"),
        ({"examples": [HI, {"name": "Greeting", "args": {}}]}, "/examples/1/name"),
        ({"examples": [], "more": 1}, "/more"),
    ],
)
def test_what_is_no_list_of_examples_is_refused(real, body, pointer):
    assert problem(real.ask("PUT", BUILT_IN, body), 400, "invalid")["pointer"] == pointer


def test_examples_of_what_is_not_there_are_not_found(real):
    path = f"{real.bundle(slug='none')}/tools/none/version/1/examples"
    problem(real.get(path), 404, "not_found")
    problem(put(real, path), 404, "not_found")


def test_an_example_that_is_too_large_does_not_come_with_a_tool_either(real):
    large = {**ECHO, "examples": [{**HI, "args": {"message": "x" * 17_000}}]}
    reply = real.ask("PUT", f"{real.bundle(slug='large')}/tools/echo/version/1", large)
    assert problem(reply, 400, "invalid")["pointer"] == "/examples/0"


def test_a_broken_file_of_switches_leaves_nothing_derived_or_built_in_to_be_called(tmp_path):
    tmp_path.joinpath("onetool.yaml").write_text(json.dumps({"tools": [DECLARED]}))
    tmp_path.joinpath("bundles").mkdir()
    tmp_path.joinpath("bundles", "builtin.json").write_text('{"tools": {"config:plain/say@1": false}')
    api = Api(real=tmp_path, args=["--config", str(tmp_path / "onetool.yaml")])
    try:
        for name in ("plain.say", "shell.pwd"):
            problem(api.ask("POST", f"/call/{name}", {}), 403, "disabled")
        rows = api.get("/tools/tools?includeDisabled=true&recommendedPageSize=1000").json()["tools"]
        row = next(one for one in rows if one["name"] == "plain.say")
        bundle = f"/tools/bundles/{row['bundleID']}"
        said = problem(api.ask("PATCH", bundle, {"isEnabled": True}), 409, "broken")
        assert "builtin.json" in said["detail"]
    finally:
        assert api.stop() == 0


def test_a_tag_counts_once(real):
    tool = real.tool(real.bundle(slug="tagged"), "echo", **{**ECHO, "tags": ["b", "a", "b"]})
    assert real.get(tool).json()["tags"] == ["b", "a"]


LOGIN = {"type": "object", "properties": {"message": {"$ref": "#/$defs/key"}}, "required": ["message"]}
SECRET = {**ECHO, "argSchema": {**LOGIN, "$defs": {"key": {"type": "string", "writeOnly": True}}}}


def test_an_example_has_no_argument_that_is_secret(real):
    bundle = real.bundle(slug="closed")
    tool = real.tool(bundle, "echo", **SECRET)
    said = problem(put(real, f"{tool}/examples", {"name": "none", "args": {}}, HI), 400, "invalid")
    assert said["pointer"] == "/examples/1/args/message"
    assert real.get(f"{tool}/examples").json() == {"examples": []}
    said = problem(real.ask("PUT", f"{bundle}/tools/echo/version/2", {**SECRET, "examples": [HI]}), 400, "invalid")
    assert said["pointer"] == "/examples/0/args/message"


def test_known_secrets_in_examples_are_masked(tmp_path):
    tmp_path.joinpath("onetool.yaml").write_text(json.dumps({"secrets": {"KEY": "swordfish-0123456789"}}))
    api = Api(real=tmp_path, args=["--config", str(tmp_path / "onetool.yaml")])
    try:
        path = api.tool(api.bundle(slug="masked"), "echo", **ECHO)
        example = {"name": "a", "args": {"message": "say swordfish-0123456789"}}
        assert put(api, f"{path}/examples", example).status_code == 200
        for reply in (
            api.get(path),
            api.get(f"{path}/examples"),
            api.get("/tools/tools?tags="),
            api.get("/tools/tools/search?q=masked"),
        ):
            assert reply.status_code == 200
            assert "swordfish" not in reply.text
        assert api.get(f"{path}/examples").json()["examples"][0]["args"] == {"message": "say ***"}
    finally:
        assert api.stop() == 0
