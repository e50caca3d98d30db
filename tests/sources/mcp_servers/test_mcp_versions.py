"""Servers that were written for version 1 of the Python SDK, and get version 2."""

import json
import traceback

import pytest
from sources.mcp_servers.harness import PYTHON, SCRIPTS, ran, settle

from onetool.sources.mcp_servers.environment import start_advice
from onetool.sources.mcp_servers.settings import ServerSettings

WRONG = "; it was written for mcp 1 and got mcp 2. "
CODE = [
    "from mcp.server.fastmcp import FastMCP",
    "from mcp.server import FastMCP",
    "from mcp import McpError",
    "from mcp.server import Server; Server('x').list_tools()",
    # Version 1 brought it along.
    "raise ModuleNotFoundError(\"No module named 'httpx'\")",
]


def said_by(code):
    """Return what the installed SDK says to this code of a server."""
    with pytest.raises((ImportError, AttributeError)) as failed:
        exec(code, {})
    return "".join(traceback.format_exception(failed.value))


def block(*words):
    return ServerSettings(command=words[0], args=words[1:])


@pytest.mark.parametrize("code", CODE)
def test_an_error_of_the_sdk_is_recognised(code):
    advice = start_advice(block("uvx", "mcp-hn"), said_by(code))
    assert advice == f"{WRONG}Pin it in its args: uvx --with 'mcp<2' mcp-hn"


@pytest.mark.parametrize(
    "said",
    [
        "ModuleNotFoundError: No module named 'mcp_hn'",
        "ModuleNotFoundError: No module named 'mcp'",
        "ImportError: cannot import name 'Server' from 'other.mcp'",
        "AttributeError: 'Service' object has no attribute 'list_tools'",
    ],
)
def test_other_errors_are_not_about_it(said):
    assert start_advice(block("uvx", "mcp-hn"), said) == ""


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("/opt/bin/uvx", "a", "b c"), "Pin it in its args: /opt/bin/uvx --with 'mcp<2' a 'b c'"),
        (("uv", "tool", "run", "a"), "Pin it in its args: uv tool run --with 'mcp<2' a"),
        (("uv", "run", "--directory", "x", "a.py"), "Pin it in its args: uv run --with 'mcp<2' --directory x a.py"),
        (("python", "-m", "a"), "Pin it where the server is installed: pip install 'mcp<2'"),
        (("uvx", "--with", "mcp<2", "a"), None),
    ],
)
def test_the_advice_depends_on_the_command(words, advice):
    assert start_advice(block(*words), said_by(CODE[0])) == (f"{WRONG}{advice}" if advice else "")


def test_every_report_on_the_server_says_it(harness):
    uvx = harness.folder / "uvx"
    uvx.write_text(f'#!/bin/sh\nexec {" ".join(PYTHON)} {SCRIPTS / "fails_with.py"} "$SAID"\n')
    uvx.chmod(0o755)
    servers = {"old": {"command": str(uvx), "args": ["mcp-hn"], "env": {"SAID": said_by(CODE[0])}}}
    says = f"{WRONG}Pin it in its args: {uvx} --with 'mcp<2' mcp-hn"
    with harness.app(servers) as app:
        assert settle(app)["old"].error.endswith(says)
        assert ran(app, "ot.health()").data["proxy"]["errors"]["old"].endswith(says)
        (finding,) = [one for one in app.findings() if one.key == "servers.old"]
        assert finding.message.endswith(says)
    (listed,) = json.loads(harness.cli("servers", "list", "--json").stdout)
    assert listed["error"].endswith(says)
