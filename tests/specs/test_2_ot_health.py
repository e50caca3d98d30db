"""2-ot-pack.md: one test for each scenario of `ot.health`, named after it."""

import asyncio
import platform
import sys
from pathlib import Path

import pytest

import onetool
from onetool.app import App
from onetool.core.call import ToolCall

WORKING = f"""
servers:
  proxy_package_version: {{command: {sys.executable}, args: [-m, mcp_server_time]}}
"""


@pytest.fixture
def health(tmp_path):
    """The value of `ot.health()`, with a config of this text."""

    def ask(text):
        (tmp_path / "onetool.yaml").write_text(text)
        with App.open(tmp_path / "onetool.yaml") as app:
            result = asyncio.run(app.call(ToolCall("1", "ot.health", {}, "test")))
        assert result.ok, result.error
        return result.data

    return ask


def test_show_health(health):
    told = health(WORKING)
    assert told["version"] == onetool.__version__
    assert told["python"] == platform.python_version()
    assert told["cwd"] == str(Path.cwd())
    assert told["registry"]["status"] == "ok"
    assert told["registry"]["tool_count"] > 5
    assert told["proxy"] == {"status": "ok", "server_count": 1, "servers": {"proxy_package_version": "connected"}}


def test_disconnected_server(health):
    proxy = health("servers: {gone: {command: no-such-command-anywhere}}")["proxy"]
    assert proxy["servers"] == {"gone": "disconnected"}
    assert proxy["status"] == "degraded"
    assert "command not found: no-such-command-anywhere" in proxy["errors"]["gone"]


def test_without_servers(health):
    assert health("{}")["proxy"] == {"status": "ok", "server_count": 0, "servers": {}}
