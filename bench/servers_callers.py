"""Who calls a tool of a server, each in a process of its own: `python -m bench.servers_callers KIND SERVERS`.

SERVERS is JSON, name to block, as clients write it. Each line on standard input has it take one measure, and each line
that it answers is a list of seconds: so many calls of `add`, one after the other. The kinds `sdk-in-turn` and
`sdk-at-once` connect to all servers, say so, and end. Imports nothing of ours but for the kind `onetool`: the others
live in an environment of their own, with the same SDK.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

Blocks = dict[str, dict[str, Any]]
Call = Callable[[], Awaitable[Any]]
"""`add(1, 1)`; gives what came back, as text."""

ARGS = {"a": 1, "b": 1}


# The official SDK's client


def _sdk_client(block: dict[str, Any]) -> Any:
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters

    return Client(block["url"] if "url" in block else StdioServerParameters(**block))


@asynccontextmanager
async def sdk(blocks: Blocks) -> AsyncIterator[Call]:
    """Straight to the one server. It may be a gateway: ours gives the tool the name of its server `up`, too."""
    async with _sdk_client(next(iter(blocks.values()))) as client:
        name = await _listed(client)

        async def call() -> Any:
            return (await client.call_tool(name, ARGS)).content

        yield call


async def _listed(client: Any) -> str:
    """A gateway may show its tools a moment later."""
    until = perf_counter() + 30
    while perf_counter() < until:
        for tool in (await client.list_tools(cache_mode="refresh")).tools:
            if tool.name in ("add", "up__add"):
                return tool.name
        await asyncio.sleep(0.05)
    raise TimeoutError("there is no add")


async def connect(blocks: Blocks, at_once: bool) -> None:
    """Say how many tools all of them have, as soon as all are connected and have told."""
    over = asyncio.Event()

    async def stay(block: dict[str, Any], told: "asyncio.Future[int]") -> None:
        async with _sdk_client(block) as client:  # ends in the task in which it began: the SDK wants it so
            told.set_result(len((await client.list_tools()).tools))
            await over.wait()

    tools: list[asyncio.Future[int]] = []
    async with asyncio.TaskGroup() as group:
        for block in blocks.values():
            tools.append(asyncio.get_running_loop().create_future())
            group.create_task(stay(block, tools[-1]))
            if not at_once:
                await tools[-1]
        print(json.dumps({"tools": sum(await asyncio.gather(*tools))}), flush=True)
        over.set()


# OneTool, and FastMCP's proxy


@asynccontextmanager
async def onetool(blocks: Blocks) -> AsyncIterator[Call]:
    """`App.call`, with everything that is there by default: the arguments checked, the call counted and logged."""
    from onetool import App, ToolCall

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "onetool.yaml"
        config.write_text(json.dumps({"servers": blocks}))
        async with App.open(config) as app:
            app.connect()
            name = f"{next(iter(blocks))}.add"

            async def call() -> Any:
                result = await app.call(ToolCall("1", name, ARGS, "bench"))
                return result.data if result.ok else result.error

            yield call


@asynccontextmanager
async def fastmcp(blocks: Blocks) -> AsyncIterator[Call]:
    """As its guide has it. A process of a server is kept; what is said to it begins anew with every call."""
    from fastmcp.server import create_proxy  # pyright: ignore[reportMissingImports]

    yield _fastmcp_call(create_proxy({"mcpServers": blocks}))


@asynccontextmanager
async def fastmcp_kept(blocks: Blocks) -> AsyncIterator[Call]:
    """Over a connection that was opened before and is kept: its fastest, and what ours does."""
    from fastmcp import Client  # pyright: ignore[reportMissingImports]
    from fastmcp.server import create_proxy  # pyright: ignore[reportMissingImports]

    async with Client({"mcpServers": blocks}, mode="auto") as client:
        yield _fastmcp_call(create_proxy(client))


def _fastmcp_call(proxy: Any) -> Call:
    async def call() -> Any:
        return (await proxy.call_tool("add", ARGS)).content

    return call


CALLERS = {"sdk": sdk, "onetool": onetool, "fastmcp": fastmcp, "fastmcp-kept": fastmcp_kept}


# FastMCP's proxy as a server


def serve_fastmcp(kind: str, blocks: Blocks) -> None:
    """Over stdio: of one config with all of them, or of a proxy for each of them."""
    from fastmcp import FastMCP  # pyright: ignore[reportMissingImports]
    from fastmcp.server import create_proxy  # pyright: ignore[reportMissingImports]

    if kind == "serve-fastmcp":
        server = create_proxy({"mcpServers": blocks})
    else:
        server = FastMCP("bench")
        for name, block in blocks.items():
            server.mount(create_proxy({"mcpServers": {name: block}}), namespace=name)
    server.run("stdio", show_banner=False)


# The process


async def serve(kind: str, blocks: Blocks) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    async with CALLERS[kind](blocks) as call:
        got = str(await call())
        assert "2" in got, f"add(1, 1) gave {got}"
        for line in sys.stdin:  # nothing else is to happen meanwhile
            print(json.dumps(await _times(call, **json.loads(line))), file=answers, flush=True)


async def _times(call: Call, calls: int, seconds: float) -> list[float]:
    taken: list[float] = []
    until = perf_counter() + seconds
    while len(taken) < calls and (not taken or perf_counter() < until):
        started = perf_counter()
        await call()
        taken.append(perf_counter() - started)
    return taken


if __name__ == "__main__":
    kind, blocks = sys.argv[1], json.loads(sys.argv[2])
    if kind.startswith("serve-"):
        serve_fastmcp(kind, blocks)
    elif kind in CALLERS:
        asyncio.run(serve(kind, blocks))
    else:
        asyncio.run(connect(blocks, at_once=kind == "sdk-at-once"))
