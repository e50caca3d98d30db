"""Programs get large results whole, where they ask for it: by `?whole=1`, or by the `_meta` of a call."""

import json

import pytest
from helpers import check_each, cli, until
from interfaces.mcp.conftest import WAYS
from interfaces.mcp.peers import HttpPeer, StdioPeer
from interfaces.mcp.upstreams import Site, up

from onetool.core.mcp_protocol import TASKS

WHOLE = {"onetool/whole": True}
LARGE = {"count": 6_000}  # about 60 KB
TEXT = "\n".join(f"line {number}" for number in range(1, LARGE["count"] + 1))
KEY = "sk-live-0123456789"
PACK = f'''
import asyncio
from pathlib import Path

from onetool.sdk import tool

pack = "p"

@tool(task="required", timeout=60)
async def job(path: str) -> str:
    """Returns much, once a file is there."""
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    return "x" * 60_000

def large(text: str = "") -> str:
    """Returns much, with a secret in it."""
    return "{KEY} " + "x" * 60_000 + text

def rows() -> list:
    """Returns many rows."""
    return [{{"number": number}} for number in range(5_000)]
'''


def is_stored(result):
    (block,) = result["content"]
    return block["text"].startswith("The result is large and was stored.")


def test_a_call_asks_for_its_result(peer):
    assert is_stored(peer.call("working__lines", LARGE))
    assert peer.text("working__lines", LARGE, meta=WHOLE) == TEXT
    assert is_stored(peer.call("working__lines", LARGE, meta={"onetool/whole": False}))


def test_the_choice_is_true_or_false(peer):
    error = peer.error("tools/call", {"name": "working__lines", "arguments": LARGE}, meta={"onetool/whole": "yes"})
    assert error["message"] == "params._meta['onetool/whole']: expected true or false"


@pytest.mark.parametrize("era", ["old", "new"])
def test_an_address_asks_for_all_results(http_peer, era):
    whole = http_peer(era, query="?menu=direct&whole=1")
    assert whole.text("working__lines", LARGE) == TEXT
    assert is_stored(whole.call("working__lines", LARGE, meta={"onetool/whole": False}))
    assert is_stored(http_peer(era, query="?menu=direct&whole=0").call("working__lines", LARGE))


def test_an_address_with_another_choice_is_refused(http_peer):
    refused = http_peer("new", query="?whole=all").send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert refused.status == 400
    assert b"use whole=1 or whole=0" in refused.body


def test_the_tool_call_of_the_menu_search_takes_it_too(shared_peers):
    peer = shared_peers("http-new", "search")
    assert peer.text("call", {"name": "working.lines", "args": LARGE}, meta=WHOLE) == TEXT


@pytest.mark.parametrize("way", ["http-old", "stdio-new"])
def test_more_than_4_mib_is_stored(shared_peers, way):
    peer = shared_peers(way)
    assert len(peer.text("working__lines", {"count": 350_000}, meta=WHOLE)) > 4_000_000
    assert is_stored(peer.call("working__lines", {"count": 400_000}, meta=WHOLE))


def test_what_a_server_sends_comes_whole(tmp_path):
    text = "abc " * 15_000
    site = Site(tmp_path)
    site.config({"other": site.upstream()})

    def check(way):
        peer = site.peer(way)
        up(peer, "other")
        assert peer.call("other__echo", {"text": text}, meta=WHOLE)["content"] == [{"type": "text", "text": text}]

    try:
        check_each(WAYS, check)
    finally:
        site.close()


@pytest.fixture
def config(tmp_path):
    (tmp_path / "p.py").write_text(PACK)
    (tmp_path / "secrets.yaml").write_text(f"KEY: {KEY}\n")
    (tmp_path / "secrets.yaml").chmod(0o600)
    file = tmp_path / "onetool.yaml"
    file.write_text("menu: direct\npacks: [p.py]\nsecrets: secrets.yaml\n")
    return file


def test_secrets_are_masked_in_a_whole_result(config):
    peer = StdioPeer(config.parent, "new", config=config)
    try:
        assert peer.text("p__large", meta=WHOLE) == "*** " + "x" * 60_000
        assert len(json.loads(peer.text("p__rows", meta=WHOLE))) == 5_000
    finally:
        peer.close()


def test_the_result_of_a_task_is_stored(config):
    peer = StdioPeer(config.parent, "new", config=config, capabilities={"extensions": {TASKS: {}}})
    try:
        file = config.parent / "now"
        call = {"name": "p__job", "arguments": {"path": str(file)}}
        task = {"taskId": peer.result("tools/call", call, meta=WHOLE)["taskId"]}
        file.touch()
        assert is_stored(until(lambda: peer.result("tasks/get", task).get("result")))
    finally:
        peer.close()


@pytest.mark.parametrize("place", ["store", "config"])
def test_a_token_forbids_it(serve, config, place):
    command = ("--config", str(config), "tokens", "add", "agent", "--no-whole")
    env = {"ONETOOL_HOME": str(config.parent / "home")}
    if place == "store":
        token = cli(*command, cwd=config.parent, env=env).stdout.strip()
    else:
        token, line = cli(*command, "--print", cwd=config.parent, env=env).stdout.splitlines()
        config.write_text(f"{config.read_text()}http:\n  tokens:\n{line}\n")
    other = cli("--config", str(config), "tokens", "add", "program", cwd=config.parent, env=env).stdout.strip()
    server = serve(config=config, **env)
    for era in ("old", "new"):
        agent = HttpPeer(server, era, query="?whole=1", token=token)
        assert is_stored(agent.call("p__large"))
        assert is_stored(agent.call("p__large", meta=WHOLE))
        assert agent.text("time__now")
        program = HttpPeer(server, era, query="?whole=1", token=other)
        assert program.text("p__large") == "*** " + "x" * 60_000
