"""`onetool bundles …`: each command does what its reader thinks it does, and says what to do next."""

import json

import pytest
from helpers import BUILT_IN_PACKS, cli, trusted
from interfaces.cli.bundling import ECHO, FORECAST, did, refused, run, seen
from interfaces.cli.bundling import here as here  # a fixture

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def weather():
    bundle = did("create", "weather", "--description", "Of the world")
    did("add", "weather/forecast", "forecast.json")
    return bundle


# Looking


def test_a_new_home_has_the_built_in_bundles_and_nothing_is_written(own_home):
    found = did("list")
    assert {one["slug"] for one in found} == BUILT_IN_PACKS
    assert all(one["isBuiltIn"] and one["tools"] for one in found)
    assert not list(own_home.rglob("*"))


def test_own_bundles_come_first_and_switched_off_ones_only_with_all(weather):
    assert did("list")[0] | {"tools": 1} == {**weather, "tools": 1}
    did("disable", "weather")
    assert "weather" not in [one["slug"] for one in did("list")]
    assert did("list", "--all")[0]["isEnabled"] is False


def test_a_bundle_is_shown_with_its_tools(weather):
    shown = did("show", "weather")
    assert shown["id"] == weather["id"]
    assert [(one["slug"], one["version"], one["type"]) for one in shown["tools"]] == [("forecast", "1", "http")]
    assert "httpImpl" not in shown["tools"][0]
    assert did("show", weather["id"]) == shown


def test_one_tool_is_shown_with_what_it_needs(weather, here):
    shown = did("show", "weather/forecast")
    assert shown["httpImpl"] == FORECAST["httpImpl"]
    assert shown["name"] == "weather.forecast"
    assert shown["needs"] == {
        "secrets": [{"name": "WEATHER_TOKEN", "source": None}],
        "hosts": [{"host": "api.example.com", "allowed": False, "entry": '"api.example.com"'}],
        "missing": [
            {"host": "api.example.com", "command": "onetool hosts allow api.example.com"},
            {
                "secret": "WEATHER_TOKEN",
                "hosts": ["api.example.com"],
                "command": "onetool auth set WEATHER_TOKEN --host api.example.com",
            },
        ],
    }
    assert did("show", "weather.forecast@1") == shown  # as code says it
    (here / ".onetool").mkdir()
    (here / ".onetool" / "onetool.yaml").write_text(
        'allowedHosts: ["*.example.com"]\nsecrets: {WEATHER_TOKEN: not-shown}\n'
    )
    trusted(here)
    did("add", "weather/forecast", "forecast.json", "--create")  # another config has other bundles
    needs = did("show", "weather/forecast")["needs"]
    assert needs["secrets"] == [{"name": "WEATHER_TOKEN", "source": "config"}]
    assert needs["hosts"] == [{"host": "api.example.com", "allowed": True, "entry": None}]


@pytest.mark.parametrize(
    ("url", "host", "entry"),
    [
        ("http://localhost:9000/x", "localhost:9000", '{host: "localhost:9000", allowPrivate: true}'),
        ("http://[::1]:80/x", "[::1]", '{host: "[::1]", allowPrivate: true}'),
        ("https://API.example.com.:8443/x", "api.example.com:8443", '"api.example.com:8443"'),
        ("https://${city}.example.com/x", "${city}.example.com", None),
    ],
)
def test_which_entry_lets_a_host_pass(url, host, entry):
    tool = {**FORECAST, "httpImpl": {"request": {"urlTemplate": url}}}
    shown = did("add", "a/b", "-", "--create", stdin=json.dumps(tool))
    assert shown["slug"] == "b"
    assert did("show", "a/b")["needs"]["hosts"] == [
        {"host": host, "allowed": None if entry is None else False, "entry": entry}
    ]


def test_search_finds_names_that_begin_so_first(weather):
    did("add", "weather/warn", "-", stdin=json.dumps({**FORECAST, "description": "Warns before a forecast"}))
    found = did("search", "forec")
    assert [(one["bundle"], one["slug"]) for one in found] == [("weather", "forecast"), ("weather", "warn")]
    did("disable", "weather/forecast")
    assert [one["slug"] for one in did("search", "forec")] == ["warn"]
    assert [one["slug"] for one in did("search", "--all", "--limit", 1, "forec")] == ["forecast"]


