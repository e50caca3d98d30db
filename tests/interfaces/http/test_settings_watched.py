"""`onetool serve` on this machine sees changed settings by itself, and says which code waits for a reload."""

import json
import signal

import pytest
from helpers import cli, trusted, until
from interfaces.http.conftest import Served
from upstream import Upstream

BUNDLE = "/tools/bundles/01890a5d-ac96-774b-bcce-b302099a8057"
PACK = 'def hello() -> str:\n    """Say hello."""\n    return "{}"\n'


@pytest.fixture
def place(serve, tmp_path):
    """Start the whole of OneTool with these keys of the config."""

    def make(*args, **config):
        server = serve(*args, config={"stats": {"enabled": False}, **config}, real=True)
        (server.folder / "packs").mkdir()
        return server

    return make


def run(server, code):
    body = json.dumps({"code": code}).encode()
    return server.ask("/run", "POST", body=body).json


def findings(server):
    return server.ask("/check").json["findings"]


def onetool(server, *args, stdin=None):
    done = cli(*args, "--config", "onetool.yaml", cwd=server.folder, stdin=stdin, env={"ONETOOL_HOME": "home"})
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def upstream():
    with Upstream() as upstream:
        yield upstream


def test_a_secret_and_a_host_of_the_command_line_count_without_a_reload(place, upstream):
    server = place()
    request = {"urlTemplate": f"{upstream.url}/x", "headers": {"X-Key": "${KEY}"}}
    tool = {"type": "http", "httpImpl": {"request": request}}
    for path, content in ((BUNDLE, {"slug": "mine"}), (f"{BUNDLE}/tools/get/version/1", tool)):
        made = server.ask(path, "PUT", body=json.dumps(content).encode())
        assert made.status == 201, made.body
    onetool(server, "hosts", "allow", "--private", upstream.netloc)
    assert "by itself" in onetool(server, "auth", "set", "KEY", "--host", upstream.url, stdin="sesame-0123456789\n")
    until(lambda: run(server, "mine.get()").get("ok"))
    assert upstream.seen[-1].headers["x-key"] == "sesame-0123456789"


def test_the_command_the_route_and_the_tool_show_one_list(place):
    server = place(settings={"nosuch": {"a": 1}}, aliases={"n": "no.such"}, allowedHosts=["*"])
    shown = cli("check", "--json", "--config", "onetool.yaml", cwd=server.folder, env={"ONETOOL_HOME": "home"})
    told = json.loads(shown.stdout)
    assert {one["key"] for one in told} >= {"settings.nosuch", "aliases.n"}
    expected = [(f"{one['key']}: {one['message']}", one["hint"]) for one in told]
    assert [(one["message"], one.get("fix")) for one in findings(server)] == expected
    health = health_findings(server)
    assert [message in line for (message, _), line in zip(expected, health, strict=True)] == [True] * len(told)
    assert "findings" not in server.ask("/status").json["health"]


def test_new_python_waits_for_a_signal(place):
    server = place()
    (server.folder / "packs" / "greet.py").write_text(PACK.format("one"))
    until(lambda: any("greet.py" in one["where"] for one in findings(server)))
    (fix,) = {one["fix"] for one in findings(server) if "greet.py" in one["where"]}
    assert f"kill -HUP {server.process.pid}" in fix
    message = run(server, "greet.hello()")["error"]["message"]
    assert "greet.py" in message
    assert fix in message
    assert any("greet.py: Not loaded: new" in one for one in health_findings(server))
    server.log(wait_for="Not loaded: ")
    server.process.send_signal(signal.SIGHUP)
    until(lambda: run(server, "greet.hello()").get("value") == "one")
    assert findings(server) == []


def test_watch_true_loads_it(place):
    server = place(watch=True)
    (server.folder / "packs" / "greet.py").write_text(PACK.format("one"))
    until(lambda: run(server, "greet.hello()").get("value") == "one")


@pytest.fixture
def project(tmp_path):
    """Start the whole of OneTool in a project's folder, which is empty or has this config and is trusted."""
    started = []

    def make(config=None):
        folder = tmp_path / "project"
        folder.mkdir()
        if config is not None:
            (folder / ".onetool").mkdir()
            (folder / ".onetool" / "onetool.yaml").write_text(config)
            trusted(folder)
        started.append(Served(folder, "--port", "0", real=True, env={"ONETOOL_HOME": ""}))
        return started[-1]

    yield make
    for server in started:
        server.stop()


