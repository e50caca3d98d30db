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


def test_new_python_waits_for_a_signal(place):
    server = place()
    (server.folder / "packs" / "greet.py").write_text(PACK.format("one"))
    until(lambda: any("greet.py" in one["where"] for one in findings(server)))
    (fix,) = {one["fix"] for one in findings(server) if "greet.py" in one["where"]}
    assert f"kill -HUP {server.process.pid}" in fix
    message = run(server, "greet.hello()")["error"]["message"]
    assert "greet.py" in message
    assert fix in message
    assert "greet.py" in str(run(server, "ot.health()")["value"]["not_loaded"])
    server.log(wait_for="Not loaded: ")
    server.process.send_signal(signal.SIGHUP)
    until(lambda: run(server, "greet.hello()").get("value") == "one")
    assert findings(server) == []


def test_watch_true_loads_it(place):
    server = place(watch=True)
    (server.folder / "packs" / "greet.py").write_text(PACK.format("one"))
    until(lambda: run(server, "greet.hello()").get("value") == "one")


def test_a_command_that_comes_into_a_trusted_folder_is_not_started(tmp_path):
    config = tmp_path / "project" / ".onetool" / "onetool.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("stats: {enabled: false}\naliases: {now: time.now}\n")
    project, mark = trusted(tmp_path / "project"), tmp_path / "started"
    server = Served(project, "--port", "0", real=True)
    try:
        assert run(server, "now()")["ok"]
        config.write_text(f"servers: {{evil: {{command: touch, args: ['{mark}']}}}}\naliases: {{then: time.now}}\n")
        server.log(wait_for="Not reloaded, what was in force stays")
        assert "onetool trust" in str(findings(server))
        assert run(server, "now()")["ok"]
        trusted(project)  # now somebody has looked at it; a command waits all the same
        config.touch()
        until(lambda: run(server, "then()")["ok"])
        assert any("servers.evil" in one["message"] or "servers.evil" in one["where"] for one in findings(server))
        assert not mark.exists()
        server.process.send_signal(signal.SIGHUP)
        until(mark.exists)
    finally:
        server.stop()