def test_what_a_person_sees(weather, monkeypatch):
    assert "weather" in seen(monkeypatch, "list")
    shown = seen(monkeypatch, "show", "weather")
    assert "forecast@1" in shown
    assert "The forecast of a city" in shown
    shown = seen(monkeypatch, "show", "weather/forecast")
    for part in ("GET https://api.example.com/v1/${city}", "city", "required", "60", "NOT SET", "NOT ALLOWED"):
        assert part in shown
    assert 'allowedHosts: ["api.example.com"]' in shown
    assert "onetool auth set WEATHER_TOKEN" in shown
    assert "weather/forecast@1" in seen(monkeypatch, "search", "city")
    assert "Nothing found" in seen(monkeypatch, "search", "zzzzzz")
    assert "is switched off" in seen(monkeypatch, "disable", "weather")
    assert "has no tools yet" in seen(monkeypatch, "show", did("create", "empty")["id"])


# Names


def test_a_wrong_name_gets_the_nearest_one(weather):
    assert "There is no bundle wether; did you mean weather?" in refused("show", "wether")
    assert "There is no tool forcast in the bundle weather; did you mean forecast?" in refused(
        "show", "weather/forcast"
    )
    assert "weather/forecast has no version 2; it has 1" in refused("show", "weather/forecast@2")


@pytest.mark.parametrize("place", ["weather/", "/forecast", "weather/forecast@", "weather@1", ""])
def test_an_empty_part_is_wrong_usage(place):
    refused("show", place, code=2)


def test_a_tool_where_a_bundle_is_wanted_and_the_other_way_round():
    assert "doesn't name a tool" in refused("add", "weather", "forecast.json", code=2)
    assert "names a tool" in refused("export", "weather/forecast", code=2)


def test_two_bundles_of_one_slug_are_told_apart_by_their_ids(weather):
    assert "already" in refused("create", "weather")
    from onetool.app import App
    from onetool.sources.bundles.names import new_id

    second = new_id(0)
    with App.open() as app:
        app.bundles.put_bundle(second, {"slug": "weather"})
    told = refused("show", "weather")
    assert "2 bundles" in told
    assert weather["id"] in told
    assert second in told
    assert did("show", second)["tools"] == []


def test_without_a_version_the_newest_enabled_one_is_shown_and_a_deletion_asks_which(weather):
    did("add", "weather/forecast@2", "forecast.json")
    assert did("show", "weather/forecast")["version"] == "2"
    known = "choose one: weather/forecast@1, weather/forecast@2"
    assert known in refused("delete", "weather/forecast", "--yes")
    did("disable", "weather/forecast@2")
    assert did("show", "weather/forecast")["version"] == "1"


def test_a_tool_is_switched_with_all_its_versions_unless_one_is_named(weather, monkeypatch):
    did("add", "weather/forecast@2", "forecast.json")
    told = "weather/forecast with all its versions (2, 1) is switched"
    for command, on in (("disable", False), ("enable", True)):
        assert f"{told} {'on' if on else 'off'}." in seen(monkeypatch, command, "weather/forecast")
        assert [one["isEnabled"] for one in did("show", "weather")["tools"]] == [on, on]
        assert did(command, "weather/forecast")["versions"] == ["2", "1"]
    assert did("disable", "weather/forecast@2")["takesOver"] == "1"
    did("enable", "weather/forecast@2")
    assert "The name now refers to version 1" in seen(monkeypatch, "disable", "weather/forecast@2")
    assert "now refers to" not in seen(monkeypatch, "disable", "weather/forecast@1")


def test_several_requests_and_pre_processors_are_shown(here, monkeypatch):
    find = {"name": "find", "request": {"urlTemplate": "https://a.example.com/"}}
    auth = {"type": "bearer", "value": "${KEY}"}
    make = {"method": "POST", "urlTemplate": "https://b.example.com/${steps.find.id}", "auth": auth}
    tool = {
        "type": "http",
        "httpImpl": {"requests": [find, {"name": "make", "request": make}]},
        "preProcessors": [{"type": "script", "code": "args.get('x', args)"}],
    }
    did("add", "many/both", "-", "--create", stdin=json.dumps(tool))
    shown = did("show", "many/both")
    assert {key: shown[key] for key in ("httpImpl", "preProcessors")} == {
        key: tool[key] for key in ("httpImpl", "preProcessors")
    }
    assert [one["host"] for one in shown["needs"]["hosts"]] == ["a.example.com", "b.example.com"]
    assert [one["name"] for one in shown["needs"]["secrets"]] == ["KEY"]
    screen = seen(monkeypatch, "show", "many/both")
    assert "find: GET https://a.example.com/" in screen
    assert "make: POST https://b.example.com/${steps.find.id}" in screen
    assert "preProcessors[0]:\nargs.get('x', args)" in screen


