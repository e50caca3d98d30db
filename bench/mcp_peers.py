"""The servers of the peers, over stdio or HTTP: `python -m bench.mcp_peers NAME stdio|http TOOLS`.

Imports nothing of ours: they live in an environment of their own. Each has the tool `add` and so many others. Over HTTP
all of them get the same uvicorn, without a log, and say on standard output where they listen.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from bench.made import ADD, TOOLS, pack_text


class FastMCP:
    """Its tools as they are, or behind its code mode."""

    def __init__(self, tools: int, code_mode: bool = False) -> None:
        from fastmcp import FastMCP as Server  # pyright: ignore[reportMissingImports]

        transforms = []
        if code_mode:
            from fastmcp.experimental.transforms.code_mode import CodeMode  # pyright: ignore[reportMissingImports]

            transforms.append(CodeMode())
        self._server = Server("bench", transforms=transforms)
        self._server.tool(_function(ADD, "add"))
        if tools:
            self._add(tools)

    def _add(self, tools: int) -> None:
        from fastmcp.tools.base import Tool  # pyright: ignore[reportMissingImports]

        one = Tool.from_function(_function(pack_text(1), "tool_0"))
        for name in _names(tools):  # copies: making each of its function takes minutes
            self._server.add_tool(one.model_copy(update={"name": name}))

    def stdio(self) -> None:
        self._server.run("stdio", show_banner=False)

    def asgi(self) -> Any:
        return self._server.http_app(path="/mcp", json_response=True, stateless_http=True)


class Sdk:
    """The official SDK's server, with handlers of our own: the least that it can do.

    Over HTTP it makes ready to stream, unless it is told that every answer is plain JSON.
    """

    def __init__(self, tools: int, streaming: bool = False) -> None:
        self._streaming = streaming
        import mcp_types as types  # pyright: ignore[reportMissingImports]
        from mcp.server import Server

        number = {"type": "integer"}
        schema = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}
        names = ["add", *_names(tools)]
        listing = types.ListToolsResult(
            tools=[types.Tool(name=name, description="Add two numbers.", input_schema=schema) for name in names]
        )

        async def list_tools(_context: Any, _params: Any) -> Any:
            return listing

        async def call_tool(_context: Any, params: Any) -> Any:
            value = params.arguments["a"] + params.arguments["b"]
            return types.CallToolResult(content=[types.TextContent(type="text", text=str(value))])

        self._server = Server(
            "bench",
            on_list_tools=list_tools,
            on_call_tool=call_tool,
            get_tool_input_schema=lambda _name: schema,  # else it would list all tools for every call
        )

    def stdio(self) -> None:
        import anyio
        from mcp.server.stdio import stdio_server

        async def serve() -> None:
            async with stdio_server() as (source, sink):
                await self._server.run(source, sink, self._server.create_initialization_options())

        anyio.run(serve)

    def asgi(self) -> Any:
        plain = not self._streaming
        return self._server.streamable_http_app(json_response=plain, stateless_http=plain)


class SdkOfFunctions:
    """The official SDK's MCPServer, which makes tools of functions."""

    def __init__(self, tools: int) -> None:
        from mcp.server.mcpserver import MCPServer

        self._server = MCPServer("bench", log_level="WARNING")
        self._server.add_tool(_function(ADD, "add"))
        for name in _names(tools):
            self._server.add_tool(_function(pack_text(1), "tool_0"), name=name)

    def stdio(self) -> None:
        self._server.run("stdio")

    def asgi(self) -> Any:
        return self._server.streamable_http_app(json_response=True, stateless_http=True)


class Echo:
    """The yardstick over HTTP: Starlette, and what was sent sent back. With the JSON library that we use."""

    def __init__(self, tools: int) -> None:
        import msgspec

        self._decode, self._encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode

    def stdio(self) -> None:
        raise NotImplementedError("over HTTP only")

    def asgi(self) -> Any:
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import Response
        from starlette.routing import Route

        async def echo(request: Request) -> Response:
            message = self._decode(await request.body())
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": message["params"]}
            return Response(self._encode(reply), media_type="application/json")

        return Starlette(routes=[Route("/mcp", echo, methods=["POST"])])


def _names(tools: int) -> list[str]:
    return [f"pack_{number // TOOLS}_tool_{number % TOOLS}" for number in range(tools)]


def _function(source: str, name: str) -> Callable[..., Any]:
    space: dict[str, Any] = {"__name__": "bench_tools"}
    exec(source, space)
    return space[name]


def listen(app: Any) -> None:
    import socket

    import uvicorn

    door = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(json.dumps({"port": door.getsockname()[1]}), flush=True)
    config = uvicorn.Config(
        app, http="httptools", loop="uvloop", ws="none", access_log=False, log_level="error", timeout_keep_alive=75
    )
    uvicorn.Server(config).run(sockets=[door])


SERVERS: dict[str, Callable[[int], Any]] = {
    "fastmcp": FastMCP,
    "fastmcp-code": lambda tools: FastMCP(tools, code_mode=True),
    "sdk": Sdk,
    "sdk-streaming": lambda tools: Sdk(tools, streaming=True),
    "sdk-functions": SdkOfFunctions,
    "echo": Echo,
}

if __name__ == "__main__":
    name, transport, tools = sys.argv[1:]
    server = SERVERS[name](int(tools))
    if transport == "stdio":
        server.stdio()
    else:
        listen(server.asgi())
