"""Servers with a command: each of several processes starts one that may be replicated; others are refused."""

import json
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from cluster.conftest import shared_file
from cluster.members import Member
from helpers import cli, until
from interfaces.mcp.peers import HttpPeer
from interfaces.mcp.servers import Server, environment
from sources.mcp_servers.harness import block_of, call

from onetool import App
from onetool.config import load_config
from onetool.config.stateful import refuse_stateful_servers, stateful_servers
from onetool.core.errors import ConfigError

NOWHERE = "postgresql://127.0.0.1:1/onetool"
CLUSTER = {"database": NOWHERE, "cluster": {"address": "127.0.0.1:1", "key": "0123456789abcdef" * 4}}
MEMORY = {"command": "node", "args": ["memory.js", "a b", "--key=${KEY}"], "env": {"KEY": "a literal secret"}}
ONCE = "start it once (`onetool serve --bare --port PORT -- env KEY=… node memory.js 'a b' \"--key=${KEY}\"`)"
WAYS_OUT = ("set `replicate: true`", ONCE, "use its url here: `url: http://HOST:PORT/mcp`")


def config_of(folder, servers, **more):
    (folder / "onetool.yaml").write_text(json.dumps({"servers": servers, **more}))
    return folder / "onetool.yaml"


@pytest.mark.parametrize(
    ("block", "is_refused"),
    [
        ({}, True),
        ({"replicate": False}, True),
        ({"replicate": True}, False),
        ({"enabled": False}, False),
        ({"disabled": True}, False),
    ],
)
def test_a_server_with_a_command_is_refused_unless_it_is_replicated(tmp_path, block, is_refused):
    config = load_config(config_of(tmp_path, {"memory": {**MEMORY, **block}}), env={"KEY": "secret-of-the-server"})
    assert [one.key for one in stateful_servers(config)] == ["servers.memory"] * is_refused


def test_each_refused_server_is_named_with_both_ways_out(tmp_path):
    servers = {"memory": MEMORY, "other": {"command": "x"}, "web": {"url": "http://127.0.0.1:1/mcp"}}
    config = load_config(config_of(tmp_path, servers), env={"KEY": "secret-of-the-server"})
    with pytest.raises(ConfigError) as caught:
        refuse_stateful_servers(config)
    memory, other = caught.value.mistakes
    assert (memory.file, memory.key, other.key) == (str(tmp_path / "onetool.yaml"), "servers.memory", "servers.other")
    assert [text for text in WAYS_OUT if text not in memory.hint] == []
    assert "secret-of-the-server" not in str(caught.value)
    assert "literal" not in str(caught.value)


def served(folder, *args):
    """What `onetool serve` says when it refuses to start."""
    done = cli("serve", "--port", "0", *args, cwd=folder, env=environment(folder))
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_a_replica_does_not_start_with_it(tmp_path):
    said = served(tmp_path, "--config", str(config_of(tmp_path, {"memory": MEMORY}, **CLUSTER)))
    assert "servers.memory" in said
    assert "replicate: true" in said


def test_workers_do_not_start_with_it(tmp_path):
    file = str(config_of(tmp_path, {"memory": MEMORY}))
    assert "servers.memory" in served(tmp_path, "--config", file, "--workers", "2")
    assert "servers.cat" in served(tmp_path, "--workers", "2", "--", "cat")


def test_check_reports_it_for_a_replica_alone(tmp_path):
    def found():
        done = cli("check", "--json", cwd=tmp_path, env={"ONETOOL_CONFIG": str(tmp_path / "onetool.yaml")})
        return {one["key"]: (one["severity"], one["reason"]) for one in json.loads(done.stdout)}

    config_of(tmp_path, {"memory": block_of("ok")})
    assert "servers.memory" not in found()
    config_of(tmp_path, {"memory": block_of("ok")}, **CLUSTER)
    assert found()["servers.memory"] == ("error", "cluster")


@pytest.mark.parametrize("reload", ["reload", "reload_settings"])
def test_a_reload_that_brings_it_is_refused(tmp_path, reload):
    many = block_of("ok", replicate=True)
    with App.open(config_of(tmp_path, {"many": many})) as app:
        app.serve_beside(lambda: 2, lambda: None, 1)
        app.reload_settings()  # which notes the files as they are
        config_of(tmp_path, {"many": many, "memory": block_of("ok")})
        with pytest.raises(ConfigError, match=r"servers\.memory"):
            getattr(app, reload)()
        assert app.servers.names() == ["many"]
        answer = call(app, "many.echo", text="hi")
        assert answer.data == "hi", answer.error
        config_of(tmp_path, {"many": many})
        getattr(app, reload)()


class Client(HttpPeer):
    def number(self, tool):
        return int(self.text(tool))


@pytest.fixture
def pair(tmp_path):
    """Two replicas that share a server with an address, and start one each that may be replicated."""
    with ExitStack() as ends:
        (tmp_path / "empty.yaml").write_text("{}\n")
        block = block_of("ok")
        alone = Server(tmp_path, "--bare", "--", block["command"], *block["args"], config=tmp_path / "empty.yaml")
        ends.callback(alone.stop)
        servers = {"one": {"url": alone.url}, "many": block_of("ok", replicate=True)}
        config, file = config_of(tmp_path, servers, menu="direct"), shared_file(tmp_path)
        members = [Member(tmp_path / name, file, config=config) for name in "ab"]
        for member in members:
            ends.callback(member.stop)
        clients = [Client(member, "old") for member in members]
        yield SimpleNamespace(clients=clients)


def test_one_with_an_address_is_one_process_for_all_replicas(pair):
    for client in pair.clients:
        until(lambda client=client: {"one__pid", "many__pid"} <= {one["name"] for one in tools(client)})
    one, other = pair.clients
    assert one.number("one__pid") == other.number("one__pid")
    assert one.number("many__pid") != other.number("many__pid")


def tools(client):
    return client.result("tools/list")["tools"]
