"""A bundle tool that leaves its schemas and its description to its function: REST shows and finds what it inherits."""

import json
import signal

import pytest
from helpers import cli, until
from interfaces.rest.served import Api
from interfaces.rest.test_openapi import checker

PACK = '''
def walk(dog: str, minutes: int = 10) -> dict[str, int]:
    """{0} a quokka around the pond."""
    return {{"minutes": minutes}}
'''
LEAVES_ALL = {"type": "python", "pythonImpl": {"func": "vet.walk"}}


@pytest.fixture
def real(tmp_path):
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "vet.py").write_text(PACK.format("Leads"))
    (tmp_path / "onetool.yaml").write_text("packs: [packs]\n")
    api = Api(real=tmp_path, env={"ONETOOL_CONFIG": str(tmp_path / "onetool.yaml")})
    api.home = tmp_path
    api.env = {"ONETOOL_HOME": str(tmp_path), "ONETOOL_CONFIG": str(tmp_path / "onetool.yaml")}
    yield api
    assert api.stop() == 0


def put(api, bundle, slug, tool):
    reply = api.ask("PUT", f"{bundle}/tools/{slug}/version/1", tool)
    assert reply.status_code in (200, 201), reply.text
    return reply.json()


def found(api, query):
    rows = api.get("/tools/tools/search", params={"q": query}).json()["tools"]
    return [row["slug"] for row in rows if row["origin"] == "bundle"]


def test_a_tool_shows_what_it_inherits_and_stores_nothing_of_it(real):
    bundle = real.bundle(slug="mine")
    put(real, bundle, "stroll", LEAVES_ALL)
    tool = real.get(f"{bundle}/tools/stroll/version/1").json()
    assert (tool["argSchema"], tool["outputSchema"], tool["description"]) == ({}, {}, "")
    assert tool["inherited"].keys() == {"argSchema", "outputSchema", "description"}
    assert tool["inherited"]["argSchema"]["properties"].keys() == {"dog", "minutes"}
    assert tool["inherited"]["outputSchema"]["type"] == "object"
    assert tool["inherited"]["description"] == "Leads a quokka around the pond."
    checker(real.get("/openapi.json").json(), "Tool").validate(tool)
    rows = real.get("/tools/tools", params={"fields": "slug,inherited"}).json()["tools"]
    assert {"slug": "stroll", "inherited": tool["inherited"]} in rows
    files = "".join(file.read_text() for file in (real.home / "bundles").rglob("stroll*") if file.is_file())
    assert "func" in files
    assert "quokka" not in files


def test_it_is_read_only(real):
    bundle = real.bundle(slug="mine")
    got = put(real, bundle, "stroll", LEAVES_ALL)
    own = {"type": "object", "properties": {"dog": {"type": "string"}}, "required": ["dog"]}
    changed = {**got, "slug": "own", "argSchema": own, "inherited": {"description": "x"}}
    assert put(real, bundle, "own", changed)["inherited"].keys() == {"outputSchema", "description"}
    assert real.get(f"{bundle}/tools/own/version/1").json()["inherited"]["description"].startswith("Leads")
    script = {"type": "script", "scriptImpl": {"code": "1"}}
    assert "inherited" not in put(real, bundle, "script", script)


def test_the_search_finds_it_by_what_it_inherits(real):
    bundle = real.bundle(slug="mine")
    put(real, bundle, "stroll", LEAVES_ALL)
    put(real, bundle, "own", {**LEAVES_ALL, "description": "Walks a wombat."})
    assert found(real, "quokka") == ["stroll"]
    for query in ("quokka", "minutes of the dog"):
        listed = cli("tools", "search", query, "--json", cwd=real.home, env=real.env)
        assert '"mine.stroll"' in listed.stdout
    (real.home / "packs" / "vet.py").write_text(PACK.format("Accompanies"))
    real.process.send_signal(signal.SIGHUP)
    assert until(lambda: found(real, "accompanies") == ["stroll"])
    assert found(real, "leads") == []
    (real.home / "packs" / "vet.py").write_text("def other() -> int:\n    'Another one.'\n    return 1\n")
    real.process.send_signal(signal.SIGHUP)
    tool = f"{bundle}/tools/stroll/version/1"
    assert until(lambda: "inherited" not in real.get(tool).json())
    assert found(real, "quokka") == []


def test_the_command_line_shows_it(real):
    put(real, real.bundle(slug="mine"), "stroll", LEAVES_ALL)
    shown = json.loads(cli("bundles", "show", "mine/stroll", cwd=real.home, env=real.env).stdout)
    assert shown["inherited"]["description"] == "Leads a quokka around the pond."
