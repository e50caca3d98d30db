"""A mistake in one server's block is that server's own: everything else of the config works."""

import json

import pytest
from document_stores import in_home
from sources.mcp_servers.harness import call, is_fine, settle

from onetool.config.load import load_config
from onetool.core.errors import ConfigError


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"command": "x", "timeout": "soon"}, "servers.bad.timeout: expected a number, got the string 'soon'"),
        ({"command": "x", "args": "-v"}, "servers.bad.args: expected a list, got"),
        ({"command": "x", "url": "http://127.0.0.1:1/"}, "a server has a command or a url, not both"),
        ({}, "a server needs a command or a url"),
        ("x", "servers.bad: expected a mapping, got the string 'x'"),
        ([1], "servers.bad: expected a mapping, got a list"),
        ({"command": "x", "enabled": "yes"}, "servers.bad.enabled"),
    ],
)
def test_a_bad_key_breaks_its_server_alone(harness, block, words):
    with harness.app({"bad": block, "good": harness.nasty("ok")}) as app:
        status = settle(app)
        assert (status["bad"].state, status["good"].state) == ("disconnected", "connected")
        assert words in status["bad"].error
        assert is_fine(app)
        assert [words in str(mistake) for mistake in app.mistakes] == [True]
        assert call(app, "bad.echo").error.code == "tool_not_found"
        assert app.health()["registry"]["status"] == "degraded"


def test_check_tells_it_with_its_place(harness):
    harness.config({"bad": {"command": "x", "timeout": -1}, "good": harness.nasty("ok")})
    done = harness.cli("check")
    assert done.returncode == 1
    [told] = json.loads(done.stdout)
    assert (told["key"], told["line"], told["severity"]) == ("servers.bad.timeout", 1, "error")
    listed = {one["name"]: one for one in json.loads(harness.cli("servers", "list", "--json").stdout)}
    assert listed["good"]["state"] == "connected"
    assert "servers.bad.timeout" in listed["bad"]["error"]


def test_what_was_approved_outlives_a_mistake(harness):
    block = harness.nasty("ok")
    with harness.app({"good": block}) as app:
        settle(app)
    kept = in_home(harness.folder, "servers")
    remembered = {key: kept.read(key) for key in kept.keys()}  # noqa: SIM118 - no dict
    with harness.app({"good": {**block, "timeout": "soon"}}) as app:
        settle(app)
    assert {key: kept.read(key) for key in kept.keys()} == remembered  # noqa: SIM118 - no dict


def test_other_mistakes_still_end_it(harness):
    with pytest.raises(ConfigError):
        load_config(harness.config({"good": harness.nasty("ok")}, menu="none"))
