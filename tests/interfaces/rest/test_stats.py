"""GET /stats: what was counted of all tools."""

import json

import pytest
from helpers import each
from interfaces.rest.served import Api, problem
from interfaces.rest.test_openapi import checker


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    (folder / "onetool.yaml").write_text(json.dumps({"aliases": {"say": "tools.echo"}}))
    return folder


@pytest.fixture(scope="module")
def real(home):
    api = Api(real=home, args=["--config", str(home / "onetool.yaml")])
    for _ in range(3):
        api.ask("POST", "/call/tools.echo", {"message": "hello"})
    api.ask("POST", "/call/time.now", {})
    api.ask("POST", "/call/fs.read_file", {"path": "nothing-here"})
    api.ask("POST", "/call/not.there", {})
    api.ask("POST", "/run", {"code": "tools.echo(message='a')\ntools.echo(message='b')"})
    yield api
    assert api.stop() == 0


def test_it_says_how_often_and_how_that_went(real):
    reply = real.get("/stats?days=1")
    assert reply.status_code == 200
    found = reply.json()
    assert (found["enabled"], found["calls"], found["errors"]) == (True, 8, 2)
    assert [(one["name"], one["calls"], one["errors"]) for one in found["tools"]] == [
        ("tools.echo", 5, 0),
        ("fs.read_file", 1, 1),
        ("time.now", 1, 0),
    ]
    assert all(one["p50"] >= 0 and one["p99"] >= one["p50"] for one in found["tools"])
    assert found["sources"] == [{"name": "rest", "calls": 8}]
    failed = {one["name"]: one for one in found["failures"]}
    assert failed["fs.read_file"]["count"] == 1
    assert failed["fs.read_file"]["lastAt"]
    assert "nothing-here" not in reply.text
    assert len(found["series"]) == 25
    assert sum(one["calls"] for one in found["series"]) == 8
    assert isinstance(found["tokensSaved"], int)
    checker(real.get("/openapi.json").json(), "StatsOverview").validate(found)


@each(
    ("query", "calls"),
    [
        ("tool=tools.echo", 5),
        ("tool=say", 5),
        ("source=mcp", 0),
        ("source=rest", 8),
        ("client=nobody", 0),
        ("days=30", 8),
    ],
)
def test_calls_can_be_picked(real, query, calls):
    found = real.get(f"/stats?{query}").json()
    assert found["calls"] == calls
    assert len(found["series"]) == 31
    assert sum(one["calls"] for one in found["tools"]) == calls - (query in ("source=rest", "days=30"))


def test_what_is_wrong_is_refused(real):
    problem(real.get("/stats?days=0"), 400, "bad_parameter")
    problem(real.get("/stats?period=day"), 400, "unknown_parameter")


def test_under_an_allow_list_other_tools_are_not_told(real, home, start):
    real.get("/stats")  # which writes what waits
    api = start(real=home, args=["--config", str(home / "onetool.yaml"), "--tool-allow", "time.now"])
    found = api.get("/stats").json()
    assert [one["name"] for one in found["tools"]] == ["time.now"]
    assert (found["calls"], found["failures"], found["tokensSaved"]) == (1, [], None)


def test_where_nothing_is_counted_it_says_so(start, tmp_path):
    tmp_path.joinpath("onetool.yaml").write_text(json.dumps({"stats": {"enabled": False}}))
    api = start(real=tmp_path, args=["--config", str(tmp_path / "onetool.yaml")])
    found = api.get("/stats").json()
    assert (found["enabled"], found["calls"], found["series"]) == (False, 0, [])
