"""What a tool lacks: said in one form, and in force as soon as a person has set it."""

import asyncio
import json

import pytest
from helpers import cli
from upstream import Reply, Upstream

from onetool.app import App
from onetool.app.reload import Reloader
from onetool.core.call import ToolCall
from onetool.sources.bundles.names import derived_id

VALUE = "meteo-live-0123456789"
NEVER = 3600.0


@pytest.fixture
def api():
    with Upstream() as one:
        one.say(Reply(body=b'{"sky": "clear"}', headers={"Content-Type": "application/json"}))
        yield one


class Place:
    """The app of a server that only this machine reaches. It is not connected, so no watcher runs."""

    def __init__(self, folder, api, config="{}", **request):
        self.file = folder / "onetool.yaml"
        self.file.write_text(config)
        self.file.chmod(0o600)
        self.app = App.open(self.file)
        self.app.follow_settings()
        bundle, *_ = self.app.bundles.put_bundle(derived_id("meteo"), {"slug": "meteo"})
        request = {"method": "GET", "urlTemplate": f"{api.url}/now", "headers": {"X-Key": "${METEO_KEY}"}, **request}
        tool = {"type": "http", "argSchema": {"type": "object"}, "httpImpl": {"request": request, "response": {}}}
        self.app.bundles.put_tool(bundle["id"], "now", "1", tool)

    def call(self):
        return asyncio.run(self.app.call(ToolCall("1", "meteo.now")))

    def terminal(self, *args, stdin=None):
        done = cli(*args, "--config", str(self.file), cwd=self.file.parent, stdin=stdin)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def place(tmp_path, api, monkeypatch):
    monkeypatch.setattr("onetool.app.reload.POLL_S", 0.0)
    made = []

    def make(*args, **options):
        made.append(Place(tmp_path, api, *args, **options))
        return made[-1]

    yield make
    for one in made:
        one.app.close()


def test_a_failed_call_names_everything_that_is_missing_with_its_command(place, api):
    error = place().call().error
    host = api.netloc
    assert [(one.host, one.private, one.secret, one.hosts, one.stored, one.command) for one in error.needs] == [
        (host, True, None, (), False, f"onetool hosts allow --private {host}"),
        (None, False, "METEO_KEY", (f"http://{host}",), False, f"onetool auth set METEO_KEY --host http://{host}"),
    ]
    assert (error.code, error.reason) == ("execution_error", "secret_missing")
    assert f"run: {error.needs[1].command}" in error.hints
    assert api.seen == []


def test_the_findings_say_the_same_as_the_call(place):
    one = place()
    needs = [need for found in one.app.findings() for need in found.needs]
    assert sorted(needs, key=str) == sorted(one.call().error.needs, key=str)
    assert {found.hint for found in one.app.findings() if found.needs} == {need.command for need in needs}


def test_what_the_terminal_sets_is_in_force_with_the_next_call(place, api):
    one = place()
    for need in one.call().error.needs:
        one.terminal(*need.command.split()[1:], stdin=VALUE)
    result = one.call()
    assert result.data == {"sky": "clear"}, result.error
    assert api.seen[0].headers["x-key"] == VALUE


def test_a_run_under_way_finds_it_too(place, api):
    one = place()
    one.terminal("hosts", "allow", api.netloc)
    one.terminal("auth", "set", "METEO_KEY", "--host", api.url, stdin=VALUE)
    result = asyncio.run(one.app.run("meteo.now()"))
    assert result.error is None, result.error
    assert "clear" in json.dumps(result.data)


def test_a_run_that_fails_carries_the_needs(place):
    error = asyncio.run(place().app.run("meteo.now()")).error
    assert [one.secret or one.host for one in error.needs][1] == "METEO_KEY"


def test_files_are_looked_at_once_in_a_while(place, monkeypatch):
    one, looks = place(), []
    real = Reloader.reload_settings
    monkeypatch.setattr(Reloader, "reload_settings", lambda self: looks.append(1) or real(self))
    monkeypatch.setattr("onetool.app.reload.POLL_S", NEVER)
    for _ in range(3):
        assert one.call().error is not None
    assert looks == [1]


def test_a_look_that_fails_counts_as_one(place, monkeypatch):
    one, looks = place(), []

    def fail(self):
        looks.append(1)
        raise OSError("the disk is away")

    monkeypatch.setattr(Reloader, "reload_settings", fail)
    monkeypatch.setattr("onetool.app.reload.POLL_S", NEVER)
    for _ in range(3):
        assert one.call().error is not None
    assert looks == [1]


def test_watch_false_waits_for_a_reload(place, api):
    one = place("watch: false")
    assert one.app.follows_files is False
    one.terminal("hosts", "allow", api.netloc)
    one.terminal("auth", "set", "METEO_KEY", "--host", api.url, stdin=VALUE)
    assert one.call().error is not None
    one.app.reload()
    assert one.call().data == {"sky": "clear"}


def test_a_secret_for_other_hosts_is_not_to_be_set_but_bound(place, api):
    one = place()
    one.terminal("auth", "set", "METEO_KEY", "--host", "api.example.com", stdin=VALUE)
    one.terminal("hosts", "allow", api.netloc)
    error = one.call().error
    (need,) = error.needs
    assert (need.secret, need.stored) == ("METEO_KEY", True)
    assert need.command == f"onetool auth set METEO_KEY --host api.example.com --host {api.url}"
    assert VALUE not in json.dumps([str(error), *error.hints])
    assert api.seen == []


def test_nothing_is_sent_twice_when_a_redirect_leads_to_a_host_that_is_missing(place, api):
    """The settings change between the two requests: the call is not repeated all the same."""
    one = place(f"allowedHosts: [{{host: '{api.netloc}', allowPrivate: true}}]", headers={}, followRedirects=True)

    def redirect(_):
        one.file.write_text(f"allowedHosts: [{{host: '{api.netloc}', allowPrivate: true}}, other.example.com]")
        return Reply(302, {"Location": "https://other.example.com/x"})

    api.say(redirect)
    error = one.call().error
    assert [need.host for need in error.needs] == ["other.example.com"]
    assert len(api.seen) == 1


def test_a_full_disk_is_among_the_findings(place, monkeypatch):
    app = place().app
    assert "disk" not in {one.key for one in app.findings()}
    monkeypatch.setattr("onetool.app.findings.MIN_FREE_MB", 10**12)
    (told,) = [one for one in app.findings() if one.key == "disk"]
    assert (str(app.config.home) in told.message, told.severity) == (True, "error")
