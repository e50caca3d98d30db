"""2-ot-pack.md: one test for each scenario of `ot.health`, named after it."""

import platform
from pathlib import Path

import pytest
import yaml
from specs.ot import Agent, clock, script

import onetool


@pytest.fixture
def with_servers(tmp_path):
    """An agent whose app has these servers."""
    opened = []

    def agent(servers):
        opened.append(Agent(tmp_path, servers=servers))
        return opened[-1]

    yield agent
    for one in opened:
        one.app.close()


def test_show_health(with_servers):
    agent = with_servers({"proxy_package_version": clock()})
    told = agent.value("ot.health()")
    assert list(told) == ["version", "python", "cwd", "registry", "proxy"]
    assert told["version"] == onetool.__version__
    assert told["python"] == platform.python_version()
    assert told["cwd"] == str(Path.cwd())
    assert told["registry"]["status"] == "ok"
    assert told["registry"]["tool_count"] == len(agent.app.tools())
    assert told["proxy"] == {"status": "ok", "server_count": 1, "servers": {"proxy_package_version": "connected"}}
    text = agent.reads("ot.health()")
    assert yaml.safe_load(text) == told
    assert "proxy: {status: ok, server_count: 1, servers: {proxy_package_version: connected}}" in text.splitlines()


def test_disconnected_server(with_servers):
    proxy = with_servers({"gone": {"command": "no-such-command-anywhere"}}).value("ot.health()")["proxy"]
    assert proxy["servers"] == {"gone": "disconnected"}
    assert proxy["status"] == "degraded"
    assert "command not found: no-such-command-anywhere" in proxy["errors"]["gone"]


def test_one_server_that_is_not_connected_degrades_all(with_servers):
    servers = {"proxy_package_version": script("light_clock"), "gone": {"command": "no-such-command-anywhere"}}
    proxy = with_servers(servers).value("ot.health()")["proxy"]
    assert proxy["servers"] == {"proxy_package_version": "connected", "gone": "disconnected"}
    assert (proxy["status"], proxy["server_count"]) == ("degraded", 2)


def test_without_servers(with_servers):
    assert with_servers({}).value("ot.health()")["proxy"] == {"status": "ok", "server_count": 0, "servers": {}}
