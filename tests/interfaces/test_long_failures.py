"""A tool fails in `run` with a long message of many lines: its reader sees both ends, and can read the rest."""

import json
import re

import httpx
import pytest
import yaml
from ask.stand_in import Says, StandIn, Wants
from helpers import cli
from interfaces.mcp.peers import HttpPeer
from interfaces.mcp.servers import Server
from sources.mcp_servers.harness import block_of

TEXT = "\n".join(
    ("Traceback (most recent call last):", *(f'  File "a.py", line {n}' for n in range(150)), "KeyError: 7")
)
PACK = f'''
"""Fails."""

def fail() -> str:
    """Fail."""
    raise ValueError({TEXT!r})

def text() -> str:
    """Return the text."""
    return {TEXT!r}
'''
BEGINNING = 'Traceback (most recent call last):\n  File "a.py", line 0\n'
END = '  File "a.py", line 149\nKeyError: 7'
CALL = re.compile(r'\n… [\d,]+ characters left out: (ot\.result\(handle="[0-9a-f]{32}", offset=\d+\)) …\n')


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "pack.py").write_text(PACK)
    with StandIn() as model:
        ask = {"provider": "ollama", "model": "stand-in", "base_url": model.urls["ollama"]}
        servers = {"theirs": block_of("ok", env={"PIDS": str(folder / "pids")})}
        config = folder / "onetool.yaml"
        config.write_text(yaml.safe_dump({"packs": ["pack.py"], "servers": servers, "ask": ask}))
        server = Server(folder, config=config)
        try:
            yield folder, server, model
        finally:
            server.stop()


def is_whole(shown, run):
    """Whether both ends are shown, and the call between them gives the rest."""
    assert BEGINNING in shown
    assert END in shown
    page = run(CALL.search(shown)[1])
    assert page["total_lines"] == TEXT.count("\n") + 1
    return page["lines"][0] == TEXT.split("\n")[page["offset"] - 1]


CODES = ["pack.fail()", "theirs.fails(why=pack.text())"]


@pytest.mark.parametrize("code", CODES)
def test_every_reader_of_a_run_sees_both_ends_and_can_read_the_rest(site, code):
    folder, server, model = site
    url = server.url.removesuffix("/mcp")

    def over_rest(code):
        return httpx.post(f"{url}/run", json={"code": code}, timeout=60).json()

    def value(code):
        return over_rest(code)["value"]

    def typed(code, *options):
        return cli("--config", str(folder / "onetool.yaml"), "run", *options, code, cwd=folder)

    def printed(code):
        return json.loads(typed(code, "--json").stdout)

    for menu in ("run", "search"):
        result = HttpPeer(server, "new", query=f"?menu={menu}").call("run", {"code": code})
        assert result["isError"] is True
        assert is_whole(result["content"][0]["text"], value)
    failed = over_rest(code)
    assert failed["ok"] is False
    assert is_whole(failed["error"]["message"], value)
    failed = typed(code)
    assert failed.returncode == 1
    assert is_whole(failed.stderr, printed)
    assert is_whole(json.loads(typed(code, "--envelope", "--json").stdout)["error"]["message"], printed)
    model.will(Says("", calls=[Wants("run", {"code": code})]), Says("done"))
    answer = httpx.post(f"{url}/ask", json={"prompt": "?", "menu": "run", "approve": "always"}, timeout=60).json()
    assert is_whole(answer["toolError"]["message"], value)
    assert is_whole(next(one["content"] for one in model.seen[-1].body["messages"] if one["role"] == "tool"), value)


def test_a_program_that_calls_the_tool_gets_both_ends(site):
    folder, _, _ = site
    done = cli("--config", str(folder / "onetool.yaml"), "tools", "invoke", "pack.fail", "--envelope", cwd=folder)
    result = json.loads(done.stdout)["result"]
    assert result.keys() <= {"ok", "data", "error", "meta"}
    assert BEGINNING in result["error"]["message"]
    assert result["error"]["message"].endswith(END)
