"""`onetool serve --bare -- COMMAND`: one MCP server, as its clients would see it without us."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import npm
import pytest
from helpers import cli
from interfaces.mcp.servers import environment
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

OFFERS = Path(__file__).parents[2] / "sources" / "mcp_servers" / "nasty" / "offers.py"
NODE_SERVERS = Path(__file__).parents[3] / ".node-servers"
NODE_WANTED = Path(__file__).parents[2] / "sources" / "mcp_servers" / "npm"


async def offered(client):
    """The names and schemas of all that a server lists; nothing for a kind that it doesn't have."""
    found = {}
    for kind, of in (("tools", list_tools), ("prompts", list_prompts), ("resources", list_resources)):
        with suppress(MCPError):
            found[kind] = await of(client)
    return {kind: listed for kind, listed in found.items() if listed}


async def list_tools(client):
    return [(one.name, one.description, one.input_schema) for one in (await client.list_tools()).tools]


async def list_prompts(client):
    prompts = (await client.list_prompts()).prompts
    return [(one.name, [argument.name for argument in one.arguments or ()]) for one in prompts]


async def list_resources(client):
    return [(str(one.uri), one.name) for one in (await client.list_resources()).resources]


def directly(folder, command, work, **env):
    async def run():
        place = StdioServerParameters(command=command[0], args=command[1:], env=environment(folder, **env))
        with (folder / "direct.log").open("w") as log:
            async with Client(stdio_client(place, errlog=log), mode="legacy") as client:
                return await work(client)

    return asyncio.run(run())


def through(server, work, mode="legacy"):
    async def run():
        async with Client(server.url, mode=mode, cache=None) as client:
            return await work(client)

    return asyncio.run(run())


def test_it_lists_and_answers_what_the_server_does(serve, tmp_path):
    command = [sys.executable, str(OFFERS)]
    server = serve("--bare", "--", *command)
    assert "offers is starting: its tools are offers.… (over MCP without this prefix), its log is" in server.log()
    expected = directly(tmp_path, command, offered)
    assert expected.keys() == {"tools", "prompts", "resources"}
    for mode in ("legacy", "auto"):
        assert through(server, offered, mode) == expected


@pytest.mark.long
@pytest.mark.skipif(not npm.is_installed(NODE_WANTED, NODE_SERVERS), reason=npm.why_not(NODE_SERVERS))
def test_a_server_with_a_memory_is_one_for_all_its_clients(serve, tmp_path):
    entry = NODE_SERVERS / "node_modules" / "@modelcontextprotocol" / "server-memory" / "dist" / "index.js"
    command = [npm.node()[0], str(entry)]
    server = serve("--bare", "--", "env", f"MEMORY_FILE_PATH={tmp_path / 'memory.jsonl'}", *command)
    ada = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}

    async def create(client):
        return await client.call_tool("create_entities", {"entities": [ada]})

    async def read(client):
        return await client.call_tool("read_graph", {})

    assert not through(server, create).is_error
    assert "first program" in through(server, read, "auto").content[0].text
    own = {"MEMORY_FILE_PATH": str(tmp_path / "other.jsonl")}
    assert through(server, offered) == directly(tmp_path, command, offered, **own)


@pytest.mark.parametrize("args", [(), ("--menu", "run", "--", "cat"), ("--workers", "2", "--", "cat")])
def test_it_takes_one_server_and_nothing_else(args, tmp_path):
    result = cli("serve", "--bare", *args, cwd=tmp_path)
    assert result.returncode == 2
    assert "--bare serves one MCP server" in result.stderr
