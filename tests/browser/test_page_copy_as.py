"""What the page copies as curl, command line, Python, code and MCP message is run as it is, and gives its value."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from browser.harness import METEO, harness
from browser.person import Person
from helpers import until

TOKEN = "a-token-for-the-page-" + "x" * 32
OLDER = "meteo.echo@1"  # Python can't say this name, and the menu `direct` has the newest version only
NASTY = {
    "single 'quotes'": "it's 'quoted'",
    'double "quotes"': 'say "hi"',
    "dollar": "$HOME ${HOME} $(id) `id` !!",
    "lines": "one\ntwo\r\n\tthree\n",
    "backslashes": "C:\\new\\table \\' \\\" \\u0041 \\",
    "unicode": "café 日本 Ω 🎈 👩‍👩‍👧",
    "unseen": "a\u202eb\u200bc\u2028d\x7fe\u0085f\x00g\x1b[31m",
    "large": 12345678901234567890,
    "numbers": [0, -1, 1.5, 1e300, 2**53],
    "words": [True, False, None, "", "None", "true"],
    "": {"nested": [{"a": []}, {}]},
    "percent %s {x} #": "# ; & | > < * ? ~ %",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    schema = {"type": "object", "properties": {"message": {}}, "required": ["message"]}
    echo = {"type": "python", "argSchema": schema, "pythonImpl": {"func": "tools.echo"}}
    with harness(tmp_path_factory.mktemp("served"), token=TOKEN) as one:
        for version in ("1", "2"):
            one.put_tool(METEO, "echo", echo, version)
        until(lambda: OLDER in one.tools())
        yield one


@pytest.fixture(scope="module", params=["tools.echo", OLDER])
def texts(browser, served, request):
    """Every way to copy a call, by the name of its tab: as the button puts it on the clipboard."""
    with browser.page(width=1280, height=800) as page:
        person = Person(page, served.url)
        person.open()
        person.type_into("Token", TOKEN)
        person.press("Enter")
        person.see("tools.echo")
        person.value("void (navigator.clipboard.writeText = async (text) => void (globalThis.copied = text))")
        one = served.tools()[request.param]
        key = f"{one['bundleID']}/{one['slug']}/{one['version']}"
        args = json.dumps({"message": NASTY})
        person.value(f"void (location.hash = {json.dumps(f'#/tools?tool={key}&args={quote(args)}')})")
        person.click("Copy as")
        found = {}
        for name in ("curl", "Command line", "Python", "run", "MCP"):
            person.click(name, role="tab")
            person.value("void (globalThis.copied = null)")
            person.value("void document.querySelector('[data-copy-as] + button').click()")
            found[name] = person.until("globalThis.copied")
            assert ("export ONETOOL_TOKEN=" in person.text()) is (name == "curl")
        assert person.faults() == []
        return found


@pytest.fixture
def environment(served, tmp_path):
    """As somebody has it who works where the server runs: `onetool` is on the path, and the token in a variable."""
    folder = served.server.folder
    command = tmp_path / "onetool"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m onetool "$@"\n', encoding="utf-8")
    command.chmod(0o700)
    return {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(folder),
        "ONETOOL_HOME": str(folder / "home"),
        "ONETOOL_CONFIG": str(folder / "onetool.yaml"),
        "ONETOOL_TOKEN": TOKEN,
    }


def output(command, environment):
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_curl(texts, environment):
    assert TOKEN not in texts["curl"]
    assert json.loads(output(["bash", "-c", texts["curl"]], environment)) == NASTY


def test_the_command_line(texts, environment):
    assert json.loads(output(["bash", "-c", texts["Command line"]], environment))["result"]["data"] == NASTY


def test_python(texts, environment):
    assert ast.literal_eval(output([sys.executable, "-c", texts["Python"]], environment)) == NASTY


def test_code_for_run(texts, environment, tmp_path):
    file = Path(tmp_path, "code.py")
    file.write_text(texts["run"], encoding="utf-8")
    assert texts["run"].startswith(("tools.echo(message=", f'ot.call("{OLDER}", {{'))
    assert json.loads(output(["onetool", "run", "--full", "-f", str(file)], environment)) == NASTY


def test_an_mcp_message(texts, served):
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    with httpx.Client(base_url=served.url, headers=headers, timeout=20) as client:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        menu = "search" if OLDER in texts["MCP"] else "direct"
        begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        begun = client.post(f"/mcp?menu={menu}", json=begin)
        session = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}
        client.post(
            f"/mcp?menu={menu}", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session
        )
        reply = client.post(f"/mcp?menu={menu}", content=texts["MCP"].encode(), headers=session)
    body = reply.text.partition("data: ")[2] if reply.headers["content-type"].startswith("text/event") else reply.text
    assert json.loads(json.loads(body)["result"]["content"][0]["text"]) == NASTY