def test_arguments_on_the_command_line_go_through_pre_processors(here):
    code = "{'message': f\"{args['days'] * 2} {args['to']}\"}"
    tool = ECHO | {"preProcessors": [{"type": "script", "code": code}]}
    did("add", "say/twice", "-", "--create", stdin=json.dumps(tool))
    done = cli("tools", "invoke", "say.twice", "days=3", "to=you", "--json", cwd=here)
    assert json.loads(done.stdout)["result"]["data"] == "6 you"
    failed = cli("tools", "invoke", "say.twice", "days=3", cwd=here)
    assert failed.returncode == 1
    assert "preProcessors[0]: line 1: KeyError" in failed.stdout + failed.stderr


# Changing


def test_a_slug_that_can_not_be_one_is_refused():
    assert "a space" in refused("create", "my weather")


def test_a_bundle_named_like_a_pack_is_warned_of(here):
    (here / ".onetool" / "packs").mkdir(parents=True)
    (here / ".onetool" / "onetool.yaml").write_text("")
    (here / ".onetool" / "packs" / "dice.py").write_text('def roll() -> int:\n    """Roll."""\n    return 4\n')
    trusted(here)
    done = run("create", "dice")
    assert done.exit_code == 0
    assert "a pack is called dice" in done.stderr
    assert "built in" not in refused("create", "fs")


def test_and_one_named_like_a_tool_of_the_config_too_whichever_way_it_is_made(here):
    (here / ".onetool").mkdir()
    (here / ".onetool" / "onetool.yaml").write_text(
        "tools: [{name: weather, description: It rains., type: function, handler: w, parameters: {type: object},"
        " implementation: {type: mock, mock_response: rain}}]\n"
    )
    trusted(here)
    for command in (["create", "weather"], ["add", "weather/x", "forecast.json", "--create"]):
        done = run(*command)
        assert done.exit_code == 0
        assert "warning: a tool is called weather" in done.stderr
        did("show", "weather")
        run("delete", "weather", "--with-tools", "--yes")
    done = run("add", "other/x", "forecast.json", "--create")
    assert "warning" not in done.stderr
    assert "warning" not in run("add", "other/y", "forecast.json").stderr


def test_who_adds_to_a_bundle_that_is_not_there_learns_how_to_make_it(weather):
    for command in (["add", "{}/x", "forecast.json"], ["add-curl", "{}/x", "curl https://a.example/x"]):
        place = command[1]
        command[1] = place.format("nothing")
        assert "no bundle nothing; to create it with its first tool: --create" in refused(*command)
        command[1] = place.format("wether")
        assert "did you mean weather? To create it with its first tool: --create" in refused(*command)
    assert "--create" in refused("save", "nothing/x", "-", "--description", "One.", stdin="1")
    assert "--create" not in refused("show", "nothing")


def test_a_tool_made_of_curl_is_called_as_its_maker_says():
    tool = did("add-curl", "a/now-in-Kyiv", "--create", "curl https://a.example/v1/kyiv")
    assert tool["name"] == "a.now_in_Kyiv"
    assert (tool["slug"], tool["displayName"]) == ("now-in-Kyiv", "Now in Kyiv")


def test_what_is_switched_off_can_not_be_called(weather, here):
    did("add", "weather/say", "echo.json")
    did("disable", "weather/say")
    off = cli("tools", "invoke", "weather.say", "--args", '{"message": "hi"}', cwd=here)
    assert (off.returncode, json.loads(off.stdout)["result"]["error"]["reason"]) == (1, "denied")
    did("enable", "weather/say@1")
    on = cli("tools", "invoke", "weather.say@1", "--args", '{"message": "hi"}', cwd=here)
    assert json.loads(on.stdout)["result"]["data"] == "hi"
    assert did("show", "weather/say")["callCount"]