def here(server, *args, stdin=None):
    """Run a command in the project's folder. Returns what it prints on standard error."""
    done = cli(*args, cwd=server.folder, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stderr


def not_loaded(server):
    return [one for one in health_findings(server) if "Not loaded: " in one]


def health_findings(server):
    return run(server, "ot.health()")["value"].get("findings", [])


def logged(server, text):
    return sum(text in line["message"] for line in server.log(wait_for=text))


def test_packs_that_appear_ask_for_trust_and_then_for_a_reload(project):
    server = project()
    load = f"kill -HUP {server.process.pid}"
    packs = server.folder / ".onetool" / "packs"
    packs.mkdir(parents=True)
    (packs / "greet.py").write_text(PACK.format("one"))
    server.log(wait_for="is not trusted yet")
    called = server.ask("/call/greet.hello", "POST")
    assert called.status == 404
    health = run(server, "ot.health()")["value"]["trust"]
    for message in (run(server, "greet.hello()")["error"]["message"], called.body.decode(), health):
        assert "run onetool trust, then " in message
        assert load in message
    here(server, "trust", "--yes")
    server.log(wait_for="Not loaded: ")
    (line,) = not_loaded(server)
    assert str(packs.parent) in line
    assert load in line
    message = run(server, "greet.hello()")["error"]["message"]
    assert load in message
    assert "onetool trust" not in message
    server.process.send_signal(signal.SIGHUP)
    until(lambda: run(server, "greet.hello()").get("value") == "one")
    assert not_loaded(server) == []


@pytest.mark.long
@pytest.mark.parametrize("args", [("init",), ("servers", "import", "-"), ("servers", "add", "clock", "--", "cat")])
def test_a_config_that_a_command_makes_is_named(project, args):
    server = project()
    if args[0] == "servers":
        (server.folder / ".onetool" / "packs").mkdir(parents=True)
        here(server, "trust", "--yes")
    here(server, *args, stdin='{"mcpServers": {"clock": {"command": "cat"}}}')
    server.log(wait_for="Not loaded: ")
    (line,) = not_loaded(server)
    assert str(server.folder / ".onetool" / "onetool.yaml") in line
    assert line.replace("Not loaded: ", "") in run(server, "clock.tell()")["error"]["message"]


def test_settings_are_used_when_the_folder_is_trusted(project):
    server = project("stats: {enabled: false}\n")
    assert server.ask("/tools/tools").status == 200
    (server.folder / ".onetool" / "onetool.yaml").write_text("http: {token: abcdefghijklmnop}\n")
    server.log(wait_for="Not reloaded, the previous config stays in effect")
    (reason,) = health_findings(server)
    assert "+ http.token" in reason
    assert "abcdef" not in reason
    assert "the change is not used" in reason
    assert "nothing in it is used" not in reason
    assert "run onetool trust" in reason
    assert "kill" not in reason
    here(server, "trust", "--yes")
    until(lambda: server.ask("/tools/tools").status == 401)


def test_code_is_named_when_the_folder_is_trusted(project):
    server = project("aliases: {now: time.now}\n")
    config = server.folder / ".onetool" / "onetool.yaml"
    config.write_text("servers: {clock: {command: cat}}\naliases: {then: time.now}\n")
    server.log(wait_for="Not reloaded, the previous config stays in effect")
    here(server, "trust", "--yes")
    until(lambda: run(server, "then()")["ok"])
    (line,) = not_loaded(server)
    assert "servers.clock" in line
    assert f"kill -HUP {server.process.pid}" in line


def test_trust_in_another_folder_changes_nothing(project, tmp_path):
    server = project("aliases: {now: time.now}\n")
    (tmp_path / "other" / ".onetool" / "packs").mkdir(parents=True)
    here(server, "trust", "--yes", str(tmp_path / "other"))
    config = server.folder / ".onetool" / "onetool.yaml"
    config.write_text("aliases: {then: time.now}\n")
    until(lambda: run(server, "then()")["ok"])
    assert logged(server, "Settings were reloaded") == 1
    assert not_loaded(server) == []


def test_each_edit_after_a_reload_is_logged(place):
    server = place()
    pack = server.folder / "packs" / "greet.py"
    for word in ("new", "changed", "removed"):
        pack.unlink() if word == "removed" else pack.write_text(PACK.format(word))
        server.log(wait_for=f"greet.py: {word} (load it: kill -HUP")
        (line,) = not_loaded(server)
        assert f"greet.py: Not loaded: {word} (" in line
        server.process.send_signal(signal.SIGHUP)
        until(lambda: not not_loaded(server))
    pack.write_text(PACK.format("new"))
    until(lambda: logged(server, "greet.py: new") == 2)


def test_a_config_that_cannot_be_parsed_is_named_once_and_not_to_be_loaded(place):
    server = place()
    (server.folder / "onetool.yaml").write_text("aliases: {now: [")
    server.log(wait_for="Not reloaded, the previous config stays in effect")
    (line,) = health_findings(server)
    assert "onetool.yaml" in line
    assert "kill" not in line
    assert len([one for one in findings(server) if "onetool.yaml" in one["where"]]) == 1


def test_a_new_include_is_named_once(place):
    server = place()
    (server.folder / "more.yaml").write_text("menu: direct\n")
    (server.folder / "onetool.yaml").write_text("include: [more.yaml]\n")
    server.log(wait_for="Not loaded: ")
    (line,) = not_loaded(server)
    assert "its includes have changed" in line


def test_a_command_that_comes_into_a_trusted_folder_is_not_started(tmp_path):
    config = tmp_path / "project" / ".onetool" / "onetool.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("stats: {enabled: false}\naliases: {now: time.now}\n")
    project, mark = trusted(tmp_path / "project"), tmp_path / "started"
    server = Served(project, "--port", "0", real=True)
    try:
        assert run(server, "now()")["ok"]
        config.write_text(f"servers: {{evil: {{command: touch, args: ['{mark}']}}}}\naliases: {{then: time.now}}\n")
        server.log(wait_for="Not reloaded, the previous config stays in effect")
        assert "onetool trust" in str(findings(server))
        assert run(server, "now()")["ok"]
        trusted(project)  # now somebody has looked at it; a command waits all the same
        until(lambda: run(server, "then()")["ok"])
        assert any("servers.evil" in one["message"] or "servers.evil" in one["where"] for one in findings(server))
        assert not mark.exists()
        server.process.send_signal(signal.SIGHUP)
        until(mark.exists)
    finally:
        server.stop()
