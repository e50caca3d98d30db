"""`serve --tool-allow`: what is told of servers and of names does not lead beyond the allow-list."""

import sys

import pytest
from helpers import each, until
from interfaces.rest.test_admin import served
from sources.mcp_servers.harness import block_of

LOG_LINE = "no database at db.internal, password=LOGPW123"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("allowed")
    (folder / "words").write_text("As it was.")
    return folder


@pytest.fixture(scope="module")
def servers(home):
    return {
        "srv": block_of("described", home / "words"),
        "die": {"command": sys.executable, "args": ["-c", f"raise SystemExit({LOG_LINE!r})"]},
    }


@pytest.fixture(scope="module")
def api(home, servers):
    """The tools of `srv` were approved; then they have changed."""
    from interfaces.rest.served import Api

    before = served(home, servers=servers)
    until(lambda: {one["state"] for one in before.get("/servers").json()["servers"]} == {"connected", "disconnected"})
    before.stop()
    (home / "words").write_text("As an enemy wants it.")
    args = ("--config", str(before.file), "--tool-allow", "srv.one,die.one")
    api = Api(real=home, args=args)
    until(lambda: {one["state"] for one in api.get("/servers").json()["servers"]} == {"connected", "disconnected"})
    yield api
    api.stop()


def test_what_went_wrong_is_told_without_the_log_and_the_command(api):
    told = api.get("/servers").text + api.get("/servers/die").text + api.get("/status").text
    assert "LOGPW123" not in told
    assert sys.executable not in told
    assert "db.internal" not in told
    found = {one["name"]: one for one in api.get("/servers").json()["servers"]}
    assert "see its log" in found["die"]["error"]


def test_only_what_is_allowed_is_counted_and_compared(api):
    until(lambda: api.get("/servers/srv").json()["changed"] == 1)
    found = api.get("/servers/srv").json()
    assert found["tools"] == 1
    assert [one["name"] for one in found["changes"]] == ["one"]
    assert "hidden" not in api.get("/servers/srv").text + api.get("/status").text


@each(
    "code",
    [
        "srv.hidde()",
        "srv.zzzzzzz()",
        "fss.read(path='x')",
        "try:\n    srv.hidde\nexcept ValueError:\n    pass",
        "import fss",
        "x = 1\nif x:\n    fss.read()",
    ],
)
def test_no_hint_names_what_is_not_allowed(api, code):
    told = api.ask("POST", "/run/check", {"code": code}).text + api.ask("POST", "/run", {"code": code}).text
    assert "srv.hidden" not in told
    assert "hidden" not in told
    assert "mean fs" not in told


def test_hints_name_what_is_allowed(api):
    assert "srv.one" in api.ask("POST", "/run/check", {"code": "srv.oone()"}).text
    assert "srv.one" in api.ask("POST", "/run", {"code": "srv.oone()"}).text