def test_built_in_bundles_can_be_switched_and_nothing_else():
    assert did("disable", "time")["isEnabled"] is False
    assert did("enable", "time")["isEnabled"] is True
    assert did("disable", "fs/read-file")["isEnabled"] is False
    assert "built in" in refused("delete", "time", "--yes")
    assert "built in" in refused("add", "time/other", "echo.json")
    assert "built in" in refused("export", "time")


def test_deleting_is_confirmed_and_a_bundle_can_come_back(weather):
    assert "--yes" in refused("delete", "weather/forecast", code=2)
    assert "1 tool" in refused("delete", "weather", "--yes")
    assert "Deleted weather/forecast@1." in run("delete", "weather/forecast", "--yes").stdout
    gone = run("delete", "weather", "--yes")
    assert "is kept for two days" in gone.stdout
    assert "onetool bundles restore weather" in gone.stdout
    assert "onetool bundles restore weather" in refused("show", "weather")
    assert did("list", "--all")[0]["softDeletedAt"]
    assert did("restore", "weather")["id"] == weather["id"]
    assert "nothing to restore" in refused("restore", "weather")
    did("add", "weather/forecast", "forecast.json")


def test_a_person_is_asked_and_may_say_no(weather, monkeypatch):
    monkeypatch.setattr("onetool.interfaces.cli.output.is_interactive", lambda: True)
    said = refused("delete", "weather/forecast", stdin="n\n")
    assert "Delete weather/forecast@1 permanently?" in said
    assert "Nothing was deleted" in said
    assert did("show", "weather/forecast")["version"] == "1"
    assert run("delete", "weather/forecast", stdin="y\n").exit_code == 0
    assert did("show", "weather")["tools"] == []


def test_a_bundle_goes_with_its_tools_only_when_that_is_said(weather):
    did("add", "weather/forecast@2", "forecast.json")
    assert "2 tools" in run("delete", "weather", "--with-tools", "--yes").stdout
    did("restore", "weather")
    assert did("show", "weather")["tools"] == []


# Adding


def test_a_tool_is_added_from_yaml_and_its_next_version_is_proposed(weather, here):
    (here / "tool.yaml").write_text("type: python\npythonImpl: {func: time.now}\nargSchema: {type: object}\n")
    assert did("add", "weather/clock", "tool.yaml")["version"] == "1"
    assert "weather/clock@2" in refused("add", "weather/clock", "tool.yaml")
    assert did("add", "weather/clock@2", "tool.yaml")["version"] == "2"
    assert "weather/clock@3" in refused("add", "weather/clock@2", "tool.yaml")


def test_what_was_shown_can_be_added_elsewhere(weather):
    shown = did("show", "weather/forecast")
    for key in ("bundle", "name", "needs"):
        del shown[key]
    added = did("add", "other/forecast", "-", "--create", stdin=json.dumps({**shown, "version": "1.5"}))
    assert added["version"] == "1.5"
    assert added["id"] != shown["id"]
    assert "got 'forecast'" in refused("add", "other/another", "-", stdin=json.dumps(shown))


def test_what_can_not_be_a_tool_is_refused_and_no_bundle_is_left_behind(here):
    wrong = {**FORECAST, "httpImpl": {"request": {"urlTemplate": "https://${city"}}}
    assert "httpImpl.request.urlTemplate" in refused("add", "new/x", "-", "--create", stdin=json.dumps(wrong))
    assert "httpImpl: it is missing" in refused("add", "new/x", "-", "--create", stdin='{"type": "http"}')
    assert "did you mean tools.echo" in refused(
        "add", "new/x", "-", "--create", stdin=json.dumps({**ECHO, "pythonImpl": {"func": "tools.eco"}})
    )
    assert "There is no bundle new" in refused("show", "new")
    assert "There is no bundle new" in refused("add", "new/x", "forecast.json")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"type": "http",', "standard input"),
        ('{"type": "http", "type": "python"}', "standard input"),
        ("type: [http", "line 1"),
        ("", "expected an object, got "),
        ("[1]", "expected an object, got "),
    ],
)
def test_a_file_that_can_not_be_read_is_told(weather, text, told):
    assert told in refused("add", "weather/x", "-", stdin=text)


def test_a_file_that_is_not_there(weather):
    assert "can't read nothing.json: No such file or directory" in refused("add", "weather/x", "nothing.json")
